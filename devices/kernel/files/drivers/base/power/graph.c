// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: the phases of a transition.
 *
 * main.c calls dpm_graph_down() or dpm_graph_up() at the beginning of each phase. In graph mode
 * that call runs the whole phase, and main.c finds its list empty. A transition ends in the mode
 * in which it began.
 *
 *	suspend     suspend_late     suspend_noirq        resume_noirq     resume_early     resume
 *	   |             |                 |                    |                |             |
 *	build --> one graph for all six phases, walked down, then walked up -----------------> free
 *
 * After a failure or a wakeup no further device is started. All devices of the phase go to the
 * list that is resumed, in their order, whether their callbacks ran or not. A bit in each device
 * says whether it was taken through the phase; the way up skips the others. So the list keeps its
 * order in any case.
 */
#include <linux/math64.h>
#include <linux/suspend.h>

#include "graph_internal.h"

#define CREATE_TRACE_POINTS
#include <trace/events/pm_graph.h>

static_assert(DPM_GRAPH_CHOICE_PHASES == DPM_GRAPH_PHASES);

bool dpm_graph_allows_async(void)
{
	enum dpm_graph_mode mode = READ_ONCE(dpm_graph.mode);

	return mode == DPM_GRAPH_OFF || mode == DPM_GRAPH_THRESHOLD;
}

static void prepare_devices(struct dpm_graph *graph)
{
	u32 i;

	for (i = 0; i < graph->core.devices; i++) {
		struct dpm_graph_node *node = &graph->core.node[i];
		struct device *dev = graph->device[i];
		struct dpm_graph_device *gd = graph->of[i];

		/* A driver may wait for a device without a declared dependency. */
		reinit_completion(&dev->power.completion);
		node->cost_us = 0;
		node->span_us = 0;
		node->wait_us = 0;
		if (!dpm_graph_takes_part(graph, gd))
			continue;
		node->cost_us = dpm_graph_cost_us(dev, gd, graph->phase);
		node->span_us = gd->cost[graph->phase].span_us;
		node->wait_us = gd->cost[graph->phase].wait_us;
	}
}

/* The phase took so long beside the time from its first device to its last. */
static u64 overhead_us(const struct dpm_graph *graph, ktime_t end)
{
	s64 ns = ktime_sub(ktime_sub(end, graph->entry), ktime_sub(graph->last, graph->first));

	return ns > 0 ? div_u64(ns, NSEC_PER_USEC) : 0;
}

/* Called with dpm_list_mtx held; releases it while the phase runs. */
static void run_phase(struct dpm_graph *graph)
{
	const struct dpm_graph_settings settings = {
		.direction = dpm_graph_is_down(graph->phase) ? DPM_GRAPH_DOWN : DPM_GRAPH_UP,
		.threshold_us = dpm_graph_switches.threshold_us,
		.cpus = num_online_cpus(),
		.sleepers = dpm_graph_switches.sleepers,
	};
	ktime_t end;

	device_pm_unlock();
	prepare_devices(graph);
	dpm_graph_begin(&graph->core, &settings);
	dpm_graph_records_begin(graph);
	trace_pm_graph_phase(graph->phase, true, graph->core.devices, 0);
	graph->begin = ktime_get();
	graph->first = 0;
	graph->last = 0;
	graph->wakes = 0;
	WRITE_ONCE(graph->active, true);

	dpm_graph_run(graph);

	WRITE_ONCE(graph->active, false);
	trace_pm_graph_phase(graph->phase, false, graph->core.finished, graph->wakes);
	dpm_graph_records_end(graph);
	end = ktime_get();
	device_pm_lock();
	/* After a failure, the way up is one for some of the devices. */
	graph->failed |= graph->core.stopped;
	if (graph->last && !graph->failed)
		dpm_graph_weigh(&dpm_graph_choice, graph->phase, dpm_graph_gain_us(&graph->core),
				overhead_us(graph, end));
}

/*
 * A device that was left suspended (direct-complete) stays so. Stock code lets a consumer that
 * comes later revoke that along a link that orders nothing: the device would then be resumed
 * without having been suspended.
 */
static void keep_left(struct dpm_graph *graph)
{
	u32 i;

	for (i = 0; i < graph->core.devices; i++)
		if (graph->of[i]->left_suspended)
			graph->device[i]->power.direct_complete = true;
}

/* A stuck device leaves the lists: dpm_complete() would wait for its lock, perhaps for ever. */
static void put_stuck_aside(struct dpm_graph *graph)
{
	u32 i;

	if (!dpm_graph_stuck_device())
		return;
	for (i = 0; i < graph->core.devices; i++) {
		struct device *dev = graph->device[i];

		if (graph->of[i]->stuck && !list_empty(&dev->power.entry)) {
			/* Never given back: its callback may still use it. */
			get_device(dev);
			list_del_init(&dev->power.entry);
		}
	}
}

/* Whether graph order would take more than it can gain. */
static bool gains_nothing(struct list_head *list)
{
	u64 costs_us = 0;
	u32 devices = 0;
	bool known;

	if (!dpm_graph_loses(&dpm_graph_choice))
		return false;
	known = dpm_graph_add_costs(list, &devices, &costs_us);
	return dpm_graph_prefers_list(&dpm_graph_choice, known, devices, costs_us);
}

/* Decides the mode of this transition, once. */
void dpm_graph_choose(struct list_head *list)
{
	struct dpm_graph *graph = &dpm_graph;
	enum dpm_graph_mode mode = READ_ONCE(dpm_graph_switches.mode);

	dpm_graph_free(graph);
	if (mode != DPM_GRAPH_OFF && dpm_graph_know(list)) {
		pr_warn("PM: no memory for the state of devices: the stock order\n");
		mode = DPM_GRAPH_OFF;
	}
	if (mode == DPM_GRAPH_GRAPH && gains_nothing(list))
		mode = DPM_GRAPH_LIST;
	WRITE_ONCE(graph->mode, mode);
	if (mode == DPM_GRAPH_THRESHOLD)
		dpm_graph_spread_async(list, dpm_graph_switches.threshold_us);
}

void dpm_graph_end(void)
{
	struct dpm_graph *graph = &dpm_graph;

	dpm_graph_free(graph);
	WRITE_ONCE(graph->mode, DPM_GRAPH_OFF);
}

static void begin_transition(struct dpm_graph *graph, struct list_head *list, int *error)
{
	const char *stuck = dpm_graph_stuck_device();

	if (!DPM_GRAPH_CHOOSES_EARLY)
		dpm_graph_choose(list);
	if (stuck) {
		pr_err("PM: no suspend: %s has not come back from an earlier one\n", stuck);
		dpm_save_failed_dev(stuck);
		*error = -EBUSY;
		WRITE_ONCE(graph->mode, DPM_GRAPH_OFF);
	}
	graph->failed = false;
	graph->entry = ktime_get();
	if (graph->mode == DPM_GRAPH_GRAPH && dpm_graph_build_from(graph, list)) {
		pr_warn("PM: no memory for the device graph: one device after the other\n");
		WRITE_ONCE(graph->mode, DPM_GRAPH_LIST);
	}
}

/* Whether the devices of this phase go in the graph's order; the kernel's own follows otherwise. */
static bool begin_phase(struct dpm_graph *graph, enum dpm_graph_phase phase, pm_message_t state)
{
	graph->phase = phase;
	if (phase != DPM_GRAPH_SUSPEND)
		graph->entry = ktime_get();
	dpm_graph_set_phase(phase, graph->mode != DPM_GRAPH_OFF);
	graph->state = state;
	return graph->mode == DPM_GRAPH_GRAPH && graph->device;
}

void dpm_graph_down(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_down_t run,
		    struct list_head *from, struct list_head *to, int *error)
{
	struct dpm_graph *graph = &dpm_graph;

	if (phase == DPM_GRAPH_SUSPEND)
		begin_transition(graph, from, error);
	if (!begin_phase(graph, phase, state))
		return;
	graph->down = run;
	graph->error = error;
	list_splice_init(from, to);
	run_phase(graph);
	if (phase == DPM_GRAPH_SUSPEND)
		keep_left(graph);
	put_stuck_aside(graph);
}

void dpm_graph_up(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_up_t run,
		  struct list_head *from, struct list_head *to)
{
	static int ignored;
	struct dpm_graph *graph = &dpm_graph;

	if (!begin_phase(graph, phase, state))
		return;
	graph->up = run;
	graph->error = &ignored;
	list_splice_tail_init(from, to);
	run_phase(graph);
	put_stuck_aside(graph);
	if (phase == DPM_GRAPH_RESUME)
		dpm_graph_end();
}
