// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: one device in one phase. The phases (graph.c) and the workers
 * (graph_worker.c) both build on this.
 */
#include <linux/bitops.h>
#include <linux/pm_runtime.h>

#include "graph_internal.h"

struct dpm_graph dpm_graph;

const char * const dpm_graph_phase_names[DPM_GRAPH_PHASES] = DPM_GRAPH_PHASE_NAMES;

static void note_no_callback(struct dpm_graph_device *gd, enum dpm_graph_phase phase)
{
	struct dpm_graph_cost *cost = &gd->cost[phase];

	/* Nothing changes: the case of most devices in most phases. */
	if (cost->runs && !cost->busy_us && !cost->span_us) {
		cost->last_us = 0;
		cost->runs++;
		return;
	}
	dpm_graph_no_callback(gd, phase);
}

/*
 * Takes one device through the phase, without locks, from @begin on. Returns the end: without a
 * callback no time passes that is worth reading the clock.
 */
ktime_t dpm_graph_run_device(struct dpm_graph *graph, u32 node, ktime_t begin)
{
	struct dpm_graph_device *gd = graph->of[node];
	struct device *dev = graph->device[node];

	/* It may have been removed since the phase began. */
	if (!dpm_graph_takes_part(graph, gd) || !device_pm_initialized(dev)) {
		complete_all(&dev->power.completion);
		return begin;
	}
	gd->called = false;
	if (dpm_graph_is_down(graph->phase)) {
		/* Set first: after a failure, too, the way up has to handle the device. */
		gd->suspended |= BIT(graph->phase);
		DPM_GRAPH_CALL(graph->down, dev, graph->state);
		if (graph->phase == DPM_GRAPH_SUSPEND)
			gd->left_suspended = dev->power.direct_complete && dev->power.is_suspended;
	} else {
		gd->suspended &= ~BIT(dpm_graph_phase_undone(graph->phase));
		DPM_GRAPH_CALL(graph->up, dev, graph->state);
	}
	if (!gd->called) {
		note_no_callback(gd, graph->phase);
		return begin;
	}
	return gd->end_ns ? ns_to_ktime(gd->end_ns) : ktime_get();
}

/* main.c: whether the graph has already waited for the neighbours of the device. */
bool dpm_graph_is_ready(struct device *dev)
{
	const struct dpm_graph *graph = &dpm_graph;

	return READ_ONCE(graph->active) && dpm_graph_of(dev)->generation == graph->generation;
}

/* Releases the threads that wait for devices which will not run any more. */
void dpm_graph_release_waiters(struct dpm_graph *graph)
{
	u32 i;

	for (i = 0; i < graph->core.devices; i++)
		if (graph->core.node[i].state < DPM_GRAPH_RUNNING)
			complete_all(&graph->device[i]->power.completion);
}
