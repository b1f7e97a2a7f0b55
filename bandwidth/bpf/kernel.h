/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel types and functions that the schedulers use. CO-RE relocates the members when an
 * object is loaded, so the build needs no kernel's own headers. Functions that kernels name
 * differently are in compat.h.
 */
#ifndef DORMOUSE_KERNEL_H
#define DORMOUSE_KERNEL_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup;

/* Defined, although no member is used: a forward declaration does not match the kernel's type. */
struct cpumask {
	unsigned long bits[2];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sched_ext_entity {
	__u32 weight;
	__u64 slice;
	__u64 dsq_vtime;
};

struct task_struct {
	struct css_set *cgroups;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
};

struct bpf_iter_scx_dsq {
	__u64 __opaque[6];
};

#pragma clang attribute pop

/* Only the members that the schedulers set: the loader matches them by name. */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
	void (*enqueue)(struct task_struct *p, __u64 enq_flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*enable)(struct task_struct *p);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	char name[128];
};

/* Of include/linux/sched/ext.h and kernel/sched/ext_internal.h. */
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_ENQ_LAST 0x20000000000ULL
#define SCX_KICK_IDLE 1
#define SCX_KICK_PREEMPT 2
#define SCX_OPS_ENQ_LAST 2

/* Functions that every kernel from 6.12 on has under one name. */
extern __s32 scx_bpf_select_cpu_dfl(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags,
				    bool *is_idle) __ksym;
extern __s32 scx_bpf_create_dsq(__u64 dsq_id, __s32 node) __ksym;
extern __s32 scx_bpf_dsq_nr_queued(__u64 dsq_id) __ksym;
extern void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;
extern __s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, __u64 flags) __ksym;
extern __u32 scx_bpf_nr_cpu_ids(void)__ksym;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, __u64 dsq_id, __u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

#endif
