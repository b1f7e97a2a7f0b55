// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: the workers.
 *
 * A worker takes the first ready device, runs its callback, makes its dependents ready, and takes
 * the next: there is no work item for each device, and no worker waits for neighbours. A worker
 * wakes another one only if dpm_graph_wants_worker() is true, or to run a device in its place on
 * another processor (helper_for()). The task that suspends the system wakes the first worker. Then,
 * except in works_itself(), it only watches:
 *
 *  - A worker whose callback sleeps unexpectedly no longer counts as one that needs a processor,
 *    so another worker runs. If the phase runs in list order, it leaves list order.
 *  - It ends a device's head start before those that may hold it up.
 *  - A device whose callback does not return in time is given up: the phase ends with an error
 *    that names it, and its worker stays in the callback.
 *
 * One lock guards the graph's state and the workers'. It is held for the few instructions that
 * take or finish a device, never during a callback. In list order a worker takes it once for many
 * devices (graph_batch.c).
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/debug.h>
#include <linux/smp.h>
#include <linux/suspend.h>
#include <trace/events/pm_graph.h>
#include <uapi/linux/sched/types.h>

#include "graph_pool.h"

struct dpm_graph_pool dpm_graph_pool = {
	.lock = __SPIN_LOCK_UNLOCKED(dpm_graph_pool.lock),
	.idle = LIST_HEAD_INIT(dpm_graph_pool.idle),
	.done = COMPLETION_INITIALIZER(dpm_graph_pool.done),
	.caller = { .node = DPM_GRAPH_NONE, .batch.begun = ATOMIC_INIT(DPM_GRAPH_BATCH_CLOSED) },
};

static u32 us_since(ktime_t begin, ktime_t now)
{
	return min_t(s64, ktime_us_delta(now, begin), U32_MAX - 1);
}

static void stop_phase(struct dpm_graph *graph)
{
	if (graph->core.stopped)
		return;
	graph->core.stopped = true;
	dpm_graph_release_waiters(graph);
}

/* What a worker ran last, and when. */
struct run {
	u32 phase;
	u32 node;
	ktime_t begin;
	ktime_t end;
};

/* With the lock held. */
static void end_run(struct dpm_graph_worker *w, struct dpm_graph *graph, const struct run *run)
{
	WARN_ON_ONCE(run->phase != dpm_graph_pool.phase);
	w->node = DPM_GRAPH_NONE;
	w->begin = run->end;
	w->is_sent = false;
	dpm_graph_end_wait(w);
	if (READ_ONCE(*graph->error))
		stop_phase(graph);
}

/* With the lock held. */
static void finish_device(struct dpm_graph_worker *w, struct dpm_graph *graph,
			  const struct run *run)
{
	/* No batch is open. */
	struct dpm_graph_record *ran = w->batch.ran;

	if (w->lost) {
		/* The phase continued without it and may be over: do not touch its state. */
		w->lost = false;
		pr_warn("PM: %s: the callback that was given up came back after %u ms\n",
			dpm_graph_pool.stuck, us_since(run->begin, run->end) / 1000);
		w->begin = run->end;
		module_put(THIS_MODULE);
		return;
	}
	ran->index = run->node;
	ran->worker = w->number;
	ran->begin_us = us_since(graph->begin, run->begin);
	ran->end_us = run->end == run->begin ? ran->begin_us : us_since(graph->begin, run->end);
	dpm_graph_record(graph, ran, 1);
	w->has_slept |= dpm_graph_may_hold(&graph->core, run->node);
	dpm_graph_finish(&graph->core, run->node);
	end_run(w, graph, run);
}

static __always_inline ktime_t call_device(struct dpm_graph_worker *w, struct dpm_graph *graph,
					   u32 node, ktime_t begin)
{
	trace_pm_graph_device(graph->device[node], graph->phase, w->number,
			      graph->core.node[node].cost_us, w->has_woken);
	w->has_woken = false;
	return dpm_graph_run_device(graph, node, begin);
}

/* With the lock held; releases it while the device's callback runs. */
static void run_device(struct dpm_graph_worker *w, struct dpm_graph *graph, u32 node)
{
	struct run run = { .phase = dpm_graph_pool.phase, .node = node, .begin = w->begin };

	w->node = node;
	spin_unlock(&dpm_graph_pool.lock);
	run.end = call_device(w, graph, node, run.begin);
	spin_lock(&dpm_graph_pool.lock);
	finish_device(w, graph, &run);
}

/*
 * Whether another worker should have this processor: one whose device has slept may wait for it to
 * make others ready. Where the kernel preempts lazily nothing else would tell for a tick or two.
 */
static __always_inline bool is_in_the_way(void)
{
	bool is_due = need_resched();

#ifdef TIF_NEED_RESCHED_LAZY
	is_due = is_due || test_thread_flag(TIF_NEED_RESCHED_LAZY);
#endif
	return is_due && dpm_graph_waits_on(raw_smp_processor_id());
}

/* Without the lock: devices of the batch, from the worker's begin on. Returns how many. */
static u32 call_batch(struct dpm_graph_worker *w, struct dpm_graph *graph, struct run *run)
{
	struct dpm_graph_batch *batch = &w->batch;
	u32 us = us_since(graph->begin, w->begin);
	u32 ran = 0;

	run->end = w->begin;
	while (dpm_graph_batch_next(batch, ran)) {
		struct dpm_graph_record *record = &batch->ran[ran];

		run->node = dpm_graph_in_list(&graph->core, batch->first + ran);
		run->begin = run->end;
		run->end = call_device(w, graph, run->node, run->begin);
		record->index = run->node;
		record->worker = w->number;
		record->begin_us = us;
		if (run->end != run->begin)
			us = us_since(graph->begin, run->end);
		record->end_us = us;
		ran++;
		if (READ_ONCE(*graph->error))
			break;
		/* The watcher may read it as soon as the next one has begun. */
		WRITE_ONCE(w->begin, run->end);
	}
	return ran;
}

/* With the lock held; releases it while devices run. False if there are none. */
static bool run_batch(struct dpm_graph_worker *w, struct dpm_graph *graph)
{
	struct run run = { .phase = dpm_graph_pool.phase };
	u32 ran;

	if (!dpm_graph_batch_open(&w->batch, graph))
		return false;
	w->node = dpm_graph_in_list(&graph->core, w->batch.first);
	spin_unlock(&dpm_graph_pool.lock);
	ran = call_batch(w, graph, &run);
	spin_lock(&dpm_graph_pool.lock);
	if (dpm_graph_batch_end(&w->batch, graph, ran))
		end_run(w, graph, &run);
	else if (ran)
		finish_device(w, graph, &run);
	return true;
}

/* With the lock held: from here on @w->node is the device that it runs. */
static void close_batch(struct dpm_graph_worker *w, struct dpm_graph *graph)
{
	if (dpm_graph_batch_is_open(&w->batch))
		w->node = dpm_graph_batch_close(&w->batch, graph);
}

/*
 * With the lock held; releases it. The worker that is woken, or one whose device has slept, may run
 * on this processor at once, and this one perhaps not for a while. So this one holds no device
 * meanwhile.
 */
static void give_way(struct dpm_graph_worker *w, struct dpm_graph_worker *helper)
{
	spin_unlock(&dpm_graph_pool.lock);
	dpm_graph_wake_worker(helper);
	if (is_in_the_way())
		schedule();
	spin_lock(&dpm_graph_pool.lock);
	w->begin = ktime_get();
}

/* With the lock held: whether @w had better leave this device to a worker on another processor. */
static bool is_better_elsewhere(const struct dpm_graph_worker *w,
				const struct dpm_graph_core *core, u32 node)
{
	const struct dpm_graph_node *n = &core->node[node];

	if (n->beside || core->arriving || w->is_sent)
		return false;
	/* A quick device is worth it only where the processor may have been lost. */
	if (!w->has_slept && n->cost_us <= core->settings.threshold_us)
		return false;
	return dpm_graph_computes_on(raw_smp_processor_id(), w);
}

/* With the lock held: the worker to wake before @w runs this device, if any; or @instead of it. */
static struct dpm_graph_worker *helper_for(struct dpm_graph_worker *w, struct dpm_graph *graph,
					   u32 node, bool *instead)
{
	const struct dpm_graph_node *n = &graph->core.node[node];
	struct dpm_graph_worker *helper;

	*instead = is_better_elsewhere(w, &graph->core, node);
	w->has_slept = false;
	if (!*instead && !dpm_graph_wants_worker(&graph->core, node))
		return NULL;
	helper = dpm_graph_call_worker(!*instead && n->beside && 2 * (u64)n->wait_us > n->cost_us);
	if (helper)
		helper->is_sent = *instead;
	return helper;
}

/* With the lock held. */
static void work(struct dpm_graph_worker *w)
{
	struct dpm_graph *graph;

	w->has_woken = false;
	w->has_slept = false;
	w->begin = ktime_get();
	while ((graph = dpm_graph_pool.graph)) {
		struct dpm_graph_worker *helper;
		bool instead;
		u32 node;

		if (is_in_the_way()) {
			give_way(w, NULL);
			continue;
		}
		if (graph->core.in_list_order && run_batch(w, graph))
			continue;
		if (dpm_graph_pool.waiting)
			dpm_graph_count_awake(graph);
		node = dpm_graph_take(&graph->core);
		if (node == DPM_GRAPH_NONE) {
			if (dpm_graph_sees_sleeper(w, graph))
				continue;
			break;
		}
		helper = helper_for(w, graph, node, &instead);
		if (helper) {
			dpm_graph_put_back(&graph->core, node);
			w->has_woken = true;
			give_way(w, helper);
			if (instead)
				break;
			continue;
		}
		run_device(w, graph, node);
	}
	/* Another worker may have seen it before. */
	graph = dpm_graph_pool.graph;
	if (graph && dpm_graph_done(&graph->core) && !graph->done) {
		graph->done = true;
		complete_on_current_cpu(&dpm_graph_pool.done);
	}
}

/*
 * A worker whose device has slept gets a processor soon, also from one whose device computes: what
 * waits for it may take longer.
 */
static void ask_for_short_turns(void)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_NORMAL,
		/* The shortest that the scheduler knows. */
		.sched_runtime = 100 * NSEC_PER_USEC,
	};

	sched_setattr_nocheck(current, &attr);
}

static int worker_main(void *data)
{
	struct dpm_graph_worker *w = data;

	ask_for_short_turns();
	spin_lock(&dpm_graph_pool.lock);
	for (;;) {
		list_add(&w->idle, &dpm_graph_pool.idle);
		spin_unlock(&dpm_graph_pool.lock);
		wait_for_completion_state(&w->call, TASK_IDLE);
		if (READ_ONCE(dpm_graph_pool.leaving))
			return 0;
		spin_lock(&dpm_graph_pool.lock);
		if (dpm_graph_pool.graph && w->woken_for == dpm_graph_pool.phase)
			dpm_graph_pool.graph->core.arriving--;
		work(w);
	}
	return 0;
}

/* As many as the switches allow; more if these are raised later. */
int dpm_graph_start_workers(void)
{
	u32 wanted = min_t(u32, num_possible_cpus() + dpm_graph_switches.sleepers,
			   DPM_GRAPH_WORKERS);

	while (dpm_graph_pool.workers < wanted) {
		struct dpm_graph_worker *w = &dpm_graph_pool.worker[dpm_graph_pool.workers];
		struct task_struct *task;

		w->number = dpm_graph_pool.workers;
		w->node = DPM_GRAPH_NONE;
		atomic_set(&w->batch.begun, DPM_GRAPH_BATCH_CLOSED);
		INIT_LIST_HEAD(&w->idle);
		init_completion(&w->call);
		task = kthread_create(worker_main, w, "pm_graph/%u", w->number);
		if (IS_ERR(task))
			return PTR_ERR(task);
		/* It may end before it is asked to. */
		w->task = get_task_struct(task);
		dpm_graph_pool.workers++;
		wake_up_process(task);
	}
	return 0;
}

void dpm_graph_stop_workers(void)
{
	u32 i;

	WRITE_ONCE(dpm_graph_pool.leaving, true);
	for (i = 0; i < dpm_graph_pool.workers; i++) {
		complete(&dpm_graph_pool.worker[i].call);
		kthread_stop_put(dpm_graph_pool.worker[i].task);
	}
	dpm_graph_pool.workers = 0;
}

const char *dpm_graph_stuck_device(void)
{
	return dpm_graph_pool.stuck[0] ? dpm_graph_pool.stuck : NULL;
}

/* With the lock held: the phase continues as if the device had failed. */
static void give_up(struct dpm_graph_worker *w, struct dpm_graph *graph)
{
	struct device *dev = graph->device[w->node];

	graph->of[w->node]->stuck = true;
	strscpy(dpm_graph_pool.stuck, dev_name(dev));
	w->lost = true;
	/* Its worker runs code of ours when it comes back. */
	__module_get(THIS_MODULE);
	dpm_graph_finish(&graph->core, w->node);
	w->node = DPM_GRAPH_NONE;
	dpm_graph_end_wait(w);
	if (graph->core.settings.direction == DPM_GRAPH_DOWN) {
		*graph->error = -ETIMEDOUT;
		stop_phase(graph);
	}
}

static void tell_of_stuck(struct dpm_graph_worker *w, struct dpm_graph *graph)
{
	pr_err("PM: %s: no end of its %s callback within %u ms: given up\n", dpm_graph_pool.stuck,
	       dpm_graph_phase_names[graph->phase], dpm_graph_switches.timeout_ms);
	sched_show_task(w->task);
	dpm_save_failed_dev(dpm_graph_pool.stuck);
}

static bool is_overdue(const struct dpm_graph_worker *w)
{
	s64 ms = ktime_ms_delta(ktime_get(), READ_ONCE(w->begin));

	return dpm_graph_switches.timeout_ms && ms >= dpm_graph_switches.timeout_ms;
}

/*
 * A driver calls device_pm_wait_for_dev(). A device without permission to be asynchronous has to
 * wait, too, unless both devices run in list order.
 */
bool dpm_graph_block(struct device *subordinate, struct device *dev)
{
	struct dpm_graph_pool *pool = &dpm_graph_pool;
	struct dpm_graph *graph = &dpm_graph;
	struct dpm_graph_worker *helper = NULL;
	u32 i;

	if (!dpm_graph_is_ready(subordinate) || !dpm_graph_is_ready(dev))
		return false;
	if (graph->core.node[dpm_graph_of(subordinate)->index].ordered &&
	    graph->core.node[dpm_graph_of(dev)->index].ordered)
		return false;

	spin_lock(&pool->lock);
	for (i = 0; i <= pool->workers; i++) {
		struct dpm_graph_worker *w = i < pool->workers ? &pool->worker[i] : &pool->caller;

		if (w->task == current && w->node != DPM_GRAPH_NONE && pool->graph) {
			close_batch(w, graph);
			dpm_graph_put_beside(w, graph);
			if (dpm_graph_available(&graph->core))
				helper = dpm_graph_call_worker(true);
		}
	}
	spin_unlock(&pool->lock);
	dpm_graph_wake_worker(helper);
	return true;
}

/* With the lock held: the watcher, when no device has finished for a while. */
static struct dpm_graph_worker *look_after(struct dpm_graph *graph, struct dpm_graph_worker **stuck)
{
	struct dpm_graph_core *core = &graph->core;
	u32 i;

	*stuck = NULL;
	dpm_graph_check_head_start(core);
	for (i = 0; i < dpm_graph_pool.workers; i++) {
		struct dpm_graph_worker *w = &dpm_graph_pool.worker[i];

		if (w->node == DPM_GRAPH_NONE || !(dpm_graph_is_asleep(w) || is_overdue(w)))
			continue;
		/* It may have begun other devices meanwhile. */
		close_batch(w, graph);
		if (w->node == DPM_GRAPH_NONE)
			continue;
		if (is_overdue(w)) {
			give_up(w, graph);
			*stuck = w;
			break;
		}
		if (dpm_graph_is_asleep(w) && core->running_beside < core->settings.sleepers)
			dpm_graph_begin_wait(w, graph);
	}
	return dpm_graph_available(core) && !core->arriving ? dpm_graph_call_worker(true) : NULL;
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
	const long ticks = dpm_graph_watch_ticks(graph->core.settings.threshold_us);
	struct dpm_graph_worker *helper, *stuck;

	if (!graph->core.devices)
		return;
	spin_lock(&dpm_graph_pool.lock);
	dpm_graph_pool.phase++;
	reinit_completion(&dpm_graph_pool.done);
	dpm_graph_pool.graph = graph;
	if (works_itself(graph)) {
		dpm_graph_pool.caller.task = current;
		dpm_graph_pool.caller.number = dpm_graph_pool.workers;
		work(&dpm_graph_pool.caller);
		dpm_graph_pool.caller.task = NULL;
	}
	helper = dpm_graph_available(&graph->core) ? dpm_graph_call_worker(true) : NULL;
	spin_unlock(&dpm_graph_pool.lock);
	/* This processor is about to be idle; another one would have to be woken. */
	if (helper)
		complete_on_current_cpu(&helper->call);
	for (;;) {
		wait_for_completion_timeout(&dpm_graph_pool.done, ticks);
		spin_lock(&dpm_graph_pool.lock);
		if (dpm_graph_done(&graph->core))
			break;
		helper = look_after(graph, &stuck);
		spin_unlock(&dpm_graph_pool.lock);
		dpm_graph_wake_worker(helper);
		if (stuck)
			tell_of_stuck(stuck, graph);
	}
	dpm_graph_pool.graph = NULL;
	spin_unlock(&dpm_graph_pool.lock);
}
