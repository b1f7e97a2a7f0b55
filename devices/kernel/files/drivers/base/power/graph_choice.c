// SPDX-License-Identifier: GPL-2.0-only
/* Whether the next transition goes in graph order or in list order: see graph_choice.h. */
#include "graph_choice.h"

#ifdef __KERNEL__
#include <linux/minmax.h>
#include <linux/string.h>
#else
#include <string.h>
#define min(a, b)	((a) < (b) ? (a) : (b))
#endif

static u32 at_most_u32(u64 value)
{
	return value < DPM_GRAPH_UNKNOWN ? value : DPM_GRAPH_UNKNOWN;
}

static u32 average(u32 mean, u32 value, u32 part)
{
	return mean + ((s64)value - mean) / part;
}

void dpm_graph_note_order(struct dpm_graph_took *took, u64 us, u64 costs_us)
{
	/* What has nothing to do with the order makes it longer and never shorter. */
	u32 part = !took->us ? 1 : us < took->us ? 2 : 4;

	took->us = average(took->us, at_most_u32(us), part);
	took->costs_us = average(took->costs_us, at_most_u32(costs_us), part);
}

void dpm_graph_choice_of(struct dpm_graph_choice *choice, u32 devices)
{
	if (choice->devices == devices)
		return;
	memset(choice, 0, sizeof(*choice));
	choice->devices = devices;
}

bool dpm_graph_may_lose(const struct dpm_graph_choice *choice)
{
	return choice->graph.us > choice->graph.costs_us;
}

/* Costs are known to a few per cent: less than a sixteenth is no change. */
static s64 change_us(const struct dpm_graph_took *took, s64 costs_us)
{
	s64 change_us = costs_us - took->costs_us;
	s64 tolerance_us = took->costs_us / 16;

	return change_us > tolerance_us || -change_us > tolerance_us ? change_us : 0;
}

static s64 list_us(const struct dpm_graph_choice *choice, s64 costs_us)
{
	return choice->list.us ? choice->list.us + change_us(&choice->list, costs_us) : costs_us;
}

/* If less has to be done, graph order may take as much less, and is measured in case of doubt. */
static s64 graph_us(const struct dpm_graph_choice *choice, s64 costs_us)
{
	return choice->graph.us + min(change_us(&choice->graph, costs_us), 0);
}

bool dpm_graph_prefers_list(struct dpm_graph_choice *choice, u64 costs_us)
{
	s64 graph = graph_us(choice, costs_us);
	bool prefers_list;

	if (graph <= (s64)costs_us)
		return false;
	prefers_list = list_us(choice, costs_us) < graph;
	if (prefers_list != choice->prefers_list || !choice->again) {
		choice->in_a_row = 0;
		choice->again = DPM_GRAPH_CHOICE_AGAIN_MIN;
	}
	choice->prefers_list = prefers_list;
	if (choice->in_a_row++ < choice->again)
		return prefers_list;
	choice->in_a_row = 0;
	choice->again = min(2 * choice->again, (u32)DPM_GRAPH_CHOICE_AGAIN_MAX);
	return !prefers_list;
}
