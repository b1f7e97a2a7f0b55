// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: the phases of a transition.
 *
 * main.c calls dpm_graph_down() or dpm_graph_up() at the beginning of each phase. In graph mode
 * the whole phase happens in that call, and main.c finds its list empty. A transition that begins
 * in one mode ends in that mode.
 *
 *	suspend     suspend_late     suspend_noirq        resume_noirq     resume_early     resume
 *	   |             |                 |                    |                |             |
 *	build --> one graph for all six phases, walked down, then walked up -----------------> free
 *
 * After a failure or a wakeup no further device is started. All devices of the phase, whether they
 * ran or not, go to the list that is resumed, in their order; each remembers by a bit whether it
 * was taken through the phase, and the way up skips those that were not. So the list keeps its
 * order whatever happens.
 */
#include <linux/bitops.h>
#include <linux/pm_runtime.h>
#include <linux/suspend.h>

#include "power.h"
#include "graph_internal.h"

#define CREATE_TRACE_POINTS
#include <trace/events/pm_graph.h>

struct dpm_graph dpm_graph;

const char * const dpm_graph_phase_names[DPM_GRAPH_PHASES] = {
	[DPM_GRAPH_SUSPEND] = "suspend",
	[DPM_GRAPH_SUSPEND_LATE] = "suspend_late",
	[DPM_GRAPH_SUSPEND_NOIRQ] = "suspend_noirq",
	[DPM_GRAPH_RESUME_NOIRQ] = "resume_noirq",
	[DPM_GRAPH_RESUME_EARLY] = "resume_early",
	[DPM_GRAPH_RESUME] = "resume",
};

static bool is_down(enum dpm_graph_phase phase)
{
	return phase <= DPM_GRAPH_SUSPEND_NOIRQ;
}

/* The phase on the way down that a phase on the way up undoes. */
static enum dpm_graph_phase phase_undone(enum dpm_graph_phase phase)
{
	return DPM_GRAPH_RESUME - phase;
}

/* Whether the device's callback of this phase may be called at all. */
static bool takes_part(const struct dpm_graph *graph, const struct device *dev)
{
	const struct dpm_graph_device *gd = &dev->power.graph;

	if (gd->stuck)
		return false;
	return is_down(graph->phase) || (gd->suspended & BIT(phase_undone(graph->phase)));
}

/* A worker, without locks: takes one device through the phase. Whether it has a callback. */
bool dpm_graph_run_device(struct dpm_graph *graph, struct device *dev)
{
	struct dpm_graph_device *gd = &dev->power.graph;

	/* It may have been removed since the phase began. */
	if (!takes_part(graph, dev) || !device_pm_initialized(dev)) {
		complete_all(&dev->power.completion);
		return false;
	}
	gd->called = false;
	if (is_down(graph->phase)) {
		/* Set before: whatever comes of it, the way up has to look at it. */
		gd->suspended |= BIT(graph->phase);
		graph->down(dev, graph->state, false);
	} else {
		gd->suspended &= ~BIT(phase_undone(graph->phase));
		graph->up(dev, graph->state, false);
	}
	if (!gd->called)
		dpm_graph_no_callback(dev, graph->phase);
	return gd->called;
}

/* Asked by main.c before it would wait for neighbours. */
bool dpm_graph_is_ready(struct device *dev)
{
	const struct dpm_graph *graph = &dpm_graph;

	return READ_ONCE(graph->active) && dev->power.graph.generation == graph->generation;
}

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

		/* Drivers may wait for devices that nothing says they depend on. */
		reinit_completion(&dev->power.completion);
		node->cost_us = 0;
		node->wait_us = 0;
		if (!takes_part(graph, dev))
			continue;
		node->cost_us = dpm_graph_cost_us(dev, graph->phase);
		node->wait_us = dev->power.graph.cost[graph->phase].wait_us;
	}
}

/* Whoever waits for a device that will not run any more goes on. */
void dpm_graph_release_waiters(struct dpm_graph *graph)
{
	u32 i;

	for (i = 0; i < graph->core.devices; i++)
		if (graph->core.node[i].state < DPM_GRAPH_RUNNING)
			complete_all(&graph->device[i]->power.completion);
}

/* Called with dpm_list_mtx held; lets go of it meanwhile. */
static void run_phase(struct dpm_graph *graph)
{
	const struct dpm_graph_settings settings = {
		.direction = is_down(graph->phase) ? DPM_GRAPH_DOWN : DPM_GRAPH_UP,
		.threshold_us = dpm_graph_switches.threshold_us,
		.cpus = num_online_cpus(),
		.sleepers = dpm_graph_switches.sleepers,
	};

	device_pm_unlock();
	prepare_devices(graph);
	dpm_graph_begin(&graph->core, &settings);
	dpm_graph_records_begin(graph);
	trace_pm_graph_phase(graph->phase, true, graph->core.devices, 0);
	graph->begin = ktime_get();
	graph->wakes = 0;
	WRITE_ONCE(graph->active, true);

	dpm_graph_run(graph);

	WRITE_ONCE(graph->active, false);
	trace_pm_graph_phase(graph->phase, false, graph->core.finished, graph->wakes);
	dpm_graph_records_end(graph);
	device_pm_lock();
}

/* A stuck device leaves the lists: its lock may be held for ever, and dpm_complete() takes it. */
static void put_stuck_aside(struct dpm_graph *graph)
{
	u32 i;

	if (!dpm_graph_stuck_device())
		return;
	for (i = 0; i < graph->core.devices; i++) {
		struct device *dev = graph->device[i];

		if (dev->power.graph.stuck && !list_empty(&dev->power.entry)) {
			/* Never given back: its callback may still use it. */
			get_device(dev);
			list_del_init(&dev->power.entry);
		}
	}
}

/* In what way this transition goes: decided once. */
static void begin_transition(struct dpm_graph *graph, struct list_head *list, int *error)
{
	const char *stuck = dpm_graph_stuck_device();

	dpm_graph_free(graph);
	WRITE_ONCE(graph->mode, READ_ONCE(dpm_graph_switches.mode));
	if (stuck) {
		pr_err("PM: no suspend: %s has not come back from an earlier one\n", stuck);
		dpm_save_failed_dev(stuck);
		*error = -EBUSY;
		WRITE_ONCE(graph->mode, DPM_GRAPH_OFF);
	}
	if (graph->mode == DPM_GRAPH_THRESHOLD)
		dpm_graph_spread_async(list, dpm_graph_switches.threshold_us);
	if (graph->mode == DPM_GRAPH_GRAPH && dpm_graph_build_from(graph, list)) {
		pr_warn("PM: no memory for the device graph: one device after the other\n");
		WRITE_ONCE(graph->mode, DPM_GRAPH_LIST);
	}
}

void dpm_graph_down(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_down_t run,
		    struct list_head *from, struct list_head *to, int *error)
{
	struct dpm_graph *graph = &dpm_graph;

	if (phase == DPM_GRAPH_SUSPEND)
		begin_transition(graph, from, error);
	graph->phase = phase;
	dpm_graph_set_phase(phase, graph->mode != DPM_GRAPH_OFF);
	if (graph->mode != DPM_GRAPH_GRAPH || !graph->device)
		return;

	graph->state = state;
	graph->down = run;
	graph->error = error;
	list_splice_init(from, to);
	run_phase(graph);
	put_stuck_aside(graph);
}

void dpm_graph_up(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_up_t run,
		  struct list_head *from, struct list_head *to)
{
	static int ignored;
	struct dpm_graph *graph = &dpm_graph;

	graph->phase = phase;
	dpm_graph_set_phase(phase, graph->mode != DPM_GRAPH_OFF);
	if (graph->mode != DPM_GRAPH_GRAPH || !graph->device)
		return;

	graph->state = state;
	graph->up = run;
	graph->error = &ignored;
	list_splice_tail_init(from, to);
	run_phase(graph);
	put_stuck_aside(graph);
	if (phase == DPM_GRAPH_RESUME) {
		dpm_graph_free(graph);
		WRITE_ONCE(graph->mode, DPM_GRAPH_OFF);
	}
}
