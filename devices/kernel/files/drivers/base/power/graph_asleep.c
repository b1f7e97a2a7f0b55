// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: workers that sleep inside a callback. Of those whose device is
 * known to sleep dpm_graph_take() says so; here are the others. While such a one sleeps it needs no
 * processor, so another device runs; once it is awake it needs one again.
 */
#include <linux/sched.h>

#include "graph_pool.h"

/* Whether the worker waits for something inside its callback. */
bool dpm_graph_is_asleep(const struct dpm_graph_worker *w)
{
	return READ_ONCE(w->task->__state) != TASK_RUNNING;
}

/* With the lock held: a worker that sleeps does not count as needing a processor. */
void dpm_graph_put_beside(struct dpm_graph_worker *w, struct dpm_graph *graph)
{
	struct dpm_graph_core *core = &graph->core;

	dpm_graph_leave_list_order(core);
	if (core->node[w->node].beside)
		return;
	core->node[w->node].beside = true;
	core->running_beside++;
}

/* With the lock held: the same for one that was found asleep, until it is awake. */
void dpm_graph_begin_wait(struct dpm_graph_worker *w, struct dpm_graph *graph)
{
	bool was_beside = graph->core.node[w->node].beside;

	dpm_graph_put_beside(w, graph);
	if (was_beside)
		return;
	w->waits = true;
	dpm_graph_pool.waiting++;
}

/* With the lock held: it counts again, or has ended. */
void dpm_graph_end_wait(struct dpm_graph_worker *w)
{
	dpm_graph_pool.waiting -= w->waits;
	w->waits = false;
}

/* With the lock held: those that slept unexpectedly and are awake need a processor again. */
void dpm_graph_count_awake(struct dpm_graph *graph)
{
	u32 i;

	for (i = 0; i < dpm_graph_pool.workers && dpm_graph_pool.waiting; i++) {
		struct dpm_graph_worker *w = &dpm_graph_pool.worker[i];

		if (!w->waits || dpm_graph_is_asleep(w))
			continue;
		graph->core.node[w->node].beside = false;
		graph->core.running_beside--;
		w->has_slept = true;
		dpm_graph_end_wait(w);
	}
}

/*
 * With the lock held: whether a device can run after all, because one that runs sleeps
 * unexpectedly, for example until a bus is free. The watcher sees that a tick or two later.
 */
bool dpm_graph_sees_sleeper(const struct dpm_graph_worker *except, struct dpm_graph *graph)
{
	struct dpm_graph_pool *pool = &dpm_graph_pool;
	struct dpm_graph_core *core = &graph->core;
	u32 i;

	if (core->in_list_order || core->stopped)
		return false;
	for (i = 0; i < pool->workers && core->running_beside < core->settings.sleepers; i++) {
		struct dpm_graph_worker *w = &pool->worker[i];

		if (w != except && w->node != DPM_GRAPH_NONE && dpm_graph_is_asleep(w))
			dpm_graph_begin_wait(w, graph);
	}
	return dpm_graph_available(core);
}
