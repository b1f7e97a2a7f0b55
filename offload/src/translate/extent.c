// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Finds how far a region of guest code goes, and its labels. */
#include "translate/steps.h"

bool falls_through(const struct instruction *in)
{
	return instruction_links(in) || !instruction_branches(in) || in->cond < COND_AL ||
		(in->op != A32_UNDEFINED && a32_table[in->op].family == COMPARE_BRANCH);
}

bool translator_fetch(const struct translator *x, uint32_t guest, uint32_t it,
		      struct instruction *in)
{
	uint32_t address = guest & ~1u, word, half;

	if (!x->fetch(x->owner, address & ~3u, &word))
		return false;
	if (!(guest & 1)) {
		a32_expand(word, address, in);
		return true;
	}
	half = (address & 2) ? word >> 16 : word & 0xffff;
	if (half >> 11 < 0x1d) {
		t32_expand(half, 2, address, it, in);
		return true;
	}
	if ((address & 2) && !x->fetch(x->owner, address + 2, &word))
		return false;
	half = half << 16 | ((address & 2) ? word & 0xffff : word >> 16);
	t32_expand(half, 4, address, it, in);
	return true;
}

uint32_t units_of(const struct translator *x, const struct instruction *in, uint32_t index)
{
	return ((in->next & ~1u) - (x->guest & ~1u)) / x->unit - index;
}

uint32_t index_of(const struct translator *x, uint32_t target)
{
	/* Of another instruction set: nowhere in this region. */
	return (target ^ x->guest) & 1 ? REGION_MAX : (target - x->guest) / x->unit;
}

static bool is_interpreted_exclusive(const struct translator *x, const struct instruction *in)
{
	uint32_t word = in->word;

	if (in->op == A32_UNDEFINED || a32_table[in->op].family != EXCLUSIVE ||
	    in->op == A32_CLREX)
		return false;
	return uses_scratch(x, field_n(word)) || uses_scratch(x, field_d(word)) ||
		uses_scratch(x, field_m(word)) || in->op == A32_LDREXD || in->op == A32_STREXD ||
		!translator_option(x, OPTION_REGISTERS) ||
		!translator_option(x, OPTION_PROTECTION);
}

/* A branch within the region, if it goes to an instruction's beginning outside of IT blocks. */
static void add_label(struct translator *x, uint32_t index, uint32_t from, uint32_t *farthest)
{
	if (index >= x->max_units || (index <= from && x->it[index]))
		return;
	put(x->label, index);
	if (index <= from)
		x->back[index] = from;
	if (index > *farthest)
		*farthest = index;
}

bool find_extent(struct translator *x)
{
	uint32_t farthest = 0, index = 0, it = 0;
	bool reached = true, one_block = !translator_option(x, OPTION_REGIONS);
	bool one_page = one_block || !translator_option(x, OPTION_PAGES);

	while ((index < x->max_units || it) && index < REGION_MAX - 2) {
		struct instruction *in = &x->list[index];
		uint32_t guest = x->guest + x->unit * index, units;

		/* Of both halves of an instruction of T32. */
		for (uint32_t i = index; i < index + 2; i++) {
			x->back[i] = 0;
			x->settled[i] = (struct held){ HOLDS_NOTHING, 0, 0 };
		}
		if (get(x->label, index)) {
			reached = true;
			/* A branch into an IT block arrives without the conditions of the block. */
			if (it)
				x->label[index / 32] &= ~(1u << (index % 32));
		}
		if ((!reached && index > farthest) ||
		    (one_page && ((guest ^ x->guest) & ~0xfffu) && !it))
			break;
		if (!translator_fetch(x, guest, it, in))
			break;
		x->it[index] = it;
		if (!reached) {
			index++;
			continue;
		}
		units = units_of(x, in, index);
		put(x->reached, index);
		if (index && x->native(x->owner, guest & ~1u) >= 0) {
			index += units;
			break;
		}
		if (it)
			it = (it & 7) ? (it & 0xe0) | (it << 1 & 0x1f) : 0;
		else if (in->op == A32_IT && !instruction_unpredictable(in))
			it = in->value;
		if (!one_block && (in->op == A32_B || in->op == A32_CBZ || in->op == A32_CBNZ))
			add_label(x, index_of(x, in->value), index, &farthest);
		x->exclusives_interpreted |= is_interpreted_exclusive(x, in);
		reached = falls_through(in);
		index += units;
		x->it[index] = it;
		if (reached && instruction_links(in))
			put(x->comeback, index);
		if (one_block && instruction_branches(in) && !it)
			break;
	}
	x->count = index;
	return index;
}
