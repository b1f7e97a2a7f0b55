/* SPDX-License-Identifier: GPL-2.0 */
/* The interface of scheduler and daemon; src/enforce/ext.rs mirrors it. */
#ifndef DORMOUSE_BUDGET_H
#define DORMOUSE_BUDGET_H

/* Maximum number of limited groups; group 0 has all other tasks. */
#define MAX_GROUPS 256
#define MAX_CPUS 1024

/* Map `settings`, one entry: written by the daemon. */
struct settings {
	/* Groups in use: 1 to groups - 1. */
	__u32 groups;
	/* Whether processors that would be idle run tasks without budget. */
	__u32 use_idle;
};

/* Map `limits`: written by the daemon. */
struct limit {
	/* CPU time per millisecond, in nanoseconds; 0: not limited. */
	__u64 ns_per_ms;
	/* Initial debt, so that groups take turns. */
	__u64 debt_ns;
};

/* Map `states`: written by the scheduler. */
struct state {
	/* Budget; negative: debt. */
	__s64 left_ns;
	/* CPU time used since the scheduler was loaded. */
	__u64 used_ns;
	/* How often a task was held, plus timer periods in which one was held. */
	__u64 held;
	/* Whether it was limited in the last timer period. */
	__u64 limited;
	/* Its tasks that ran with budget in the last timer period. */
	__u64 running;
	/* When a task was released that has not run yet; 0: none. */
	__u64 released_ns;
};

/* Map `record`, one entry: why the kernel ended the scheduler. */
struct record {
	__s32 kind;
	char reason[128];
	char message[256];
};

#endif
