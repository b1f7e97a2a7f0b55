/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether the next transition goes in graph order or in list order: plain data, as graph_core.h.
 *
 * What decides is how long whole transitions took in each. Graph order has the graph, the workers
 * and their wakeups; list order handles no device while another one sleeps. Which of the two is
 * more depends on the machine, and is measured on it. List order takes at least the sum of its
 * devices' costs, so it is not tried where graph order takes less than that.
 *
 * When the costs have changed, list order has changed by as much, and graph order by no more than
 * that.
 *
 * List order is the stock kernel's own loop: a device that hangs is not given up there.
 */
#ifndef _DPM_GRAPH_CHOICE_H
#define _DPM_GRAPH_CHOICE_H

#include "graph_core.h"

/*
 * After so many in the same order the other one is measured again: soon at first, because what it
 * took once may have been an exception, and less and less often while the choice is the same.
 */
#define DPM_GRAPH_CHOICE_AGAIN_MIN	4
#define DPM_GRAPH_CHOICE_AGAIN_MAX	32

/* What a transition takes in one order: moving averages. */
struct dpm_graph_took {
	/* 0: it is not known. */
	u32 us;
	/* The sum of its devices' costs. */
	u32 costs_us;
};

/* All zero: nothing is known, and transitions go in graph order. */
struct dpm_graph_choice {
	struct dpm_graph_took graph;
	struct dpm_graph_took list;
	/* What was measured is that of so many devices. */
	u32 devices;
	/* The order chosen last, how often in a row, and after how often the other one comes. */
	bool prefers_list;
	u32 in_a_row;
	u32 again;
};

/* A transition was whole and without a failure, and all costs were known when it began. */
void dpm_graph_note_order(struct dpm_graph_took *took, u64 us, u64 costs_us);

/* What was measured of another number of devices is forgotten. */
void dpm_graph_choice_of(struct dpm_graph_choice *choice, u32 devices);

/* Whether list order may be faster, so that the costs are worth adding up. */
bool dpm_graph_may_lose(const struct dpm_graph_choice *choice);

/*
 * Whether the next transition goes in list order. Its devices cost so much in all phases together.
 */
bool dpm_graph_prefers_list(struct dpm_graph_choice *choice, u64 costs_us);

#endif
