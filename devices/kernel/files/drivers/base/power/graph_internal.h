/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of graph-ordered suspend and resume share. */
#ifndef _DPM_GRAPH_INTERNAL_H
#define _DPM_GRAPH_INTERNAL_H

#include <linux/atomic.h>
#include <linux/device.h>
#include <linux/jiffies.h>
#include <linux/pm_graph.h>
#include <linux/seq_file.h>

#include "graph.h"
#include "graph_host.h"
#include "graph_choice.h"
#include "graph_core.h"

enum dpm_graph_mode {
	/* The stock kernel: none of this code runs, nothing is measured. */
	DPM_GRAPH_OFF,
	/* One device after the other, regardless of pm_async and power/async. */
	DPM_GRAPH_LIST,
	/* Stock, with power/async set for slow devices and their dependents. */
	DPM_GRAPH_THRESHOLD,
	/* Workers that take devices as they become ready. */
	DPM_GRAPH_GRAPH,
	DPM_GRAPH_MODES
};

/* Which devices may leave list order. */
enum dpm_graph_scope {
	/* Those with permission (power/async), and those without callbacks. */
	DPM_GRAPH_SCOPE_ASYNC,
	/* Also those whose suppliers are declared by device links. */
	DPM_GRAPH_SCOPE_DECLARED,
	DPM_GRAPH_SCOPE_ALL,
	DPM_GRAPH_SCOPES
};

/* graph_sysfs.c: the values of /sys/power/pm_graph*. */
struct dpm_graph_switches {
	enum dpm_graph_mode mode;
	enum dpm_graph_scope scope;
	u32 threshold_us;
	/* Workers in addition to those that need a processor. */
	u32 sleepers;
	/* A device that takes longer counts as stuck. 0: never. */
	u32 timeout_ms;
};

extern struct dpm_graph_switches dpm_graph_switches;

/* Maximum number of workers in a phase. */
#define DPM_GRAPH_WORKERS	64

extern const char * const dpm_graph_phase_names[DPM_GRAPH_PHASES];

/* One device in one phase, for debugfs. */
struct dpm_graph_record {
	u32 index;
	u32 begin_us;
	u32 end_us;
	u16 worker;
};

/* Maximum number of devices that a worker takes at a time in list order. */
#define DPM_GRAPH_BATCH		32
#define DPM_GRAPH_BATCH_CLOSED	(-1)

/* Devices that a worker runs in list order, without the lock between them (graph_batch.c). */
struct dpm_graph_batch {
	/* So many of its devices were begun. */
	atomic_t begun;
	/* The position in list order of its first device. */
	u32 first;
	u32 count;
	struct dpm_graph_record ran[DPM_GRAPH_BATCH];
};

/* What the graph is built from. */
struct dpm_graph_edges {
	struct dpm_graph_edge *edge;
	u32 count;
	/* So many of them, the first ones, order all phases; the others only the first phase. */
	u32 lasting;
	u32 room;
};

/* One transition: the graph is built when it begins and serves all phases. */
struct dpm_graph {
	/* Latched for the transition; DPM_GRAPH_OFF between transitions. */
	enum dpm_graph_mode mode;
	u32 generation;
	struct dpm_graph_core core;
	void *memory;
	struct dpm_graph_edges edges;
	/* References to the devices, by their number in the list. */
	struct device **device;
	/* Their states. */
	struct dpm_graph_device **of;

	/* The phase that runs. */
	enum dpm_graph_phase phase;
	pm_message_t state;
	dpm_graph_down_t down;
	dpm_graph_up_t up;
	int *error;
	/* When it was entered, the graph's own construction included. */
	ktime_t entry;
	ktime_t begin;
	/* The last device is done. */
	bool done;
	u32 wakes;

	/* Where the time of this transition is noted; NULL if it says nothing of its order. */
	struct dpm_graph_took *took;
	u64 took_ns;
	u64 costs_us;
	/* The phases that are over, a bit each. */
	u32 ended;
	bool active;
};

extern struct dpm_graph dpm_graph;

static inline bool dpm_graph_is_down(enum dpm_graph_phase phase)
{
	return phase <= DPM_GRAPH_SUSPEND_NOIRQ;
}

/* The phase on the way down that a phase on the way up undoes. */
static inline enum dpm_graph_phase dpm_graph_phase_undone(enum dpm_graph_phase phase)
{
	return DPM_GRAPH_RESUME - phase;
}

/* Whether the device's callback of this phase may be called at all. */
static inline bool dpm_graph_takes_part(const struct dpm_graph *graph,
					const struct dpm_graph_device *gd)
{
	if (gd->stuck)
		return false;
	return dpm_graph_is_down(graph->phase) ||
		(gd->suspended & BIT(dpm_graph_phase_undone(graph->phase)));
}

/* graph.c: latches the mode of a transition of these devices; dpm_list_mtx is held. */
void dpm_graph_choose(struct list_head *list);
void dpm_graph_end(void);

/* graph_device.c */
ktime_t dpm_graph_run_device(struct dpm_graph *graph, u32 node, ktime_t begin);
void dpm_graph_release_waiters(struct dpm_graph *graph);

/* graph_batch.c: the workers' lock is held, except in dpm_graph_batch_next(). */
bool dpm_graph_batch_open(struct dpm_graph_batch *batch, struct dpm_graph *graph);
bool dpm_graph_batch_end(struct dpm_graph_batch *batch, struct dpm_graph *graph, u32 ran);
u32 dpm_graph_batch_close(struct dpm_graph_batch *batch, struct dpm_graph *graph);

static inline bool dpm_graph_batch_is_open(const struct dpm_graph_batch *batch)
{
	return atomic_read(&batch->begun) != DPM_GRAPH_BATCH_CLOSED;
}

/* The worker, after it has run so many devices: whether it may begin the next one. */
static inline bool dpm_graph_batch_next(struct dpm_graph_batch *batch, u32 ran)
{
	int begun = ran;

	return ran < batch->count && atomic_try_cmpxchg(&batch->begun, &begun, ran + 1);
}

/* graph_build.c: dpm_list_mtx is held. */
int dpm_graph_build_from(struct dpm_graph *graph, struct list_head *list);
/* No phase is under way. */
void dpm_graph_end_first_phase(struct dpm_graph *graph);
void dpm_graph_free(struct dpm_graph *graph);

/* How often the watcher looks, in ticks: at the one that follows the threshold. */
static inline unsigned long dpm_graph_watch_ticks(u32 threshold_us)
{
	return usecs_to_jiffies(threshold_us) + 1;
}

/* graph_worker.c */
int dpm_graph_start_workers(void);
/* No transition is under way, and none can begin. Waits for a callback that was given up. */
void dpm_graph_stop_workers(void);
void dpm_graph_run(struct dpm_graph *graph);
/* The name of a device that was given up; NULL if there is none. */
const char *dpm_graph_stuck_device(void);

/* graph_cost.c */
void dpm_graph_note_cost(struct dpm_graph_cost *cost, u32 us, u32 wait_us);
void dpm_graph_no_callback(struct dpm_graph_device *gd, enum dpm_graph_phase phase);
static inline u32 dpm_graph_cost_us(const struct device *dev, const struct dpm_graph_device *gd,
				    enum dpm_graph_phase phase)
{
	const struct dpm_graph_cost *cost = &gd->cost[phase];

	if (dev->power.no_pm_callbacks || dev->power.syscore)
		return 0;
	/* Without the time in which others held what it needs. */
	return cost->runs ? cost->busy_us + cost->wait_us : DPM_GRAPH_UNKNOWN;
}

void dpm_graph_measure(struct device *dev, enum dpm_graph_phase phase);
void dpm_graph_set_phase(enum dpm_graph_phase phase, bool measured);
/* dpm_list_mtx is held. */
void dpm_graph_spread_async(struct list_head *list, u32 threshold_us);
void dpm_graph_take_back_async(void);
/* dpm_list_mtx is held. */
extern struct dpm_graph_choice dpm_graph_choice;
void dpm_graph_weigh_anew(void);
void dpm_graph_forget_costs(void);
/* dpm_list_mtx is held; false if one is unknown. */
bool dpm_graph_add_costs(struct list_head *list, u32 *devices, u64 *costs_us);

/* graph_sysfs.c, graph_debugfs.c */
void dpm_graph_switch_off(void);
int dpm_graph_sysfs_add(struct kobject *power);
void dpm_graph_sysfs_remove(struct kobject *power);
void dpm_graph_debugfs_add(void);
void dpm_graph_debugfs_remove(void);
void dpm_graph_records_begin(struct dpm_graph *graph);
void dpm_graph_record(struct dpm_graph *graph, const struct dpm_graph_record *ran, u32 count);
void dpm_graph_records_end(struct dpm_graph *graph);

#endif
