/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In which order the devices of one suspend or resume phase run: plain data, no locks, no
 * allocation, no kernel interfaces. The kernel's workers (graph_worker.c) and the tests on the
 * host call the same code.
 *
 *	list order:   0   1   2   3   4        devices as the PM core's list has them
 *
 *	              0 <-- 1 <-- 3            3 is a child (or consumer) of 1: 1 is its superior,
 *	              ^     ^                  3 is a subordinate of 1
 *	              |     +---- 4
 *	              +---------- 2
 *
 *	down (suspend): 2, 3 and 4 are ready at once, then 1, then 0
 *	up (resume):    0 is ready, then 1 and 2, then 3 and 4
 *
 * A superior always comes first in the list: the driver core keeps it so, and refuses device links
 * that would close a circle, except links that are for sync_state() alone. Those order nothing and
 * are no edges here. An edge against list order is left out, so the graph has no circle.
 *
 * A phase without a slow device, in which all devices together take too little to wake another
 * worker for, runs in list order, one device after the other.
 */
#ifndef _DPM_GRAPH_CORE_H
#define _DPM_GRAPH_CORE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

/* No device. */
#define DPM_GRAPH_NONE	((u32)~0U)
/* The cost of a device is not known yet: it counts as slow. */
#define DPM_GRAPH_UNKNOWN ((u32)~0U)

enum dpm_graph_direction {
	/* Suspend: subordinates first. */
	DPM_GRAPH_DOWN,
	/* Resume: superiors first. */
	DPM_GRAPH_UP,
};

struct dpm_graph_edge {
	u32 superior;
	u32 subordinate;
};

enum dpm_graph_state {
	/* Others have to finish first. */
	DPM_GRAPH_BLOCKED,
	DPM_GRAPH_READY,
	DPM_GRAPH_RUNNING,
	DPM_GRAPH_FINISHED,
};

struct dpm_graph_node {
	/* The caller sets these before dpm_graph_begin(), from earlier phases. */
	u32 cost_us;
	/* What it takes if it has to wait for what others hold; 0: as long as otherwise. */
	u32 span_us;
	/* Part of cost_us in which the device's callback sleeps and needs no processor. */
	u32 wait_us;
	/* It took much longer when others held what it needs. */
	bool contended;
	/* Set before dpm_graph_build(): runs after all such devices before it in the list. */
	bool ordered;

	/*
	 * Microseconds from this device's start to the end of the phase along the longest path, by
	 * what the devices take if they have to wait: the priority.
	 */
	u64 level_us;
	/* Neighbours that have to finish before. */
	u32 pending;
	/* Where its neighbours begin in the arrays below; they end where the next node's begin. */
	u32 superiors;
	u32 subordinates;
	u8 state;
	/* Runs beside the workers that need a processor. */
	bool beside;
	/* It has waited for the head start of another one in this phase. */
	bool was_held;
};

struct dpm_graph_settings {
	enum dpm_graph_direction direction;
	/* A device that takes longer is slow: another worker is woken for it. */
	u32 threshold_us;
	/* Maximum number of workers that need a processor. */
	u32 cpus;
	/* Workers beside them whose device needs none. 0: one worker a processor. */
	u32 sleepers;
	/* How long, at most, a device waits until another one has a head start. 0: not at all. */
	u32 head_start_us;
};

/* Ready devices, the longest path first. */
struct dpm_graph_heap {
	/* Their paths, and in the lower half their numbers: the largest comes first. */
	u64 *key;
	u32 count;
};

/* Ready devices, first come, first served: each comes once in a phase. */
struct dpm_graph_queue {
	u32 *node;
	u32 head;
	u32 tail;
};

struct dpm_graph_core {
	u32 devices;
	u32 edges;
	/* Edges that were left out because they contradict list order. */
	u32 edges_dropped;
	/* One more than devices: the last one only ends the neighbours of the one before. */
	struct dpm_graph_node *node;
	u32 *superior;
	u32 *subordinate;

	struct dpm_graph_settings settings;
	/* Those that need no processor; the others; and those with nothing slow behind them. */
	struct dpm_graph_heap light;
	struct dpm_graph_heap others;
	struct dpm_graph_queue quick;
	/* The device that has a head start, or DPM_GRAPH_NONE; it runs. */
	u32 leader;
	/* The first check since it was taken is over. */
	bool leader_checked;
	/* Ready devices that wait for the end of it. */
	u32 *held;
	u32 held_count;
	/* How many devices of the phase have waited so. */
	u32 have_waited;
	/* Known cost of all that are ready and do not sleep. */
	u64 backlog_us;
	u32 finished;
	u32 running;
	u32 running_beside;
	/* Workers that were woken and have not taken a device since. */
	u32 arriving;
	/* The phase runs in list order; the number of devices taken. */
	bool in_list_order;
	u32 taken;
	/* No further device is started. */
	bool stopped;
};

/* The device at this position in list order, counted in this direction. */
static inline u32 dpm_graph_in_list(const struct dpm_graph_core *core, u32 position)
{
	return core->settings.direction == DPM_GRAPH_UP ? position : core->devices - 1 - position;
}

/* Bytes that dpm_graph_build() needs for this many devices and edges. */
u64 dpm_graph_bytes(u32 devices, u32 edges);

/*
 * Gives the graph its memory (zeroed by the caller, dpm_graph_bytes() of it). The caller may then
 * set node[].ordered.
 */
void dpm_graph_init(struct dpm_graph_core *core, void *memory, u32 devices, u32 edges);

/* Takes the edges in; duplicates are harmless. */
void dpm_graph_build(struct dpm_graph_core *core, const struct dpm_graph_edge *edges, u32 count);

/* Starts a phase; node[].cost_us, span_us, wait_us and contended are set. */
void dpm_graph_begin(struct dpm_graph_core *core, const struct dpm_graph_settings *settings);

/* The next device to run, now RUNNING; DPM_GRAPH_NONE if the caller has nothing to do. */
u32 dpm_graph_take(struct dpm_graph_core *core);

/*
 * In list order: takes up to @most devices for one worker, which then runs them one after the
 * other, and counts them as one that runs. Gives their number, and the position in list order of
 * the first one. Until the batch ends they count as BLOCKED.
 */
u32 dpm_graph_take_batch(struct dpm_graph_core *core, u32 most, u32 *first);

/*
 * The batch ends: of its devices the first @finished have run. With @runs the next one is running,
 * as if dpm_graph_take() had given it. The others are as if never taken.
 */
void dpm_graph_end_batch(struct dpm_graph_core *core, u32 first, u32 finished, bool runs);

/* Whether dpm_graph_take() would give a device. */
bool dpm_graph_available(const struct dpm_graph_core *core);

/* Whether the device may keep its worker from others for long. */
bool dpm_graph_may_hold(const struct dpm_graph_core *core, u32 node);

/*
 * Whether the worker that is about to run @node should wake another one. The
 * caller sets arriving when it does wake one.
 */
bool dpm_graph_wants_worker(const struct dpm_graph_core *core, u32 node);

/* The device that was taken last does not run yet: it is ready again, as if never taken. */
void dpm_graph_put_back(struct dpm_graph_core *core, u32 node);

/*
 * The caller does this regularly, more than a tick of the clock apart and half of head_start_us at
 * most. The second check of a device that has a head start ends it.
 */
void dpm_graph_check_head_start(struct dpm_graph_core *core);

/*
 * Leaves list order, because a device takes longer than ever before: the others run as they become
 * ready. Does nothing if the phase has left list order already.
 */
void dpm_graph_leave_list_order(struct dpm_graph_core *core);

/* The device has run: its dependents become ready. */
void dpm_graph_finish(struct dpm_graph_core *core, u32 node);

/* All devices have run, or the phase was stopped and nothing runs any more. */
bool dpm_graph_done(const struct dpm_graph_core *core);

#endif
