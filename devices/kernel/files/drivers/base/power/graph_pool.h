/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Graph-ordered suspend and resume: what the workers share. graph_worker.c has their work,
 * graph_wake.c says which one to wake where, graph_asleep.c which ones need a processor.
 */
#ifndef _DPM_GRAPH_POOL_H
#define _DPM_GRAPH_POOL_H

#include <linux/completion.h>
#include <linux/spinlock.h>

#include "graph_internal.h"

struct dpm_graph_worker {
	struct task_struct *task;
	struct list_head idle;
	u16 number;
	struct completion call;
	/* The phase for which it was woken: a late worker must not count for the next one. */
	u32 woken_for;
	/* The device that it runs, or the first one of an open batch; DPM_GRAPH_NONE if none. */
	u32 node;
	struct dpm_graph_batch batch;
	/* When its device began: the end of the one before. A batch writes it without the lock. */
	ktime_t begin;
	/* It has woken another one since its last device. */
	bool has_woken;
	/* Its last device slept: another worker may have taken its processor meanwhile. */
	bool has_slept;
	/* It was woken to run a device in the place of another worker. */
	bool is_sent;
	/* Its device sleeps unexpectedly, and needs no processor until it is awake. */
	bool waits;
	/* Its device was given up; the worker is lost until the callback returns. */
	bool lost;
};

struct dpm_graph_pool {
	/* Guards all of this, and the state of the graph that runs. */
	spinlock_t lock;
	struct dpm_graph_worker worker[DPM_GRAPH_WORKERS];
	u32 workers;
	/* How many of them wait. */
	u32 waiting;
	/* The task that suspends the system, if it runs devices itself. */
	struct dpm_graph_worker caller;
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
};

extern struct dpm_graph_pool dpm_graph_pool;

/* graph_wake.c; the lock is held. dpm_graph_waits_on() does without, the last one has to. */
bool dpm_graph_computes_on(u32 cpu, const struct dpm_graph_worker *except);
bool dpm_graph_waits_on(u32 cpu);
struct dpm_graph_worker *dpm_graph_call_worker(bool here);
void dpm_graph_wake_worker(struct dpm_graph_worker *w);

/* graph_asleep.c; the lock is held. */
bool dpm_graph_is_asleep(const struct dpm_graph_worker *w);
void dpm_graph_put_beside(struct dpm_graph_worker *w, struct dpm_graph *graph);
void dpm_graph_begin_wait(struct dpm_graph_worker *w, struct dpm_graph *graph);
void dpm_graph_end_wait(struct dpm_graph_worker *w);
void dpm_graph_count_awake(struct dpm_graph *graph);
bool dpm_graph_sees_sleeper(const struct dpm_graph_worker *except, struct dpm_graph *graph);

#endif
