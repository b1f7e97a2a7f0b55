// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates loads and stores of one register. */
#include "translate/translate.h"

static bool is_special(uint32_t number)
{
	return number == SP || number == PC;
}

/* The value is in register r, which is t itself or the scratch register: puts it where it belongs. */
static void finish_load(struct translator *x, const struct access *a)
{
	if (a->t == PC) {
		emit_dispatch(x, take_scratch(x), 0);
	} else if (a->t == SP) {
		take_scratch(x);
		if (delta(x))
			t32_add_constant(&x->code, scratch(x), scratch(x), delta(x));
		t32_mov(&x->code, SP, scratch(x));
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
	if (a->kind != KIND_LDR || (address & 3) || x->constants == CONSTANTS_MAX ||
	    !x->fetch(x->owner, address, &value))
		return false;
	x->constant[x->constants++] = (int32_t)(address - (x->guest & ~3u)) / 4;
	t32_constant(&x->code, a->t, value);
	forget_base(x, a->t);
	return true;
}

/* The access itself, at base + offset or base + m. */
static void at_offset(struct translator *x, const struct access *a, uint32_t base)
{
	uint32_t value = value_register(x, a);

	if (a->m == 16 && a->offset > -256) {
		t32_transfer(&x->code, a->kind, value, base, a->offset);
	} else if (a->m == 16) {
		t32_add_constant(&x->code, take_scratch(x), base, a->offset);
		t32_transfer(&x->code, a->kind, value, scratch(x), 0);
	} else if (a->up && a->type == SHIFT_LSL && a->amount < 4 && a->m != SP) {
		t32_transfer_register(&x->code, a->kind, value, base, a->m, a->amount);
	} else {
		t32_register(&x->code, a->up ? T32_ADD : T32_SUB, false, take_scratch(x), base, a->m,
			     a->type, a->amount);
		t32_transfer(&x->code, a->kind, value, scratch(x), 0);
	}
}

/* The base register moves, behind the access. */
static void move_base(struct translator *x, const struct access *a)
{
	if (a->m == 16)
		t32_add_constant(&x->code, a->n, a->n, a->offset);
	else
		t32_register(&x->code, a->up ? T32_ADD : T32_SUB, false, a->n, a->n, a->m, a->type,
			     a->amount);
	forget_base(x, a->n);
}

static void transfer_moving(struct translator *x, struct access *a)
{
	uint32_t base, value = value_register(x, a);
	bool near = a->m == 16 && a->offset > -256 && a->offset < 256;
	struct access still = *a;

	if (uses_scratch(x, a->n)) {
		x->interpret = true;
		return;
	}
	if (near && is_host_address(x, a->n)) {
		t32_transfer_moving(&x->code, a->kind, value, a->n, a->offset, a->before);
		forget_base(x, a->n);
		finish_load(x, a);
		return;
	}
	if (!is_special(a->t) && value != scratch(x) && has_distance(x, a->n, distance_of(a))) {
		uint32_t from;

		if (a->before)
			t32_add_constant(&x->code, a->n, a->n, a->offset);
		from = x->code.at;
		t32_transfer_register(&x->code, a->kind, value, a->n, scratch(x), 0);
		if (a->before)
			add_fixup(x, from, FIX_MOVED_BASE, a->n);
		if (!a->before)
			move_base(x, a);
		return;
	}
	/* The offset must outlive the access; a branch must be last. */
	if (a->n == SP || (a->load && a->m == a->t) || value == scratch(x) ||
	    (a->load && is_special(a->t))) {
		x->interpret = true;
		return;
	}
	base = host_base_register(x, a->n);
	if (near && base == scratch(x)) {
		bool holds = x->holds == HOLDS_BASE;

		t32_transfer_moving(&x->code, a->kind, value, base, a->offset, a->before);
		t32_add_constant(&x->code, a->n, a->n, a->offset);
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

/* The access at its own base register, which is a host address meanwhile. */
static void access_in_place(struct translator *x, const struct access *a)
{
	bool converts = !is_host_address(x, a->n);
	uint32_t from;

	if (converts)
		t32_add_constant(&x->code, a->n, a->n, delta(x));
	from = x->code.at;
	if (a->move)
		t32_transfer_moving(&x->code, a->kind, a->t, a->n, a->offset, a->before);
	else
		at_offset(x, a, a->n);
	if (!converts)
		return;
	/* The guest's value of the scratch register is in memory. */
	if (!uses_scratch(x, a->n))
		add_fixup(x, from, FIX_HOST_BASE, a->n);
	t32_add_constant(&x->code, a->n, a->n, -delta(x));
}

/*
 * An access whose base becomes a host address and then a guest address again, so that the scratch
 * register keeps the guest's value. False: not this access.
 */
static bool transfer_in_place(struct translator *x, const struct access *a)
{
	bool direct = a->m == 16 ? a->offset > -256 && (!a->move || a->offset < 256) :
		!a->move && a->up && a->type == SHIFT_LSL && a->amount < 4;

	if (is_host_address(x, a->n) || a->n == PC || a->t >= SP || a->t == a->n || a->m == a->n ||
	    uses_scratch(x, a->t) || !direct || (uses_scratch(x, a->n) && a->move) ||
	    !keeps_guest_scratch(x))
		return false;
	access_in_place(x, a);
	return true;
}

void translate_transfer(struct translator *x)
{
	struct access a = access_by_stack(x, &x->in);
	uint32_t base, value = value_register(x, &a);

	if (translate_pair(x, &a))
		return;
	if (a.n == PC && transfer_constant(x, &a))
		return;
	/* A frame that holds its own address. */
	if (!a.load && a.t == SP && a.n == SP && a.m == 16 && !a.move && a.offset > -256) {
		t32_add_constant(&x->code, take_scratch(x), SP, -delta(x));
		t32_transfer(&x->code, a.kind, scratch(x), SP, a.offset);
		return;
	}
	if ((!a.load && is_special(a.t)) || a.m == SP || (a.m != 16 && a.type != SHIFT_LSL &&
						   a.type != SHIFT_LSR && !a.amount)) {
		x->interpret = true;
		return;
	}
	if (a.m != 16 && uses_scratch(x, a.m)) {
		/* The address can only be made of n and the scratch register's value. */
		if (a.move || a.n == PC || uses_scratch(x, a.n) ||
		    (a.n == SP && (!a.up || a.type != SHIFT_LSL || a.amount > 3)) || (!a.load && uses_scratch(x, a.t))) {
			x->interpret = true;
			return;
		}
		load_guest_scratch(x);
		t32_register(&x->code, a.up ? T32_ADD : T32_SUB, false, take_scratch(x), a.n, a.m, a.type,
			     a.amount);
		if (!is_host_address(x, a.n))
			t32_add_constant(&x->code, scratch(x), scratch(x), delta(x));
		t32_transfer(&x->code, a.kind, value, scratch(x), 0);
		finish_load(x, &a);
		return;
	}
	if (transfer_in_place(x, &a))
		return;
	if (!a.load && uses_scratch(x, a.t)) {
		/*
		 * Its value takes the scratch register, so the base itself becomes a host address
		 * and then a guest address again.
		 */
		bool direct = a.m == 16 ? a.offset > -256 :
			a.up && a.type == SHIFT_LSL && a.amount < 4;

		bool in_place = !is_host_address(x, a.n);

		if (a.n == PC || uses_scratch(x, a.n) || !direct || (in_place && a.m == a.n) ||
		    (a.move && (a.m != 16 || a.offset > 255))) {
			x->interpret = true;
			return;
		}
		load_guest_scratch(x);
		access_in_place(x, &a);
		return;
	}
	if (a.move) {
		transfer_moving(x, &a);
		return;
	}
	if (a.n == PC) {
		base = take_scratch(x);
		t32_constant(&x->code, base, x->in.pc + delta(x));
		at_offset(x, &a, base);
	} else if (has_distance(x, a.n, distance_of(&a))) {
		t32_transfer_register(&x->code, a.kind, value, a.n, scratch(x), 0);
	} else {
		at_offset(x, &a, host_base_register(x, a.n));
	}
	if (value == scratch(x))
		x->holds = HOLDS_NOTHING;
	finish_load(x, &a);
}
