// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: the workers.
 *
 * A worker takes the first ready device, runs its callback, makes its dependents ready, and takes
 * the next: there is no work item for each device, and no worker waits for neighbours. A worker
 * wakes another one only if dpm_graph_wants_worker() is true. The task that suspends the system
 * wakes the first worker. Then, except in works_itself(), it only watches:
 *
 *  - A worker whose callback sleeps unexpectedly no longer counts as one that needs a processor,
 *    so another worker runs. If the phase runs in list order, it leaves list order.
 *  - A device whose callback does not return in time is given up: the phase ends with an error
 *    that names it, and its worker stays in the callback.
 *
 * One lock guards the graph's state and the workers'. It is held for the few instructions that
 * take or finish a device, never during a callback.
 */
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/debug.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/suspend.h>
#include <trace/events/pm_graph.h>

#include "graph_internal.h"

struct worker {
	struct task_struct *task;
	struct list_head idle;
	u16 number;
	struct completion call;
	/* The phase for which it was woken: a late worker must not count for the next one. */
	u32 woken_for;
	/* The device that it runs; DPM_GRAPH_NONE if none. */
	u32 node;
	/* When that device began: the end of the one before. */
	ktime_t begin;
	/* Its device was given up; the worker is lost until the callback returns. */
	bool lost;
};

static struct {
	/* Guards all of this, and the state of the graph that runs. */
	spinlock_t lock;
	struct worker worker[DPM_GRAPH_WORKERS];
	u32 workers;
	/* The task that suspends the system, if it runs devices itself. */
	struct worker caller;
	/* The last one that became idle first: its stack is in a cache. */
	struct list_head idle;
	/* NULL between phases. */
	struct dpm_graph *graph;
	u32 phase;
	/* What the watcher waits for. */
	struct completion done;
	/* Workers end instead of waiting for a phase. */
	bool leaving;
	char stuck[64];
} pool = {
	.lock = __SPIN_LOCK_UNLOCKED(pool.lock),
	.idle = LIST_HEAD_INIT(pool.idle),
	.done = COMPLETION_INITIALIZER(pool.done),
	.caller = { .node = DPM_GRAPH_NONE },
};

static u32 us_since(ktime_t begin, ktime_t now)
{
	return min_t(s64, ktime_us_delta(now, begin), U32_MAX - 1);
}

/* With the lock held; the caller wakes the worker after it has released the lock. */
static struct worker *call_worker(void)
{
	struct worker *w = list_first_entry_or_null(&pool.idle, struct worker, idle);

	if (!w)
		return NULL;
	list_del_init(&w->idle);
	w->woken_for = pool.phase;
	pool.graph->core.arriving++;
	pool.graph->wakes++;
	return w;
}

static void wake_worker(struct worker *w)
{
	if (w)
		complete(&w->call);
}

static void stop_phase(struct dpm_graph *graph)
{
	if (graph->core.stopped)
		return;
	graph->core.stopped = true;
	dpm_graph_release_waiters(graph);
}

/* With the lock held; releases it while the device's callback runs. */
static void run_device(struct worker *w, struct dpm_graph *graph, u32 node)
{
	struct device *dev = graph->device[node];
	struct worker *helper = NULL;
	u32 phase = pool.phase;
	ktime_t end;

	w->node = node;
	if (dpm_graph_wants_worker(&graph->core, node))
		helper = call_worker();
	spin_unlock(&pool.lock);

	wake_worker(helper);
	/* A worker whose device has slept may wait for this processor to make others ready. */
	cond_resched();
	trace_pm_graph_device(dev, graph->phase, w->number, graph->core.node[node].cost_us,
			      helper);
	/* Without a callback no time passes that is worth reading the clock. */
	end = dpm_graph_run_device(graph, node) ? ktime_get() : w->begin;

	spin_lock(&pool.lock);
	if (w->lost) {
		/* The phase continued without it and may be over: do not touch its state. */
		w->lost = false;
		pr_warn("PM: %s: the callback that was given up came back after %u ms\n",
			pool.stuck, us_since(w->begin, end) / 1000);
		w->begin = end;
		module_put(THIS_MODULE);
		return;
	}
	WARN_ON_ONCE(phase != pool.phase);
	w->node = DPM_GRAPH_NONE;
	dpm_graph_record(graph, node, us_since(graph->begin, w->begin),
			 us_since(graph->begin, end), w->number);
	w->begin = end;
	dpm_graph_finish(&graph->core, node);
	if (READ_ONCE(*graph->error))
		stop_phase(graph);
}

/* With the lock held. */
static void work(struct worker *w)
{
	struct dpm_graph *graph;
	u32 node;

	w->begin = ktime_get();
	if (pool.graph && !pool.graph->first)
		pool.graph->first = w->begin;
	while ((graph = pool.graph)) {
		node = dpm_graph_take(&graph->core);
		if (node == DPM_GRAPH_NONE)
			break;
		run_device(w, graph, node);
	}
	if (graph && dpm_graph_done(&graph->core)) {
		graph->last = ktime_get();
		complete_on_current_cpu(&pool.done);
	}
}

static int worker_main(void *data)
{
	struct worker *w = data;

	spin_lock(&pool.lock);
	for (;;) {
		list_add(&w->idle, &pool.idle);
		spin_unlock(&pool.lock);
		wait_for_completion_state(&w->call, TASK_IDLE);
		if (READ_ONCE(pool.leaving))
			return 0;
		spin_lock(&pool.lock);
		if (pool.graph && w->woken_for == pool.phase)
			pool.graph->core.arriving--;
		work(w);
	}
	return 0;
}

/* As many as the switches allow; more if these are raised later. */
int dpm_graph_start_workers(void)
{
	u32 wanted = min_t(u32, num_possible_cpus() + dpm_graph_switches.sleepers,
			   DPM_GRAPH_WORKERS);

	while (pool.workers < wanted) {
		struct worker *w = &pool.worker[pool.workers];
		struct task_struct *task;

		w->number = pool.workers;
		w->node = DPM_GRAPH_NONE;
		INIT_LIST_HEAD(&w->idle);
		init_completion(&w->call);
		task = kthread_create(worker_main, w, "pm_graph/%u", w->number);
		if (IS_ERR(task))
			return PTR_ERR(task);
		/* It may end before it is asked to. */
		w->task = get_task_struct(task);
		pool.workers++;
		wake_up_process(task);
	}
	return 0;
}

void dpm_graph_stop_workers(void)
{
	u32 i;

	WRITE_ONCE(pool.leaving, true);
	for (i = 0; i < pool.workers; i++) {
		complete(&pool.worker[i].call);
		kthread_stop_put(pool.worker[i].task);
	}
	pool.workers = 0;
}

const char *dpm_graph_stuck_device(void)
{
	return pool.stuck[0] ? pool.stuck : NULL;
}

/* With the lock held: the phase continues as if the device had failed. */
static void give_up(struct worker *w, struct dpm_graph *graph)
{
	struct device *dev = graph->device[w->node];

	graph->of[w->node]->stuck = true;
	strscpy(pool.stuck, dev_name(dev));
	w->lost = true;
	/* Its worker runs code of ours when it comes back. */
	__module_get(THIS_MODULE);
	dpm_graph_finish(&graph->core, w->node);
	w->node = DPM_GRAPH_NONE;
	if (graph->core.settings.direction == DPM_GRAPH_DOWN) {
		*graph->error = -ETIMEDOUT;
		stop_phase(graph);
	}
}

static void tell_of_stuck(struct worker *w, struct dpm_graph *graph)
{
	pr_err("PM: %s: no end of its %s callback within %u ms: given up\n", pool.stuck,
	       dpm_graph_phase_names[graph->phase], dpm_graph_switches.timeout_ms);
	sched_show_task(w->task);
	dpm_save_failed_dev(pool.stuck);
}

/* Whether the worker waits for something inside its callback. */
static bool is_asleep(const struct worker *w)
{
	return READ_ONCE(w->task->__state) != TASK_RUNNING;
}

/* With the lock held: a worker that sleeps no longer counts as needing a processor. */
static void put_beside(struct worker *w, struct dpm_graph *graph)
{
	struct dpm_graph_core *core = &graph->core;

	dpm_graph_leave_list_order(core);
	if (core->node[w->node].beside)
		return;
	core->node[w->node].beside = true;
	core->running_beside++;
}

/*
 * A driver calls device_pm_wait_for_dev(). A device without permission to be asynchronous has to
 * wait, too, unless both devices run in list order.
 */
bool dpm_graph_block(struct device *subordinate, struct device *dev)
{
	struct dpm_graph *graph = &dpm_graph;
	struct worker *helper = NULL;
	u32 i;

	if (!dpm_graph_is_ready(subordinate) || !dpm_graph_is_ready(dev))
		return false;
	if (graph->core.node[dpm_graph_of(subordinate)->index].ordered &&
	    graph->core.node[dpm_graph_of(dev)->index].ordered)
		return false;

	spin_lock(&pool.lock);
	for (i = 0; i <= pool.workers; i++) {
		struct worker *w = i < pool.workers ? &pool.worker[i] : &pool.caller;

		if (w->task == current && w->node != DPM_GRAPH_NONE && pool.graph) {
			put_beside(w, graph);
			if (dpm_graph_available(&graph->core))
				helper = call_worker();
		}
	}
	spin_unlock(&pool.lock);
	wake_worker(helper);
	return true;
}

/* With the lock held: the watcher, when no device has finished for a while. */
static struct worker *look_after(struct dpm_graph *graph, struct worker **stuck)
{
	struct dpm_graph_core *core = &graph->core;
	ktime_t now = ktime_get();
	u32 i;

	*stuck = NULL;
	for (i = 0; i < pool.workers; i++) {
		struct worker *w = &pool.worker[i];
		u32 ms;

		if (w->node == DPM_GRAPH_NONE)
			continue;
		ms = us_since(w->begin, now) / 1000;
		if (dpm_graph_switches.timeout_ms && ms >= dpm_graph_switches.timeout_ms) {
			give_up(w, graph);
			*stuck = w;
			break;
		}
		if (is_asleep(w) && core->running_beside < core->settings.sleepers)
			put_beside(w, graph);
	}
	return dpm_graph_available(core) && !core->arriving ? call_worker() : NULL;
}

/*
 * A task that runs devices cannot watch. So only if no device is ever given up, and one worker is
 * enough: this saves two task switches per phase.
 */
static bool works_itself(const struct dpm_graph *graph)
{
	return !READ_ONCE(dpm_graph_switches.timeout_ms) && graph->core.in_list_order;
}

/* Runs the phase that dpm_graph_begin() has started; returns when it is over. */
void dpm_graph_run(struct dpm_graph *graph)
{
	/* The clock tick that follows the threshold. */
	const long tick = usecs_to_jiffies(graph->core.settings.threshold_us) + 1;
	struct worker *helper, *stuck;

	if (!graph->core.devices)
		return;
	spin_lock(&pool.lock);
	pool.phase++;
	reinit_completion(&pool.done);
	pool.graph = graph;
	if (works_itself(graph)) {
		pool.caller.task = current;
		pool.caller.number = pool.workers;
		work(&pool.caller);
		pool.caller.task = NULL;
	}
	helper = dpm_graph_available(&graph->core) ? call_worker() : NULL;
	spin_unlock(&pool.lock);
	/* This processor is about to be idle; another one would have to be woken. */
	if (helper)
		complete_on_current_cpu(&helper->call);
	for (;;) {
		wait_for_completion_timeout(&pool.done, tick);
		spin_lock(&pool.lock);
		if (dpm_graph_done(&graph->core))
			break;
		helper = look_after(graph, &stuck);
		spin_unlock(&pool.lock);
		wake_worker(helper);
		if (stuck)
			tell_of_stuck(stuck, graph);
	}
	pool.graph = NULL;
	spin_unlock(&pool.lock);
}
