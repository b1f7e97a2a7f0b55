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

static u32 average(u32 mean, u32 value)
{
	return mean + ((s64)value - mean) / 4;
}

void dpm_graph_note_order(struct dpm_graph_took *took, u64 us, u64 costs_us)
{
	bool is_first = !took->us;

	took->us = is_first ? at_most_u32(us) : average(took->us, at_most_u32(us));
	took->costs_us = is_first ? at_most_u32(costs_us) :
		average(took->costs_us, at_most_u32(costs_us));
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
	if (prefers_list != choice->prefers_list)
		choice->in_a_row = 0;
	choice->prefers_list = prefers_list;
	if (choice->in_a_row++ < DPM_GRAPH_CHOICE_AGAIN)
		return prefers_list;
	choice->in_a_row = 0;
	return !prefers_list;
}
