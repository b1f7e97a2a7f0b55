// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Which index each address of a region has: its own code in one run or more, and between these the runs of inlined
 * functions, behind the calls.
 */
#include "translate/translate.h"

static uint32_t run_of(const struct translator *x, uint32_t index)
{
	uint32_t run = x->runs - 1;

	while (run && x->run[run].first > index)
		run--;
	return run;
}

static uint32_t end_of_run(const struct translator *x, uint32_t run)
{
	return run + 1 < x->runs ? x->run[run + 1].first : REGION_MAX;
}

bool is_inlined(const struct translator *x, uint32_t index)
{
	return run_of(x, index) & 1;
}

uint32_t address_of(const struct translator *x, uint32_t index)
{
	uint32_t run = run_of(x, index);

	return x->run[run].guest + x->unit * (index - x->run[run].first);
}

uint32_t units_of(const struct translator *x, uint32_t index)
{
	return ((x->list[index].next & ~1u) - address_of(x, index)) / x->unit;
}

uint32_t index_behind(const struct translator *x, uint32_t index)
{
	return index + units_of(x, index);
}

uint32_t own_units(const struct translator *x)
{
	uint32_t run = run_of(x, x->count - 1), index = x->count;

	if (run & 1)
		index = x->run[run--].first;
	return (x->run[run].guest - x->run[0].guest) / x->unit + index - x->run[run].first;
}

uint32_t index_of(const struct translator *x, uint32_t target, uint32_t from)
{
	uint32_t own = run_of(x, from), inlined = own & 1;

	/* Of another instruction set: nowhere in this region. */
	if ((target ^ x->guest) & 1)
		return REGION_MAX;
	/* An inlined function branches within itself, or back to what is behind its call. */
	for (uint32_t run = inlined ? own : 0; run < x->runs && (!inlined || run <= own + 1); run += 2 - inlined) {
		uint32_t units = ((target & ~1u) - x->run[run].guest) / x->unit;

		if (units < end_of_run(x, run) - x->run[run].first)
			return x->run[run].first + units;
	}
	return REGION_MAX;
}

bool is_joinable(const struct translator *x, uint32_t index)
{
	const struct instruction *in = &x->list[index];

	return protects_state(x->layout) && !x->alone && x->in.cond == COND_AL && index < x->count && !x->it[index] &&
		!translator_is_label(x, index) && in->op != A32_UNDEFINED && in->cond == COND_AL &&
		x->native(x->owner, address_of(x, index)) < 0;
}
