// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Lays out what stands behind a region's code: constants, ways into labels, exits. */
#include "translate/steps.h"

/* Behind the code: constants, then one exit for each branch that leaves. */
void lay_out_literals(struct translator *x)
{
	if (x->code.at & 2)
		emit16(&x->code, 0xbf00);
	for (uint32_t i = 0; i < x->code.literals; i++) {
		uint32_t value = x->code.literal[i].value, at = x->code.at, j;

		for (j = 0; j < i && x->code.literal[j].value != value; j++)
			;
		if (j < i) {
			/* Where it already stands. */
			at = x->code.literal[j].at;
		} else {
			emit32(&x->code, value & 0xffff, value >> 16);
		}
		if (x->code.overflow)
			return;
		/* The offset counts from the word-aligned PC, four bytes behind the load. */
		j = at - ((x->code.literal[i].at + 4) & ~3u);
		x->code.out[x->code.literal[i].at + 2] |= j & 0xff;
		x->code.out[x->code.literal[i].at + 3] |= j >> 8;
		x->code.literal[i].at = at;
	}
}

static void write_branch(struct translator *x, uint32_t at, uint32_t to)
{
	uint32_t second = x->code.out[at + 2] | x->code.out[at + 3] << 8, code;
	uint32_t first = x->code.out[at] | x->code.out[at + 1] << 8;

	/* The place says which kind: t32_branch's second half has bit 12 set. */
	if (second & 0x1000)
		code = t32_branch(x->code.host + at, to);
	else
		code = t32_branch_if(bits(first, 9, 6), x->code.host + at, to);
	for (int i = 0; i < 4; i++)
		x->code.out[at + i] = code >> 8 * i;
}

/* Whether a branch to a guest address may be patched to its code. */
static bool is_chained(const struct translator *x, uint32_t target)
{
	return translator_option(x, OPTION_CHAIN) &&
		(translator_option(x, OPTION_PAGES) || !((target ^ x->guest) & ~0xfffu));
}

/* A branch within the region, or to code that is known; the place of the branch is the answer. */
uint32_t emit_branch(struct translator *x)
{
	uint32_t at = x->code.at;

	emit32(&x->code, 0xf000, 0x9000);
	return at;
}

void lay_out_entries(struct translator *x)
{
	for (uint32_t i = 0; i < x->count && !x->code.overflow; i++) {
		uint32_t at;

		if (x->outer[i] != NO_PLACE || !x->settled[i].what)
			continue;
		x->outer[i] = x->code.at;
		emit_held(x, x->settled[i]);
		at = emit_branch(x);
		if (!x->code.overflow)
			write_branch(x, at, x->code.host + x->inner[i]);
	}
}

/* Host address of a label's code, for a branch with what the scratch register holds there. */
static uint32_t way_in(const struct translator *x, uint32_t index, struct held held)
{
	if (!x->settled[index].what && !x->settled[index].hosted)
		return x->code.host + x->offset[index];
	return x->code.host + (same_held(held, x->settled[index]) ? x->inner[index] : x->outer[index]);
}

void lay_out_exits(struct translator *x)
{
	for (uint32_t i = 0; i < x->exits && !x->code.overflow; i++) {
		uint32_t target = x->exit[i].target, index = x->exit[i].index;
		uint32_t at = x->exit[i].at, known;
		struct held held = x->exit[i].held;
		bool chained = is_chained(x, target);
		bool inside = chained && index < x->count && get(x->reached, index) &&
			(index == 0 || get(x->label, index));

		/* Back in a loop whose pointers are host addresses, or out of it. */
		if (held.hosted) {
			struct held wanted = x->settled[inside ? index : 0];
			bool stays = inside && wanted.hosted == held.hosted;

			if (!stays || (wanted.what && !same_held(wanted, held))) {
				write_branch(x, at, x->code.host + x->code.at);
				if (stays)
					emit_held(x, wanted);
				else
					emit_guest_addresses(x, held.hosted);
				at = emit_branch(x);
				if (x->code.overflow)
					return;
			}
			held = stays ? wanted : (struct held){ held.what, held.base, 0 };
		}
		if (inside) {
			write_branch(x, at, way_in(x, index, held));
			continue;
		}
		known = chained ? cache_find(x->cache, target) : 0;
		if (known) {
			write_branch(x, at, known & ~1u);
			continue;
		}
		write_branch(x, at, x->code.host + x->code.at);
		if (chained) {
			emit32(&x->code, 0xdf00 | CALL_CHAIN, 0xbf00);
			emit32(&x->code, target & 0xffff, target >> 16);
			emit32(&x->code, (x->code.host + at) & 0xffff, (x->code.host + at) >> 16);
		} else {
			emit32(&x->code, 0xdf00 | CALL_EXIT, 0xbf00);
			emit32(&x->code, target & 0xffff, target >> 16);
		}
	}
}

void enter_labels(struct translator *x)
{
	/* Inlined functions are known to nobody else: they return to this region. */
	for (uint32_t i = 0; i < x->count; i++)
		if (!i || (get(x->reached, i) && translator_is_label(x, i) && !is_inlined(x, i)))
			cache_enter(x->cache, address_of(x, i) | (x->guest & 1),
				    way_in(x, i, (struct held){ HOLDS_NOTHING, 0, 0 }) | 1);
}
