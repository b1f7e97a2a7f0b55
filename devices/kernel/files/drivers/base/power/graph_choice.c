// SPDX-License-Identifier: GPL-2.0-only
/* Whether graph order shortens the next transition: see graph_choice.h. */
#include "graph_choice.h"

#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

static u32 at_most_u32(u64 value)
{
	return value < DPM_GRAPH_UNKNOWN ? value : DPM_GRAPH_UNKNOWN;
}

void dpm_graph_weigh(struct dpm_graph_choice *choice, u32 phase, u64 gain_us, u64 overhead_us)
{
	struct dpm_graph_weight *weight = &choice->weight[phase];
	u32 measured_us = at_most_u32(overhead_us);

	weight->gain_us = at_most_u32(gain_us);
	if (choice->measured & (1U << phase))
		weight->overhead_us += ((s64)measured_us - weight->overhead_us) / 4;
	else
		weight->overhead_us = measured_us;
	choice->measured |= 1U << phase;
}

/* What graph order can gain beyond what it takes; negative: list order is faster in any case. */
static s64 surplus_us(const struct dpm_graph_choice *choice)
{
	s64 surplus_us = 0;
	u32 phase;

	for (phase = 0; phase < DPM_GRAPH_CHOICE_PHASES; phase++) {
		surplus_us += choice->weight[phase].gain_us;
		surplus_us -= choice->weight[phase].overhead_us;
	}
	return surplus_us;
}

bool dpm_graph_loses(const struct dpm_graph_choice *choice)
{
	/* A test of the first phases alone says nothing about the others. */
	return choice->measured == (1U << DPM_GRAPH_CHOICE_PHASES) - 1 && surplus_us(choice) < 0;
}

bool dpm_graph_prefers_list(struct dpm_graph_choice *choice, bool known, u32 devices, u64 costs_us)
{
	if (!dpm_graph_loses(choice))
		return false;
	if (!choice->transitions) {
		choice->devices = devices;
		choice->costs_us = costs_us;
	}
	/* The gain cannot have grown by more than the sum of all costs has. */
	if (known && devices == choice->devices && choice->transitions < DPM_GRAPH_CHOICE_AGAIN &&
	    surplus_us(choice) + (s64)(costs_us - choice->costs_us) < 0) {
		choice->transitions++;
		return true;
	}
	memset(choice, 0, sizeof(*choice));
	return false;
}
