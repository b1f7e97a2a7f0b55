/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of graph-ordered suspend and resume in each device (part of struct dev_pm_info). */
#ifndef _LINUX_PM_GRAPH_H
#define _LINUX_PM_GRAPH_H

#include <linux/types.h>

enum dpm_graph_phase {
	DPM_GRAPH_SUSPEND,
	DPM_GRAPH_SUSPEND_LATE,
	DPM_GRAPH_SUSPEND_NOIRQ,
	DPM_GRAPH_RESUME_NOIRQ,
	DPM_GRAPH_RESUME_EARLY,
	DPM_GRAPH_RESUME,
	DPM_GRAPH_PHASES
};

/* Of the phases, in that order: in files and in the kernel's log. */
#define DPM_GRAPH_PHASE_NAMES {				\
	[DPM_GRAPH_SUSPEND] = "suspend",		\
	[DPM_GRAPH_SUSPEND_LATE] = "suspend_late",	\
	[DPM_GRAPH_SUSPEND_NOIRQ] = "suspend_noirq",	\
	[DPM_GRAPH_RESUME_NOIRQ] = "resume_noirq",	\
	[DPM_GRAPH_RESUME_EARLY] = "resume_early",	\
	[DPM_GRAPH_RESUME] = "resume",			\
}

/* How many runs are remembered one by one. */
#define DPM_GRAPH_RECENT	8
/* For so many runs a device counts as one that others hold up, after it last was. */
#define DPM_GRAPH_CONTENDED	32

/* What a device's callback in one phase takes, in microseconds. */
struct dpm_graph_cost {
	u32 worst_us;
	/* The processor's: a moving average; lower values count a half, higher ones an eighth. */
	u32 busy_us;
	/* Its own sleep: the minimum of the recent runs. */
	u32 wait_us;
	/* All of it, while others hold what it needs, too: the maximum of the recent runs. */
	u32 span_us;
	u32 last_us;
	u32 runs;
	/* For so many more runs it counts as one that others hold up. */
	u32 contended;
	struct {
		u32 wait_us;
		u32 span_us;
	} recent[DPM_GRAPH_RECENT];
};

struct dpm_graph_device {
	struct dpm_graph_cost cost[DPM_GRAPH_PHASES];
	/* Its number in the graph of this transition, if the generations match. */
	u32 index;
	u32 generation;
	/* While its callback runs. */
	u64 start_ns;
	u64 start_cpu_ns;
	/* How often its task had slept by then. */
	unsigned long start_sleeps;
	/* Of its last callback that succeeded; 0: none has since the one that was called last. */
	u64 end_ns;
	/* Phases of the way down that it was taken through in this transition: a bit each. */
	u8 suspended;
	/* The callback of this phase was called. */
	bool called;
	/* The phase of the callback that runs. */
	u8 phase;
	/* It is left suspended throughout this transition (direct-complete). */
	bool left_suspended;
	/* During the search for the slow devices' neighbours. */
	u8 spread;
	/* The threshold variant set its power.async_suspend. */
	bool made_async;
	/* Its callback did not return: no transition touches it any more. */
	bool stuck;
};

#endif
