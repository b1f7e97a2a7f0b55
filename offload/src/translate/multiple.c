// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates loads and stores of doublewords and lists, and exclusives. */
#include "translate/translate.h"

/* --- doublewords and lists --- */

void translate_double(struct translator *x)
{
	uint32_t word = x->in.word, t = field_d(word), n = field_n(word), m = field_m(word), base;
	uint32_t u = x->in.second;
	bool load = !bit(word, 5), by_register = !bit(word, 22), up = bit(word, 23);
	bool move = !bit(word, 24) || bit(word, 21), before = bit(word, 24);
	int32_t offset = x->in.value;
	bool has_scratch = uses_scratch(x, t) || uses_scratch(x, u);
	bool far = by_register || (offset & 3) || offset > 1020;

	offset = up ? offset : -offset;
	if (n == PC || t == SP || u == SP || t == PC || u == PC || (load && t == u) || (by_register && m == SP) || (by_register && uses_scratch(x, m)) ||
	    (move && (n == SP || uses_scratch(x, n))) ||
	    (move && load && by_register && (m == t || m == u)) ||
	    (has_scratch && !load && (uses_scratch(x, n) || far || n == t || n == u))) {
		x->interpret = true;
		return;
	}
	if (has_scratch && !load) {
		bool in_place = !is_host_address(x, n);

		uint32_t from;

		load_guest_scratch(x);
		if (in_place)
			t32_add_constant(&x->code, n, n, delta(x));
		from = x->code.at;
		t32_double(&x->code, false, t, u, n, before ? offset : 0);
		if (in_place) {
			add_fixup(x, from, FIX_HOST_BASE, n);
			t32_add_constant(&x->code, n, n, -delta(x));
		}
		if (move)
			t32_add_constant(&x->code, n, n, offset);
		return;
	}
	base = host_base_register(x, n);
	if (before && by_register) {
		t32_register(&x->code, up ? T32_ADD : T32_SUB, false, take_scratch(x), base, m, SHIFT_LSL, 0);
		base = scratch(x);
	} else if (before && far) {
		t32_add_constant(&x->code, take_scratch(x), base, offset);
		base = scratch(x);
	}
	t32_double(&x->code, load, t, u, base, before && !far ? offset : 0);
	if (load && has_scratch)
		x->holds = HOLDS_NOTHING;
	if (move && by_register)
		t32_register(&x->code, up ? T32_ADD : T32_SUB, false, n, n, m, SHIFT_LSL, 0);
	else if (move)
		t32_add_constant(&x->code, n, n, offset);
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
		t32_multiple(&x->code, load, down, move, base, list);
	else if (move)
		t32_transfer_moving(&x->code, kind, t, base, down ? -4 : 4, down);
	else
		t32_transfer(&x->code, kind, t, base, down ? -4 : 0);
}

static void load_list(struct translator *x, uint32_t n, uint32_t list, uint32_t base, bool move,
		      bool down, int32_t total)
{
	uint32_t home = 1u << scratch(x);
	bool own = list & home, to_pc = bit(list, PC);
	/* The branch's target comes with the others if its register is behind theirs. */
	bool with = to_pc && !own && !(list & 0x7fff & ~(home - 1)) && !(base == scratch(x) && move);
	uint32_t straight = (list & 0x7fff) | (with ? home : 0), others = straight & ~home;

	/* What the branch needs in a second access must still be reachable behind the first. */
	if ((to_pc && !with && !(base == SP && move && !down)) || (down && to_pc && !with)) {
		x->interpret = true;
		return;
	}
	/* Loaded twice, the other registers are free between, and the stack is as it was. */
	if (own && base == SP && !down && count_bits(others) >= SLOT_TEMPORARIES && protects_state(x->layout)) {
		transfer_list(x, true, false, false, base, straight);
		replace_guest_scratch(x, others);
		own = false;
	}
	if (straight)
		transfer_list(x, true, down, move && base == n, base, straight);
	if (straight & home)
		x->holds = HOLDS_NOTHING;
	if (move && base != n)
		t32_add_constant(&x->code, n, n, total);
	if (own)
		store_guest_scratch(x);
	if (to_pc && !with) {
		x->holds = HOLDS_NOTHING;
		t32_transfer_moving(&x->code, KIND_LDR, scratch(x), SP, 4, false);
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

	if (bit(list, SP) || (!load && bit(list, PC)) ||
	    (uses_scratch(x, n) && (move || (!load && own))) ||
	    (load && bit(list, LR) && bit(list, PC)) ||
	    (!load && move && bit(list, n)) ||
	    (n == SP && !direct && (!up || move)) || (own && !load && n != SP && (!direct || bit(list, n)))) {
		x->interpret = true;
		return;
	}
	if (own && !load && !direct) {
		/* Behind the stack pointer, which stays: one by one. */
		int32_t offset = 4;

		load_guest_scratch(x);
		for (uint32_t t = 0; t < SP + 2; t++) {
			if (!bit(list, t))
				continue;
			t32_transfer(&x->code, KIND_STR, t, SP, offset);
			offset += 4;
		}
		return;
	}
	if (own && !load) {
		uint32_t from;

		load_guest_scratch(x);
		if (!is_host_address(x, n))
			t32_add_constant(&x->code, n, n, delta(x));
		from = x->code.at;
		transfer_list(x, false, !up, move, n, list);
		if (!is_host_address(x, n)) {
			add_fixup(x, from, FIX_HOST_BASE, n);
			t32_add_constant(&x->code, n, n, -delta(x));
		}
		return;
	}
	base = host_base_register(x, n);
	if (!direct) {
		/* ib and da: as ia, from another place. */
		t32_add_constant(&x->code, take_scratch(x), base, up ? 4 : 4 - bytes);
		base = scratch(x);
	}
	if (move && holds_base(x, n) && !(list & (1u << n | 1u << scratch(x) | 1u << PC))) {
		/* Both move by the same. */
		transfer_list(x, load, direct && !up, true, base, list);
		t32_add_constant(&x->code, n, n, total);
		return;
	}
	if (load) {
		load_list(x, n, list, base, move, direct && !up, total);
		return;
	}
	transfer_list(x, false, direct && !up, move && base == n, base, list);
	if (move && base != n)
		t32_add_constant(&x->code, n, n, total);
	if (move)
		forget_base(x, n);
}

/* --- exclusives --- */

void translate_exclusive(struct translator *x)
{
	uint32_t word = x->in.word, n = field_n(word), d = field_d(word), m = field_m(word), base;
	bool has_m = !bit(word, 20);

	if (x->in.op == A32_CLREX) {
		/* The executor's own monitor may be open, too. */
		emit32(&x->code, 0xf3bf, 0x8f2f);
		t32_call(&x->code, CALL_INTERPRET);
		x->holds = HOLDS_NOTHING;
		return;
	}
	if (x->exclusives_interpreted || n == SP || d == SP || (has_m && m == SP) ||
	    a32_table[x->in.op].family == SWAP) {
		x->interpret = true;
		return;
	}
	base = host_base_register(x, n);
	switch (x->in.op) {
	case A32_LDREX:
		emit32(&x->code, 0xe850 | base, d << 12 | 0xf00 | x->in.value / 4);
		break;
	case A32_LDREXB:
		emit32(&x->code, 0xe8d0 | base, d << 12 | 0xf4f);
		break;
	case A32_LDREXH:
		emit32(&x->code, 0xe8d0 | base, d << 12 | 0xf5f);
		break;
	case A32_STREX:
		emit32(&x->code, 0xe840 | base, m << 12 | d << 8 | x->in.value / 4);
		break;
	case A32_STREXB:
		emit32(&x->code, 0xe8c0 | base, m << 12 | 0xf40 | d);
		break;
	default:
		emit32(&x->code, 0xe8c0 | base, m << 12 | 0xf50 | d);
		break;
	}
	forget_base(x, d);
}
