// SPDX-License-Identifier: GPL-2.0
/*
 * A scheduler in which groups have budgets of CPU time.
 *
 *   wakes up, or its slice ended
 *      │ budget left, or not limited          every millisecond, by a timer:
 *      ├──────────────▶ SHARED, by virtual     - budgets grow
 *      │                time; any CPU takes    - running tasks are charged, stopped without it
 *      │ none left          ▲                  - releases one task for each ms of budget
 *      └──────────────▶ its group's queue ─────┘
 *
 * No more limited tasks are released at once than their limits add up to: more would only wait for
 * the device together.
 *
 * The kernel returns to its own scheduler when the program that loaded this ends, or when a task
 * has waited for longer than timeout_ms.
 */
#include "compat.h"
#include "budget.h"

char LICENSE[] SEC("license") = "GPL";

#define MS 1000000LL
#define SHARED 1ULL
#define HELD(group) (0x1000ULL + (group))
#define SLICE_NS (5 * MS)
/* Maximum unused budget: what one task uses in two timer periods. */
#define MAX_LEFT_NS (2 * MS)
/* A released task that has not run after this does not wait for a CPU any more. */
#define MAX_WAIT_NS (20 * MS)
#define CLOCK_MONOTONIC 1
/* BPF_MAP_TYPE_CGRP_STORAGE; some distributions' headers lack it. */
#define CGRP_STORAGE 32

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* The group of each cgroup. */
struct {
	__uint(type, CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record);
} record SEC(".maps");

/* The limited group that runs on a CPU, and since when it is not charged. */
struct seat {
	__u64 since_ns;
	__u32 group;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct seat);
} seats SEC(".maps");

struct clock {
	struct bpf_timer timer;
	__u64 last_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clock SEC(".maps");

static __u64 vtime_now;

/* 0 if it is not limited. */
static __always_inline __u32 group_of(struct task_struct *p)
{
	__u32 zero = 0, *group;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (!set || set->groups < 2)
		return 0;
	group = bpf_cgrp_storage_get(&groups, p->cgroups->dfl_cgrp, 0, 0);
	return group ? *group : 0;
}

static __always_inline bool has_budget(__u32 group)
{
	struct limit *limit = bpf_map_lookup_elem(&limits, &group);
	struct state *state = bpf_map_lookup_elem(&states, &group);

	return !limit || !state || !limit->ns_per_ms || state->left_ns > 0;
}

static __always_inline bool uses_idle(void)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	return set && set->use_idle;
}

SEC("struct_ops/dormouse_select_cpu")
__s32 BPF_PROG(dormouse_select_cpu, struct task_struct *p, __s32 prev_cpu, __u64 wake_flags)
{
	bool idle = false;
	__s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle) {
		__u32 group = group_of(p);

		if (!group || has_budget(group) || uses_idle())
			dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, 0);
	}
	return cpu;
}

SEC("struct_ops/dormouse_enqueue")
void BPF_PROG(dormouse_enqueue, struct task_struct *p, __u64 enq_flags)
{
	__u32 group = group_of(p);
	__u64 vtime;

	if (group && !has_budget(group)) {
		struct state *state = bpf_map_lookup_elem(&states, &group);

		if (state)
			__sync_fetch_and_add(&state->held, 1);
		dsq_insert(p, HELD(group), SLICE_NS, enq_flags);
		return;
	}
	/* A task that slept does not catch up on all of that time. */
	vtime = p->scx.dsq_vtime;
	if ((__s64)(vtime - (vtime_now - SLICE_NS)) < 0)
		vtime = vtime_now - SLICE_NS;
	dsq_insert_vtime(p, SHARED, SLICE_NS, vtime, enq_flags);
	/* The CPU is about to be idle and must dispatch again. */
	if (enq_flags & SCX_ENQ_LAST)
		scx_bpf_kick_cpu(bpf_get_smp_processor_id(), 0);
}

SEC("struct_ops/dormouse_dispatch")
void BPF_PROG(dormouse_dispatch, __s32 cpu, struct task_struct *prev)
{
	__u32 group;

	if (dsq_move_to_local(SHARED) || !prev)
		return;
	/* The last task goes on with a new slice; without one it is queued as held. */
	group = group_of(prev);
	if (!group || has_budget(group) || uses_idle())
		set_slice(prev, SLICE_NS);
}

/* Charges the running group up to now. */
static __always_inline __u32 charge(struct seat *seat)
{
	__u64 now = bpf_ktime_get_ns(), since = seat->since_ns;
	__u32 group = seat->group;
	struct limit *limit;
	struct state *state;

	if (!group || now <= since)
		return group;
	/* The timer and the CPU itself may race; one of them charges. */
	if (__sync_val_compare_and_swap(&seat->since_ns, since, now) != since)
		return group;
	limit = bpf_map_lookup_elem(&limits, &group);
	state = bpf_map_lookup_elem(&states, &group);
	if (limit && state) {
		if (limit->ns_per_ms)
			__sync_fetch_and_add(&state->left_ns, -(__s64)(now - since));
		__sync_fetch_and_add(&state->used_ns, now - since);
	}
	return group;
}

SEC("struct_ops/dormouse_running")
void BPF_PROG(dormouse_running, struct task_struct *p)
{
	__u32 cpu = bpf_get_smp_processor_id(), group = group_of(p);
	__u64 vtime = p->scx.dsq_vtime;

	if ((__s64)(vtime - vtime_now) > 0)
		vtime_now = vtime;
	if (group) {
		struct seat *seat = bpf_map_lookup_elem(&seats, &cpu);
		struct state *state = bpf_map_lookup_elem(&states, &group);

		if (seat) {
			seat->since_ns = bpf_ktime_get_ns();
			seat->group = group;
		}
		if (state)
			state->released_ns = 0;
	}
}

SEC("struct_ops/dormouse_stopping")
void BPF_PROG(dormouse_stopping, struct task_struct *p, bool runnable)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct seat *seat = bpf_map_lookup_elem(&seats, &cpu);
	__u64 slice = p->scx.slice, used_ns;

	if (seat && seat->group) {
		charge(seat);
		seat->group = 0;
	}
	/* A stopped task has used its slice. */
	used_ns = SLICE_NS - (slice < SLICE_NS ? slice : SLICE_NS);
	set_dsq_vtime(p, p->scx.dsq_vtime + used_ns * 100 / (p->scx.weight ?: 1));
}

SEC("struct_ops/dormouse_enable")
void BPF_PROG(dormouse_enable, struct task_struct *p)
{
	set_dsq_vtime(p, vtime_now);
}

/*
 * The state of one timer period. It is not on the stack: the verifier would follow each number
 * through all loops there, for minutes on a slow processor.
 */
struct period {
	__u64 now_ns;
	__u64 passed_ns;
	/* Tasks of limited groups that run or are about to. */
	__s64 running;
	/* Sum of the limits of groups that want to run. */
	__u64 ns_per_ms;
	/* How many more tasks of a group to release. */
	__s64 count;
	__u32 groups;
	/* The first group to release, minus 1: in this period and in the next. */
	__u32 first;
	__u32 next;
};

/* Not static: the compiler would split it into variables that the loader does not know. */
struct period period;

/* Releases tasks of a group. */
static __noinline int release(__u32 group)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u64 vtime = vtime_now;

	if (bpf_iter_scx_dsq_new(&it, HELD(group), 0) == 0) {
		while (period.count > 0 && (p = bpf_iter_scx_dsq_next(&it))) {
			__s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

			period.count--;
			dsq_move_vtime(&it, p, SHARED, SLICE_NS, vtime - SLICE_NS);
			if (cpu >= 0)
				scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* Grows the budget of a group. */
static int grow(__u32 at, void *context)
{
	__u32 group = at + 1;
	struct limit *limit = bpf_map_lookup_elem(&limits, &group);
	struct state *state = bpf_map_lookup_elem(&states, &group);
	__u64 running, released_ns;
	__s32 nr_held;

	if (!limit || !state)
		return 1;
	running = state->running;
	state->running = 0;
	if (!limit->ns_per_ms) {
		state->limited = 0;
		state->left_ns = 0;
		return 0;
	}
	if (!state->limited) {
		state->limited = 1;
		state->left_ns = -(__s64)limit->debt_ns;
	}
	if (state->left_ns < MAX_LEFT_NS)
		__sync_fetch_and_add(&state->left_ns, limit->ns_per_ms * period.passed_ns / MS);
	released_ns = state->released_ns;
	if (released_ns && period.now_ns - released_ns < MAX_WAIT_NS)
		running++;
	period.running += running;
	nr_held = scx_bpf_dsq_nr_queued(HELD(group));
	/* A group in debt is held back all the time, not only when a task is queued. */
	if (nr_held > 0)
		__sync_fetch_and_add(&state->held, 1);
	if (running || nr_held > 0)
		period.ns_per_ms += limit->ns_per_ms;
	return 0;
}

/*
 * How many more tasks may run. On average no more run than the limits of active groups add up to,
 * so no more need to run at once; together they would only wait for the device.
 */
static __always_inline __s64 room(void)
{
	return (__s64)((period.ns_per_ms + MS / 2) / MS) + 1 - period.running;
}

/*
 * Releases tasks of a group with budget while there is room; the first group that finds none is the
 * first one in the next period. A group that is no longer limited is released in any case.
 */
static int release_group(__u32 at, void *context)
{
	__u32 group = (period.first + at) % period.groups + 1;
	struct limit *limit = bpf_map_lookup_elem(&limits, &group);
	struct state *state = bpf_map_lookup_elem(&states, &group);

	if (!limit || !state)
		return 1;
	period.count = scx_bpf_dsq_nr_queued(HELD(group));
	if (period.count <= 0)
		return 0;
	if (limit->ns_per_ms) {
		__s64 left_ns = state->left_ns, max = room(), budget;

		if (left_ns <= 0)
			return 0;
		if (max <= 0) {
			if (period.next == period.groups)
				period.next = group - 1;
			return 0;
		}
		budget = 1 + (__u64)left_ns / MS;
		if (max > budget)
			max = budget;
		if (period.count > max)
			period.count = max;
		state->released_ns = period.now_ns;
		period.running += period.count;
	}
	return release(group);
}

static int scan_cpu(__u32 cpu, void *context)
{
	struct seat *seat = bpf_map_lookup_elem(&seats, &cpu);
	struct state *state;
	__u32 group;

	if (!seat)
		return 1;
	group = charge(seat);
	if (!group)
		return 0;
	state = bpf_map_lookup_elem(&states, &group);
	if (state && has_budget(group))
		state->running++;
	else if (!uses_idle())
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

static int every_ms(void *map, int *key, struct bpf_timer *timer)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct clock *one = bpf_map_lookup_elem(&clock, &zero);

	if (!one)
		return 0;
	period.now_ns = bpf_ktime_get_ns();
	/* A late timer grants the missed budget, up to 100 periods. */
	period.passed_ns = period.now_ns - one->last_ns;
	if (period.passed_ns > 100 * MS)
		period.passed_ns = 100 * MS;
	one->last_ns = period.now_ns;
	if (set && set->groups > 1) {
		period.groups = set->groups - 1;
		period.running = 0;
		period.ns_per_ms = 0;
		period.next = period.groups;
		bpf_loop(scx_bpf_nr_cpu_ids(), scan_cpu, NULL, 0);
		bpf_loop(period.groups, grow, NULL, 0);
		bpf_loop(period.groups, release_group, NULL, 0);
		period.first = period.next;
	}
	bpf_timer_start(timer, MS, 0);
	return 0;
}

static int make_queue(__u32 at, void *context)
{
	__s32 *error = context;

	*error = scx_bpf_create_dsq(HELD(at + 1), -1);
	return *error != 0;
}

SEC("struct_ops.s/dormouse_init")
__s32 BPF_PROG(dormouse_init)
{
	__u32 zero = 0;
	struct clock *one = bpf_map_lookup_elem(&clock, &zero);
	__s32 error = scx_bpf_create_dsq(SHARED, -1);

	/* The check keeps the whole type, which the loader compares with the kernel's. */
	if (!one || error || !bpf_core_type_exists(struct cpumask))
		return error ?: -1;
	bpf_loop(MAX_GROUPS - 1, make_queue, &error, 0);
	if (error)
		return error;
	bpf_timer_init(&one->timer, &clock, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&one->timer, every_ms);
	return bpf_timer_start(&one->timer, MS, 0);
}

SEC("struct_ops/dormouse_exit")
void BPF_PROG(dormouse_exit, struct scx_exit_info *info)
{
	__u32 zero = 0;
	struct record *why = bpf_map_lookup_elem(&record, &zero);

	if (!why)
		return;
	bpf_probe_read_kernel_str(why->reason, sizeof(why->reason), info->reason);
	bpf_probe_read_kernel_str(why->message, sizeof(why->message), info->msg);
	why->kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops dormouse = {
	.select_cpu = (void *)dormouse_select_cpu,
	.enqueue = (void *)dormouse_enqueue,
	.dispatch = (void *)dormouse_dispatch,
	.running = (void *)dormouse_running,
	.stopping = (void *)dormouse_stopping,
	.enable = (void *)dormouse_enable,
	.init = (void *)dormouse_init,
	.exit = (void *)dormouse_exit,
	/* Limits hold on idle processors, too: their last task is queued when its slice ends. */
	.flags = SCX_OPS_ENQ_LAST,
	.timeout_ms = 10000,
	.name = "dormouse",
};
