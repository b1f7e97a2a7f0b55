// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: which worker is woken, and where.
 */
#include <linux/sched.h>
#include <linux/smp.h>

#include "graph_pool.h"

/* With the lock held: whether another worker computes on this processor. */
bool dpm_graph_computes_on(u32 cpu, const struct dpm_graph_worker *except)
{
	const struct dpm_graph *graph = dpm_graph_pool.graph;
	u32 i;

	for (i = 0; i < dpm_graph_pool.workers; i++) {
		const struct dpm_graph_worker *w = &dpm_graph_pool.worker[i];

		if (w != except && w->node != DPM_GRAPH_NONE &&
		    !graph->core.node[w->node].beside && task_cpu(w->task) == cpu)
			return true;
	}
	return false;
}

static bool is_waiting(const struct dpm_graph_worker *w, u32 cpu)
{
	return w->task != current && !dpm_graph_is_asleep(w) && task_cpu(w->task) == cpu;
}

/* Whether another worker waits for this processor, with a device or without. */
bool dpm_graph_waits_on(u32 cpu)
{
	u32 i;

	for (i = 0; i < dpm_graph_pool.workers; i++)
		if (is_waiting(&dpm_graph_pool.worker[i], cpu))
			return true;
	return false;
}

/* With the lock held: whether another worker is about to take a device on this processor. */
static bool is_queued_on(u32 cpu)
{
	u32 i;

	for (i = 0; i < dpm_graph_pool.workers; i++) {
		const struct dpm_graph_worker *w = &dpm_graph_pool.worker[i];

		if (w->node == DPM_GRAPH_NONE && is_waiting(w, cpu))
			return true;
	}
	return false;
}

/*
 * With the lock held: where a worker that is woken should run, if this processor is about to be
 * free (@here), and if it is not. It is not if a worker that gave way here comes next.
 */
static u32 processor_for(bool here)
{
	u32 this = raw_smp_processor_id();
	u32 cpu;

	if (here && !dpm_graph_computes_on(this, NULL) && !is_queued_on(this))
		return this;
	for_each_online_cpu(cpu)
		if (cpu != this && !dpm_graph_computes_on(cpu, NULL))
			return cpu;
	return this;
}

/*
 * With the lock held: an idle worker that can be woken on this processor, or else any. One that has
 * just become idle may still be in the queue of its last processor (delayed dequeue), and would be
 * woken there.
 */
static struct dpm_graph_worker *idle_worker(u32 cpu)
{
	struct dpm_graph_worker *w;

	list_for_each_entry(w, &dpm_graph_pool.idle, idle)
		if (!READ_ONCE(w->task->on_rq) || task_cpu(w->task) == cpu)
			return w;
	return list_first_entry_or_null(&dpm_graph_pool.idle, struct dpm_graph_worker, idle);
}

/* With the lock held; the caller wakes the worker after it has released the lock. */
struct dpm_graph_worker *dpm_graph_call_worker(bool here)
{
	u32 cpu = processor_for(here);
	struct dpm_graph_worker *w = idle_worker(cpu);

	if (!w)
		return NULL;
#ifdef CONFIG_SMP
	/*
	 * A hint, as if it had run there. Without it the scheduler often wakes a worker where it
	 * ran before, also where another processor is idle.
	 */
	WRITE_ONCE(w->task->wake_cpu, cpu);
#endif
	list_del_init(&w->idle);
	w->woken_for = dpm_graph_pool.phase;
	dpm_graph_pool.graph->core.arriving++;
	dpm_graph_pool.graph->wakes++;
	return w;
}

void dpm_graph_wake_worker(struct dpm_graph_worker *w)
{
	if (w)
		complete(&w->call);
}
