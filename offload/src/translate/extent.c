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

static void begin_run(struct translator *x, uint32_t guest, uint32_t index)
{
	x->run[x->runs].guest = guest & ~1u;
	x->run[x->runs++].first = index;
}

/* Most words or halfwords of an inlined function. */
enum { INLINE_MAX = REGION_DEFAULT / 4 };

/* Code that is being read: a region's own, or an inlined function. */
struct walk {
	uint32_t first, limit;	/* indexes */
	uint32_t link;		/* an inlined function's return address, or 0 */
	bool returns_early;	/* not at its end alone */
	uint32_t farthest;	/* units from its beginning, as is forward */
	uint32_t forward[SET_WORDS];
};

/*
 * A branch within the same, if it goes to an instruction's beginning outside of IT blocks; units and index: of the
 * branch. False: elsewhere.
 */
static bool add_label(struct translator *x, struct walk *walk, uint32_t target, uint32_t units, uint32_t index)
{
	uint32_t beginning = x->run[walk->link ? x->runs - 1 : 0].guest, at;
	uint32_t to = ((target & ~1u) - beginning) / x->unit;

	if (((target ^ x->guest) & 1) || to >= walk->limit - walk->first)
		return false;
	if (to > units) {
		put(walk->forward, to);
		if (to > walk->farthest)
			walk->farthest = to;
		return true;
	}
	at = index_of(x, target, index);
	if (at >= REGION_MAX || x->it[at])
		return false;
	put(x->label, at);
	x->back[at] = index;
	return true;
}

/* Whether an inlined function may have an instruction; a return becomes a branch, or nothing at the end. */
static bool fits_inlined(const struct translator *x, struct walk *walk, struct instruction *in, uint32_t units,
			 uint32_t index)
{
	if (in->op == A32_UNDEFINED || instruction_unpredictable(in) || bit(instruction_writes(in), LR))
		return false;
	if (in->op == A32_BX && field_m(in->word) == LR) {
		bool ends = in->cond == COND_AL && units + units_of(x, index) > walk->farthest;

		walk->returns_early |= !ends;
		in->op = ends ? A32_NOP : A32_B;
		in->value = walk->link;
		in->it = 0;
		return true;
	}
	return !instruction_branches(in) || in->op == A32_B || a32_table[in->op].family == COMPARE_BRANCH;
}

static uint32_t inline_function(struct translator *x, struct instruction *call, uint32_t index, uint32_t limit);

/* Reads code from an address on, which becomes a run. The answer is the index behind it; 0: it cannot be inlined. */
static uint32_t read_code(struct translator *x, struct walk *walk, uint32_t guest)
{
	uint32_t index = walk->first, units = 0, it = 0;
	bool reached = true, one_block = !translator_option(x, OPTION_REGIONS);
	bool one_page = one_block || !translator_option(x, OPTION_PAGES);

	begin_run(x, guest, index);
	while ((index < walk->limit || it) && index < REGION_MAX - 2) {
		struct instruction *in = &x->list[index];
		uint32_t address = guest + x->unit * units, size;

		/* Of both halves of an instruction of T32. */
		for (uint32_t i = index; i < index + 2; i++) {
			x->back[i] = 0;
			x->settled[i] = (struct held){ HOLDS_NOTHING, 0, 0 };
		}
		if (get(walk->forward, units)) {
			reached = true;
			/* A branch into an IT block arrives without the conditions of the block. */
			if (!it)
				put(x->label, index);
		}
		if ((!reached && units > walk->farthest) ||
		    (one_page && ((address ^ guest) & ~0xfffu) && !it))
			return index;
		if (!translator_fetch(x, address, it, in))
			return walk->link ? 0 : index;
		x->it[index] = it;
		if (!reached) {
			index++;
			units++;
			continue;
		}
		size = units_of(x, index);
		put(x->reached, index);
		if ((index || walk->link) && x->native(x->owner, address & ~1u) >= 0)
			return walk->link ? 0 : index + size;
		if (walk->link && !fits_inlined(x, walk, in, units, index))
			return 0;
		if (it)
			it = (it & 7) ? (it & 0xe0) | (it << 1 & 0x1f) : 0;
		else if (in->op == A32_IT && !instruction_unpredictable(in))
			it = in->value;
		if (!one_block && (in->op == A32_B || in->op == A32_CBZ || in->op == A32_CBNZ) &&
		    in->value != walk->link && !add_label(x, walk, in->value, units, index) && walk->link)
			return 0;
		x->exclusives_interpreted |= is_interpreted_exclusive(x, in);
		reached = falls_through(in) && !(walk->link && in->op == A32_NOP && in->value == walk->link);
		index += size;
		units += size;
		x->it[index] = it;
		if (reached && instruction_links(in)) {
			uint32_t behind = it ? 0 : inline_function(x, in, index, walk->limit);

			if (behind) {
				index = behind;
				begin_run(x, in->next, index);
				x->it[index] = 0;
			} else {
				put(x->comeback, index);
			}
		}
		if (one_block && instruction_branches(in) && !it)
			return index;
	}
	return walk->link ? 0 : index;
}

/*
 * The function that an instruction calls becomes part of the region, and the call a constant for lr: if it is small,
 * calls nothing and leaves lr alone. The answer is the index behind it, or 0.
 */
static uint32_t inline_function(struct translator *x, struct instruction *call, uint32_t index, uint32_t limit)
{
	struct walk walk = { index, index + INLINE_MAX, call->next, false, 0, { 0 } };
	uint32_t runs = x->runs, behind;

	if (!x->inlines || call->op != A32_BL || call->cond != COND_AL || ((call->value ^ x->guest) & 1) ||
	    runs + 2 > RUNS_MAX)
		return 0;
	if (walk.limit > limit)
		walk.limit = limit;
	behind = read_code(x, &walk, call->value);
	if (behind) {
		call->op = A32_MOV_imm;
		call->word = 0xe3a00000 | LR << 12;
		call->value = call->next;
		call->sets_carry = false;
		if (walk.returns_early)
			put(x->label, behind);
		return behind;
	}
	x->runs = runs;
	for (uint32_t i = index; i < walk.limit + 2 && i < REGION_MAX; i++) {
		x->label[i / 32] &= ~(1u << (i % 32));
		x->reached[i / 32] &= ~(1u << (i % 32));
		x->it[i] = 0;
	}
	return 0;
}

bool find_extent(struct translator *x)
{
	struct walk walk = { 0, x->max_units, 0, false, 0, { 0 } };

	x->runs = 0;
	x->count = read_code(x, &walk, x->guest);
	return x->count;
}
