// SPDX-License-Identifier: GPL-2.0
/*
 * Reads the CPU time and the throttled periods of many cgroups in one system call.
 *
 * `locate` finds where the kernel keeps both for one cgroup. `read_usage` reads them there for a
 * list of requests. An address is trusted only if the cgroup it belongs to is still online after
 * the reading: the serial number of its state is never used twice.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* CO-RE relocates the members when the object is loaded. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct cgroup_subsys_state {
	unsigned int flags;
	__u64 serial_nr;
};

struct task_cputime {
	unsigned long long sum_exec_runtime;
};

struct cgroup_base_stat {
	struct task_cputime cputime;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct cgroup_subsys_state *subsys[1];
	struct cgroup_base_stat bstat;
};

struct cfs_bandwidth {
	int nr_throttled;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct cfs_bandwidth cfs_bandwidth;
};

struct cpuacct {
	struct cgroup_subsys_state css;
	__u64 *cpuusage;
};

struct bpf_array {
	__u32 elem_size;
	void *pptrs[];
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__cgroup {
	struct bpf_iter_meta *meta;
	struct cgroup *cgroup;
};

#pragma clang attribute pop

enum cgroup_subsys_id {
	cpu_cgrp_id,
	cpuacct_cgrp_id,
};

/* Of an anonymous enum in include/linux/cgroup-defs.h. */
#define CSS_ONLINE 0x02
#define CSS_DYING 0x10

/* `Place` in src/enforce/bulk.rs: a value, and the state that it lives with; 0: there is none. */
struct place {
	__u64 state;
	__u64 serial;
	__u64 at;
};

/* `Places` there. */
struct places {
	/* Nanoseconds, in the cgroup itself (version 2). */
	struct place total;
	/* Nanoseconds, one word for each processor (version 1). */
	struct place accounted;
	/* Throttled periods. */
	struct place throttled;
};

static __always_inline void find(struct place *place, const struct cgroup_subsys_state *state,
				 __u64 at)
{
	place->state = (__u64)state;
	place->serial = BPF_CORE_READ(state, serial_nr);
	place->at = at;
}

static __always_inline struct cgroup_subsys_state *subsystem(struct cgroup *cgroup, __u64 id)
{
	struct cgroup_subsys_state *state = NULL;

	bpf_probe_read_kernel(&state, sizeof(state),
			      (void *)&cgroup->subsys[0] + id * sizeof(state));
	return state;
}

SEC("iter/cgroup")
int locate(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	struct cgroup_subsys_state *state;
	struct places places = {};

	/* After the last one. */
	if (!cgroup)
		return 0;
	find(&places.total, &cgroup->self, (__u64)&cgroup->bstat.cputime.sum_exec_runtime);
	state = subsystem(cgroup, bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));
	if (state) {
		struct task_group *group =
			(void *)state - bpf_core_field_offset(struct task_group, css);

		find(&places.throttled, state, (__u64)&group->cfs_bandwidth.nr_throttled);
	}
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, cpuacct_cgrp_id)) {
		state = subsystem(cgroup,
				  bpf_core_enum_value(enum cgroup_subsys_id, cpuacct_cgrp_id));
		if (state) {
			struct cpuacct *account =
				(void *)state - bpf_core_field_offset(struct cpuacct, css);

			find(&places.accounted, state, (__u64)BPF_CORE_READ(account, cpuusage));
		}
	}
	bpf_seq_write(ctx->meta->seq, &places, sizeof(places));
	return 0;
}

/* `Request` there. */
struct request {
	struct place time;
	/* Not read where its address is 0. */
	struct place throttled;
	/* 1: `time` has a word for each processor. */
	__u64 is_per_cpu;
	/* The answer. */
	__u64 cpu_ns;
	__u64 nr_throttled;
	/* 1: both are those of a cgroup that is online. */
	__u64 is_valid;
};

/* `MAX_REQUESTS` there. */
#define MAX_REQUESTS 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_REQUESTS);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

/* What `read_usage` is called with. */
struct call {
	__u32 requests;
	__u32 cpus;
};

/* `MAX_CPUS` there. */
#define MAX_CPUS 8192

/* For each processor, what lies between the address of a variable of each and that of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, __u64);
} offsets SEC(".maps");

/* Such a variable: no symbol is needed, which kernels may lack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} variable SEC(".maps");

/* Where `find_cpus` writes pointers: what is read from there is a number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} number SEC(".maps");

struct search {
	__u64 address;
	__u32 found;
};

static long find_cpu(__u32 cpu, struct search *search)
{
	__u32 zero = 0;
	__u64 *word = bpf_map_lookup_elem(&number, &zero);
	__u64 *offset = bpf_map_lookup_elem(&offsets, &cpu);
	void *own = bpf_map_lookup_percpu_elem(&variable, &zero, cpu);

	if (!word || !offset || !own)
		return 1;
	*word = (__u64)own;
	barrier();
	*offset = *word - search->address;
	search->found++;
	return 0;
}

/* Returns for how many processors it found the offset. */
SEC("syscall")
int find_cpus(struct call *call)
{
	__u32 zero = 0;
	__u64 *word = bpf_map_lookup_elem(&number, &zero);
	const struct bpf_array *array;
	struct search search = {};

	if (!word)
		return 0;
	*word = (__u64)&variable;
	barrier();
	array = (const void *)*word;
	search.address = (__u64)BPF_CORE_READ(array, pptrs[0]);
	bpf_loop(call->cpus, find_cpu, &search, 0);
	return search.found;
}

struct sum {
	__u64 at;
	__u64 ns;
	bool is_valid;
};

static long add_cpu(__u32 cpu, struct sum *sum)
{
	const __u64 *offset = bpf_map_lookup_elem(&offsets, &cpu);
	__u64 ns;

	if (!offset || bpf_probe_read_kernel(&ns, sizeof(ns), (void *)(sum->at + *offset))) {
		sum->is_valid = false;
		return 1;
	}
	sum->ns += ns;
	return 0;
}

static __always_inline bool is_online(const struct place *place)
{
	const struct cgroup_subsys_state *state = (const void *)place->state;
	unsigned int flags = BPF_CORE_READ(state, flags);

	return (flags & CSS_ONLINE) && !(flags & CSS_DYING) &&
	       BPF_CORE_READ(state, serial_nr) == place->serial;
}

static long answer(__u32 at, struct call *call)
{
	struct request *request = bpf_map_lookup_elem(&requests, &at);
	struct sum sum = {};
	int nr_throttled = 0;

	if (!request)
		return 1;
	request->is_valid = 0;
	sum.at = request->time.at;
	sum.is_valid = true;
	if (request->is_per_cpu)
		bpf_loop(call->cpus, add_cpu, &sum, 0);
	else if (bpf_probe_read_kernel(&sum.ns, sizeof(sum.ns), (void *)sum.at))
		sum.is_valid = false;
	if (request->throttled.at &&
	    bpf_probe_read_kernel(&nr_throttled, sizeof(nr_throttled),
				  (void *)request->throttled.at))
		sum.is_valid = false;
	/* Afterwards: the memory of a cgroup that is online now was its memory before. */
	if (!sum.is_valid || !is_online(&request->time))
		return 0;
	if (request->throttled.at && !is_online(&request->throttled))
		return 0;
	request->cpu_ns = sum.ns;
	request->nr_throttled = nr_throttled;
	request->is_valid = 1;
	return 0;
}

SEC("syscall")
int read_usage(struct call *call)
{
	struct call copy = *call;

	bpf_loop(copy.requests, answer, &copy, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
