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

bool dpm_graph_allows_async(void)
{
	enum dpm_graph_mode mode = READ_ONCE(dpm_graph.mode);

	return mode == DPM_GRAPH_OFF || mode == DPM_GRAPH_THRESHOLD;
}

/* The time of this transition says nothing of its order. */
static void do_not_measure(struct dpm_graph *graph)
{
	graph->took = NULL;
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
		node->contended = false;
		if (!dpm_graph_takes_part(graph, gd))
			continue;
		node->cost_us = dpm_graph_cost_us(dev, gd, graph->phase);
		node->span_us = gd->cost[graph->phase].span_us;
		node->wait_us = gd->cost[graph->phase].wait_us;
		node->contended = gd->cost[graph->phase].contended;
		if (node->cost_us == DPM_GRAPH_UNKNOWN)
			do_not_measure(graph);
		graph->costs_us += node->cost_us;
	}
}

/* Called with dpm_list_mtx held; releases it while the phase runs. */
static void run_phase(struct dpm_graph *graph)
{
	const u32 threshold_us = dpm_graph_switches.threshold_us;
	const struct dpm_graph_settings settings = {
		.direction = dpm_graph_is_down(graph->phase) ? DPM_GRAPH_DOWN : DPM_GRAPH_UP,
		.threshold_us = threshold_us,
		.cpus = num_online_cpus(),
		.sleepers = dpm_graph_switches.sleepers,
		.head_start_us = 2 * jiffies_to_usecs(dpm_graph_watch_ticks(threshold_us)),
	};

	device_pm_unlock();
	prepare_devices(graph);
	dpm_graph_begin(&graph->core, &settings);
	dpm_graph_records_begin(graph);
	trace_pm_graph_phase(graph->phase, true, graph->core.devices, 0);
	graph->begin = ktime_get();
	graph->done = false;
	graph->wakes = 0;
	WRITE_ONCE(graph->active, true);

	dpm_graph_run(graph);

	WRITE_ONCE(graph->active, false);
	trace_pm_graph_phase(graph->phase, false, graph->core.finished, graph->wakes);
	dpm_graph_records_end(graph);
	device_pm_lock();
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
	do_not_measure(graph);
	for (i = 0; i < graph->core.devices; i++) {
		struct device *dev = graph->device[i];

		if (graph->of[i]->stuck && !list_empty(&dev->power.entry)) {
			/* Never given back: its callback may still use it. */
			get_device(dev);
			list_del_init(&dev->power.entry);
		}
	}
}

/* Whether list order is faster, or has to be measured. */
static bool prefers_list(struct dpm_graph *graph, struct list_head *list)
{
	u64 costs_us = 0;
	u32 devices = 0;

	if (!dpm_graph_may_lose(&dpm_graph_choice))
		return false;
	if (!dpm_graph_add_costs(list, &devices, &costs_us))
		return false;
	dpm_graph_choice_of(&dpm_graph_choice, devices);
	if (!dpm_graph_prefers_list(&dpm_graph_choice, costs_us))
		return false;
	graph->took = &dpm_graph_choice.list;
	graph->costs_us = costs_us;
	return true;
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
	graph->took = mode == DPM_GRAPH_GRAPH ? &dpm_graph_choice.graph : NULL;
	graph->took_ns = 0;
	graph->costs_us = 0;
	graph->ended = 0;
	if (mode == DPM_GRAPH_GRAPH && prefers_list(graph, list))
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
		do_not_measure(graph);
	}
	graph->entry = ktime_get();
	if (graph->mode != DPM_GRAPH_GRAPH)
		return;
	if (dpm_graph_build_from(graph, list)) {
		pr_warn("PM: no memory for the device graph: one device after the other\n");
		WRITE_ONCE(graph->mode, DPM_GRAPH_LIST);
		do_not_measure(graph);
		return;
	}
	dpm_graph_choice_of(&dpm_graph_choice, graph->core.devices);
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

	graph->error = error;
	if (phase == DPM_GRAPH_SUSPEND)
		begin_transition(graph, from, error);
	if (!begin_phase(graph, phase, state))
		return;
	graph->down = run;
	list_splice_init(from, to);
	run_phase(graph);
	if (phase == DPM_GRAPH_SUSPEND) {
		keep_left(graph);
		dpm_graph_end_first_phase(graph);
	}
	put_stuck_aside(graph);
}

void dpm_graph_up(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_up_t run,
		  struct list_head *from, struct list_head *to)
{
	static int ignored;
	struct dpm_graph *graph = &dpm_graph;

	graph->error = &ignored;
	if (!begin_phase(graph, phase, state))
		return;
	graph->up = run;
	list_splice_tail_init(from, to);
	run_phase(graph);
	put_stuck_aside(graph);
	if (phase == DPM_GRAPH_RESUME)
		dpm_graph_end();
}

/* The time of a whole transition, in either order, beside that of its devices alone. */
void dpm_graph_end_phase(void)
{
	struct dpm_graph *graph = &dpm_graph;

	/* After a failure, the way up is one for some of the devices. */
	if (READ_ONCE(*graph->error))
		do_not_measure(graph);
	if (!graph->took)
		return;
	graph->took_ns += ktime_to_ns(ktime_sub(ktime_get(), graph->entry));
	graph->ended |= BIT(graph->phase);
	/* A test of the first phases alone says nothing of the others. */
	if (graph->phase != DPM_GRAPH_RESUME || graph->ended != GENMASK(DPM_GRAPH_PHASES - 1, 0))
		return;
	dpm_graph_note_order(graph->took, div_u64(graph->took_ns, NSEC_PER_USEC), graph->costs_us);
	do_not_measure(graph);
}
