// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates loads, stores and exclusives. */
#include "translate.h"
#include "t32.h"

struct access access_of(const struct instruction *in)
{
	uint32_t word = in->word;
	struct access a;

	a.load = bit(word, 20);
	a.t = field_d(word);
	a.n = field_n(word);
	a.m = 16;
	a.type = SHIFT_LSL;
	a.amount = 0;
	a.offset = 0;
	a.up = bit(word, 23);
	a.before = bit(word, 24);
	a.move = !bit(word, 24) || bit(word, 21);
	if (a32_table[in->op].family == SINGLE) {
		a.kind = bit(word, 22) ? KIND_STRB : KIND_STR;
		if (bit(word, 25)) {
			a.m = field_m(word);
			a.type = bits(word, 6, 5);
			a.amount = bits(word, 11, 7);
		} else {
			a.offset = in->value;
		}
	} else {
		a.kind = bit(word, 5) ? KIND_STRH : KIND_STRB;
		if (bit(word, 6))
			a.kind |= KIND_LDRSB & ~KIND_LDRB;
		if (bit(word, 22))
			a.offset = in->value;
		else
			a.m = field_m(word);
		if (a.m != 16)
			a.amount = in->value;
	}
	a.kind |= a.load << 4;
	if (!a.up)
		a.offset = -a.offset;
	return a;
}

static bool is_special(uint32_t number)
{
	return number == SP || number == PC;
}

static void give_up(struct translator *x)
{
	x->interpret = true;
}

/* The value is in register r, which is t itself or the scratch register: puts it where it belongs. */
static void finish_load(struct translator *x, const struct access *a)
{
	if (a->t == PC) {
		emit_dispatch(x, take_scratch(x), 0);
	} else if (a->t == SP) {
		take_scratch(x);
		if (delta(x))
			t32_add_constant(x, scratch(x), scratch(x), delta(x));
		t32_mov(x, SP, scratch(x));
	} else if (uses_scratch(x, a->t)) {
		store_guest_scratch(x);
	} else {
		forget_base(x, a->t);
	}
}

/* The register that a load writes and a store reads. */
static uint32_t value_register(const struct translator *x, const struct access *a)
{
	return a->load && (a->t == PC || a->t == SP) ? scratch(x) : a->t;
}

/* ldr t, [pc, #x]: code does not change, so a word of it is a constant. */
static bool transfer_constant(struct translator *x, const struct access *a)
{
	uint32_t address = x->in.pc + a->offset, value;
	uint32_t start = x->layout->text_start, end = x->layout->text_end;

	if (!a->load || a->m != 16 || is_special(a->t) || uses_scratch(x, a->t))
		return false;
	if (address - start >= end - start || end - start < 4 || address > end - 4)
		return false;
	if (a->kind != KIND_LDR || (address & 3) || !x->fetch(x->owner, address, &value))
		return false;
	t32_constant(x, a->t, value);
	forget_base(x, a->t);
	return true;
}

/* The access itself, at base + offset or base + m. */
static void at_offset(struct translator *x, const struct access *a, uint32_t base)
{
	uint32_t value = value_register(x, a);

	if (a->m == 16 && a->offset > -256) {
		t32_transfer(x, a->kind, value, base, a->offset);
	} else if (a->m == 16) {
		t32_add_constant(x, take_scratch(x), base, a->offset);
		t32_transfer(x, a->kind, value, scratch(x), 0);
	} else if (a->up && a->type == SHIFT_LSL && a->amount < 4 && a->m != SP) {
		t32_transfer_register(x, a->kind, value, base, a->m, a->amount);
	} else {
		t32_register(x, a->up ? T32_ADD : T32_SUB, false, take_scratch(x), base, a->m,
			     a->type, a->amount);
		t32_transfer(x, a->kind, value, scratch(x), 0);
	}
}

/* The base register moves, behind the access. */
static void move_base(struct translator *x, const struct access *a)
{
	if (a->m == 16)
		t32_add_constant(x, a->n, a->n, a->offset);
	else
		t32_register(x, a->up ? T32_ADD : T32_SUB, false, a->n, a->n, a->m, a->type,
			     a->amount);
	forget_base(x, a->n);
}

static void transfer_moving(struct translator *x, struct access *a)
{
	uint32_t base, value = value_register(x, a);
	bool near = a->m == 16 && a->offset > -256 && a->offset < 256;
	struct access still = *a;

	if (uses_scratch(x, a->n)) {
		/* The base comes from memory and goes back there. */
		if (!near || is_special(a->t) || uses_scratch(x, a->t)) {
			give_up(x);
			return;
		}
		load_guest_scratch(x);
		if (delta(x))
			t32_add_constant(x, scratch(x), scratch(x), delta(x));
		t32_transfer_moving(x, a->kind, value, scratch(x), a->offset, a->before);
		if (delta(x))
			t32_add_constant(x, scratch(x), scratch(x), -delta(x));
		store_guest_scratch(x);
		forget_base(x, a->load ? a->t : 16);
		return;
	}
	if (near && is_host_address(x, a->n)) {
		t32_transfer_moving(x, a->kind, value, a->n, a->offset, a->before);
		forget_base(x, a->n);
		finish_load(x, a);
		return;
	}
	if (!is_special(a->t) && value != scratch(x) && has_distance(x, a->n, distance_of(a))) {
		/* executor_fault() takes the base back if the access faults. */
		if (a->before)
			t32_add_constant(x, a->n, a->n, a->offset);
		t32_transfer_register(x, a->kind, value, a->n, scratch(x), 0);
		if (!a->before)
			move_base(x, a);
		return;
	}
	/* The offset must outlive the access; a branch must be last. */
	if (a->n == SP || (a->load && a->m == a->t) || value == scratch(x) ||
	    (a->load && is_special(a->t))) {
		give_up(x);
		return;
	}
	base = host_base_register(x, a->n);
	if (near && base == scratch(x)) {
		bool holds = x->holds == HOLDS_BASE;

		t32_transfer_moving(x, a->kind, value, base, a->offset, a->before);
		t32_add_constant(x, a->n, a->n, a->offset);
		/* Both moved by the same. */
		if (!holds)
			x->holds = HOLDS_NOTHING;
		finish_load(x, a);
		return;
	}
	if (a->before) {
		at_offset(x, &still, base);
	} else {
		still.m = 16;
		still.offset = 0;
		at_offset(x, &still, base);
	}
	move_base(x, a);
	finish_load(x, a);
}

/*
 * An access whose base becomes a host address and then a guest address again, so that the scratch
 * register keeps the guest's value; executor_fault() knows. False: not this access.
 */
static bool transfer_in_place(struct translator *x, const struct access *a)
{
	bool direct = a->m == 16 ? a->offset > -256 && (!a->move || a->offset < 256) :
		!a->move && a->up && a->type == SHIFT_LSL && a->amount < 4;

	if (is_host_address(x, a->n) || a->n == PC || a->t >= SP || a->t == a->n || a->m == a->n ||
	    uses_scratch(x, a->t) || !direct || (uses_scratch(x, a->n) && a->move) ||
	    !keeps_guest_scratch(x))
		return false;
	t32_add_constant(x, a->n, a->n, delta(x));
	if (a->move)
		t32_transfer_moving(x, a->kind, a->t, a->n, a->offset, a->before);
	else
		at_offset(x, a, a->n);
	t32_add_constant(x, a->n, a->n, -delta(x));
	return true;
}

void translate_transfer(struct translator *x)
{
	struct access a = access_of(&x->in);
	uint32_t base, value = value_register(x, &a);

	if (a32_table[x->in.op].family == DOUBLE) {
		translate_multiple(x);
		return;
	}
	if (a.n == PC && transfer_constant(x, &a))
		return;
	if ((!a.load && is_special(a.t)) || a.m == SP || (a.m != 16 && a.type != SHIFT_LSL &&
						   a.type != SHIFT_LSR && !a.amount)) {
		give_up(x);
		return;
	}
	if (a.m != 16 && uses_scratch(x, a.m)) {
		/* The address can only be made of n and the scratch register's value. */
		if (a.move || is_special(a.n) || uses_scratch(x, a.n) || (!a.load && uses_scratch(x, a.t))) {
			give_up(x);
			return;
		}
		load_guest_scratch(x);
		t32_register(x, a.up ? T32_ADD : T32_SUB, false, take_scratch(x), a.n, a.m, a.type,
			     a.amount);
		if (!is_host_address(x, a.n))
			t32_add_constant(x, scratch(x), scratch(x), delta(x));
		t32_transfer(x, a.kind, value, scratch(x), 0);
		finish_load(x, &a);
		return;
	}
	if (transfer_in_place(x, &a))
		return;
	if (!a.load && uses_scratch(x, a.t)) {
		/*
		 * Its value takes the scratch register, so the base itself becomes a host address
		 * and then a guest address again; executor_fault() knows.
		 */
		bool direct = a.m == 16 ? a.offset > -256 :
			a.up && a.type == SHIFT_LSL && a.amount < 4;

		bool in_place = !is_host_address(x, a.n);

		if (a.n == PC || uses_scratch(x, a.n) || !direct || (in_place && a.m == a.n) ||
		    (a.move && (a.m != 16 || a.offset > 255))) {
			give_up(x);
			return;
		}
		load_guest_scratch(x);
		if (in_place)
			t32_add_constant(x, a.n, a.n, delta(x));
		if (!a.move)
			at_offset(x, &a, a.n);
		else
			t32_transfer_moving(x, a.kind, a.t, a.n, a.offset, a.before);
		if (in_place)
			t32_add_constant(x, a.n, a.n, -delta(x));
		return;
	}
	if (a.move) {
		transfer_moving(x, &a);
		return;
	}
	if (a.n == PC) {
		base = take_scratch(x);
		t32_constant(x, base, x->in.pc + delta(x));
		at_offset(x, &a, base);
	} else if (has_distance(x, a.n, distance_of(&a))) {
		t32_transfer_register(x, a.kind, value, a.n, scratch(x), 0);
	} else {
		at_offset(x, &a, host_base_register(x, a.n));
	}
	if (value == scratch(x))
		x->holds = HOLDS_NOTHING;
	finish_load(x, &a);
}

/* --- doublewords and lists --- */

static void transfer_double(struct translator *x)
{
	uint32_t word = x->in.word, t = field_d(word), n = field_n(word), m = field_m(word), base;
	uint32_t u = x->in.second;
	bool load = !bit(word, 5), by_register = !bit(word, 22), up = bit(word, 23);
	bool move = !bit(word, 24) || bit(word, 21), before = bit(word, 24);
	int32_t offset = x->in.value;
	bool has_scratch = uses_scratch(x, t) || uses_scratch(x, u);
	bool far = by_register || (offset & 3) || offset > 1020;

	offset = up ? offset : -offset;
	if (n == PC || t >= SP || u >= SP || (load && t == u) || (by_register && m == SP) || (by_register && uses_scratch(x, m)) ||
	    (move && (n == SP || uses_scratch(x, n))) ||
	    (move && load && by_register && (m == t || m == u)) ||
	    (has_scratch && !load && (uses_scratch(x, n) || far || n == t || n == u))) {
		give_up(x);
		return;
	}
	if (has_scratch && !load) {
		bool in_place = delta(x) && n != SP;

		load_guest_scratch(x);
		if (in_place)
			t32_add_constant(x, n, n, delta(x));
		t32_double(x, false, t, u, n, before ? offset : 0);
		if (in_place)
			t32_add_constant(x, n, n, -delta(x));
		if (move)
			t32_add_constant(x, n, n, offset);
		return;
	}
	base = host_base_register(x, n);
	if (before && by_register) {
		t32_register(x, up ? T32_ADD : T32_SUB, false, take_scratch(x), base, m, SHIFT_LSL, 0);
		base = scratch(x);
	} else if (before && far) {
		t32_add_constant(x, take_scratch(x), base, offset);
		base = scratch(x);
	}
	t32_double(x, load, t, u, base, before && !far ? offset : 0);
	if (load && has_scratch)
		x->holds = HOLDS_NOTHING;
	if (move && by_register)
		t32_register(x, up ? T32_ADD : T32_SUB, false, n, n, m, SHIFT_LSL, 0);
	else if (move)
		t32_add_constant(x, n, n, offset);
	if (move)
		forget_base(x, n);
	if (!load)
		return;
	if (has_scratch)
		store_guest_scratch(x);
	forget_base(x, t);
	forget_base(x, u);
}

/* T32 has no lists of one. */
static void transfer_list(struct translator *x, bool load, bool down, bool move, uint32_t base,
			  uint32_t list)
{
	uint32_t t = 31 - __builtin_clz(list), kind = load ? KIND_LDR : KIND_STR;

	if (list & (list - 1))
		t32_multiple(x, load, down, move, base, list);
	else if (move)
		t32_transfer_moving(x, kind, t, base, down ? -4 : 4, down);
	else
		t32_transfer(x, kind, t, base, down ? -4 : 0);
}

static void load_list(struct translator *x, uint32_t n, uint32_t list, uint32_t base, bool move,
		      bool down, int32_t total)
{
	uint32_t home = 1u << scratch(x);
	bool own = list & home, to_pc = bit(list, PC);
	/* The branch's target comes with the others if its register is behind theirs. */
	bool with = to_pc && !own && !(list & 0x7fff & ~(home - 1)) && !(base == scratch(x) && move);
	uint32_t straight = (list & 0x7fff) | (with ? home : 0);

	/* What the branch needs in a second access must still be reachable behind the first. */
	if ((to_pc && !with && !(base == SP && move && !down)) || (down && to_pc && !with)) {
		give_up(x);
		return;
	}
	if (straight)
		transfer_list(x, true, down, move && base == n, base, straight);
	if (straight & home)
		x->holds = HOLDS_NOTHING;
	if (move && base != n)
		t32_add_constant(x, n, n, total);
	if (own)
		store_guest_scratch(x);
	if (to_pc && !with) {
		x->holds = HOLDS_NOTHING;
		t32_transfer_moving(x, KIND_LDR, scratch(x), SP, 4, false);
	}
	if (x->holds == HOLDS_BASE && (bit(list, x->held_base) || (move && x->held_base == n)))
		x->holds = HOLDS_NOTHING;
	if (to_pc)
		emit_dispatch(x, take_scratch(x), 0);
}

void translate_multiple(struct translator *x)
{
	uint32_t word = x->in.word, n = field_n(word), list = word & 0xffff, base;
	bool load = bit(word, 20), move = bit(word, 21), up = bit(word, 23), before = bit(word, 24);
	int32_t bytes = 4 * count_bits(list), total = up ? bytes : -bytes;
	bool direct = up != before, own = list & (1u << scratch(x));

	if (a32_table[x->in.op].family == DOUBLE) {
		transfer_double(x);
		return;
	}
	if (bit(list, SP) || (!load && bit(list, PC)) || uses_scratch(x, n) ||
	    (load && bit(list, LR) && bit(list, PC)) ||
	    (!load && move && bit(list, n)) ||
	    (n == SP && !direct) || (own && !load && (!direct || (n != SP && bit(list, n))))) {
		give_up(x);
		return;
	}
	if (own && !load) {
		load_guest_scratch(x);
		if (!is_host_address(x, n))
			t32_add_constant(x, n, n, delta(x));
		transfer_list(x, false, !up, move, n, list);
		if (!is_host_address(x, n))
			t32_add_constant(x, n, n, -delta(x));
		return;
	}
	base = host_base_register(x, n);
	if (!direct) {
		/* ib and da: as ia, from another place. */
		t32_add_constant(x, take_scratch(x), base, up ? 4 : 4 - bytes);
		base = scratch(x);
	}
	if (load) {
		load_list(x, n, list, base, move, direct && !up, total);
		return;
	}
	transfer_list(x, false, direct && !up, move && base == n, base, list);
	if (move && base != n) {
		t32_add_constant(x, n, n, total);
		forget_base(x, n);
	} else if (move) {
		forget_base(x, n);
	}
}

/* --- exclusives --- */

void translate_exclusive(struct translator *x)
{
	uint32_t word = x->in.word, n = field_n(word), d = field_d(word), m = field_m(word), base;
	bool has_m = !bit(word, 20);

	if (x->in.op == A32_CLREX) {
		/* The executor's own monitor may be open, too. */
		emit32(x, 0xf3bf, 0x8f2f);
		t32_call(x, CALL_INTERPRET);
		x->holds = HOLDS_NOTHING;
		return;
	}
	if (x->exclusives_interpreted || n == SP || d == SP || (has_m && m == SP) ||
	    a32_table[x->in.op].family == SWAP) {
		give_up(x);
		return;
	}
	base = host_base_register(x, n);
	switch (x->in.op) {
	case A32_LDREX:
		emit32(x, 0xe850 | base, d << 12 | 0xf00 | x->in.value / 4);
		break;
	case A32_LDREXB:
		emit32(x, 0xe8d0 | base, d << 12 | 0xf4f);
		break;
	case A32_LDREXH:
		emit32(x, 0xe8d0 | base, d << 12 | 0xf5f);
		break;
	case A32_STREX:
		emit32(x, 0xe840 | base, m << 12 | d << 8 | x->in.value / 4);
		break;
	case A32_STREXB:
		emit32(x, 0xe8c0 | base, m << 12 | 0xf40 | d);
		break;
	default:
		emit32(x, 0xe8c0 | base, m << 12 | 0xf50 | d);
		break;
	}
	forget_base(x, d);
}
