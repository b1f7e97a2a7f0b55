/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether graph order shortens the next transition: plain data, as graph_core.h.
 *
 * Each phase in graph order says how much shorter than one device after the other it can be at
 * most, by the costs of its devices (dpm_graph_gain_us()), and how long it took beside them: the
 * graph, the levels, the way to a worker and back, which list order does without. Where all phases
 * together gain less than that, the next transition goes in list order. The costs are measured
 * there, too: when they grow by more than was missing, or the devices change, graph order is back.
 *
 * List order is the stock kernel's own loop: a device that hangs is not given up there.
 */
#ifndef _DPM_GRAPH_CHOICE_H
#define _DPM_GRAPH_CHOICE_H

#include "graph_core.h"

/* Phases of a transition. */
#define DPM_GRAPH_CHOICE_PHASES	6

/* What graph order takes is measured again after so many: it may have been a busy moment. */
#define DPM_GRAPH_CHOICE_AGAIN	32

struct dpm_graph_weight {
	u32 gain_us;
	u32 overhead_us;
};

/* All zero: nothing is known, and transitions go in graph order. */
struct dpm_graph_choice {
	struct dpm_graph_weight weight[DPM_GRAPH_CHOICE_PHASES];
	/* Which of them were measured, a bit each. */
	u32 measured;
	/* Transitions in list order since that was chosen; the devices and their costs then. */
	u32 transitions;
	u32 devices;
	u64 costs_us;
};

/* A phase has run in graph order, whole and without a failure. */
void dpm_graph_weigh(struct dpm_graph_choice *choice, u32 phase, u64 gain_us, u64 overhead_us);

/* Whether the costs of the devices are worth adding up: all phases gain less than they take. */
bool dpm_graph_loses(const struct dpm_graph_choice *choice);

/*
 * Whether the next transition of so many devices, which cost so much in all phases together, goes
 * in list order. @known: no cost is unknown.
 */
bool dpm_graph_prefers_list(struct dpm_graph_choice *choice, bool known, u32 devices, u64 costs_us);

#endif
