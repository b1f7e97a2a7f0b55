/* SPDX-License-Identifier: GPL-2.0 */
/* What the scheduler and the daemon tell each other: src/enforce/ext.rs has the same. */
#ifndef DORMOUSE_BUDGET_H
#define DORMOUSE_BUDGET_H

/* Groups that can be limited at once; group 0 is everybody else. */
#define MOST_GROUPS 256
#define MOST_CPUS 1024

/* Map `settings`, one entry: written by the daemon. */
struct settings {
	/* Groups in use: 1 to below this. */
	__u32 groups;
	/* Whether processors that would be idle run who has used up its budget. */
	__u32 use_idle;
};

/* Map `limits`: written by the daemon. */
struct limit {
	/* CPU time in each millisecond, in nanoseconds; 0: not limited. */
	__u64 ns_per_ms;
	/* Debt that a limit begins with, so that groups take turns. */
	__u64 debt_ns;
};

/* Map `states`: written by the scheduler. */
struct state {
	/* Budget; below 0: debt. */
	__s64 left_ns;
	/* CPU time used since the scheduler began. */
	__u64 used_ns;
	/* How often one of its tasks was put aside, and looks of the timer that found one there. */
	__u64 held;
	/* Whether it was limited when the timer last looked. */
	__u64 limited;
	/* Its tasks that the timer has found running with budget. */
	__u64 running;
	/* When one of its tasks was let go that has not run yet; 0: none. */
	__u64 let_go_ns;
};

/* Map `record`, one entry: why the kernel ended the scheduler. */
struct record {
	__s32 kind;
	char reason[128];
	char message[256];
};

#endif
