/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kernel functions whose names or arguments differ between kernels, from Linux 6.12 on.
 *
 *   since   insert, move                            slice and virtual time of a task
 *   6.12    scx_bpf_dispatch*(), scx_bpf_consume()  written directly
 *   6.13    scx_bpf_dsq_insert*(), _move*()         written directly
 *   6.19    ..._insert___v2(), __..._insert_vtime() scx_bpf_task_set_slice(), _set_dsq_vtime()
 *   7.1     scx_bpf_dsq_move_to_local___v2()
 *
 * Every function here is a weak symbol. The loader resolves those that the kernel has with the
 * arguments declared here; the verifier removes the branches of all others. So one object loads on
 * all of these kernels, newest name first. The loader drops the last "___" and what follows from a
 * name before it looks the name up.
 */
#ifndef DORMOUSE_COMPAT_H
#define DORMOUSE_COMPAT_H

#include "kernel.h"

/* The kernel's layout: __scx_bpf_dsq_insert_vtime() has more arguments than registers. */
struct insert_vtime_arguments {
	__u64 dsq_id;
	__u64 slice;
	__u64 vtime;
	__u64 enq_flags;
};

extern bool scx_bpf_dsq_insert___v2___now(struct task_struct *p, __u64 dsq_id, __u64 slice,
					  __u64 enq_flags) __ksym __weak;
extern void scx_bpf_dsq_insert___v6_13(struct task_struct *p, __u64 dsq_id, __u64 slice,
				       __u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch___v6_12(struct task_struct *p, __u64 dsq_id, __u64 slice,
				     __u64 enq_flags) __ksym __weak;

static __always_inline void dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice,
				       __u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___now))
		scx_bpf_dsq_insert___v2___now(p, dsq_id, slice, enq_flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert___v6_13))
		scx_bpf_dsq_insert___v6_13(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dispatch___v6_12(p, dsq_id, slice, enq_flags);
}

extern bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				       struct insert_vtime_arguments *args) __ksym __weak;
extern void scx_bpf_dsq_insert_vtime___v6_13(struct task_struct *p, __u64 dsq_id, __u64 slice,
					     __u64 vtime, __u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch_vtime___v6_12(struct task_struct *p, __u64 dsq_id, __u64 slice,
					   __u64 vtime, __u64 enq_flags) __ksym __weak;

static __always_inline void dsq_insert_vtime(struct task_struct *p, __u64 dsq_id, __u64 slice,
					     __u64 vtime, __u64 enq_flags)
{
	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime)) {
		struct insert_vtime_arguments args = {
			.dsq_id = dsq_id,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime___v6_13)) {
		scx_bpf_dsq_insert_vtime___v6_13(p, dsq_id, slice, vtime, enq_flags);
	} else {
		scx_bpf_dispatch_vtime___v6_12(p, dsq_id, slice, vtime, enq_flags);
	}
}

extern bool scx_bpf_dsq_move_to_local___v2___now(__u64 dsq_id, __u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local___v6_13(__u64 dsq_id) __ksym __weak;
extern bool scx_bpf_consume___v6_12(__u64 dsq_id) __ksym __weak;

static __always_inline bool dsq_move_to_local(__u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___now))
		return scx_bpf_dsq_move_to_local___v2___now(dsq_id, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v6_13))
		return scx_bpf_dsq_move_to_local___v6_13(dsq_id);
	return scx_bpf_consume___v6_12(dsq_id);
}

extern void scx_bpf_dsq_move_set_slice___v6_13(struct bpf_iter_scx_dsq *it__iter,
					       __u64 slice) __ksym __weak;
extern void scx_bpf_dsq_move_set_vtime___v6_13(struct bpf_iter_scx_dsq *it__iter,
					       __u64 vtime) __ksym __weak;
extern bool scx_bpf_dsq_move_vtime___v6_13(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p,
					   __u64 dsq_id, __u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_slice___v6_12(struct bpf_iter_scx_dsq *it__iter,
							__u64 slice) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_vtime___v6_12(struct bpf_iter_scx_dsq *it__iter,
							__u64 vtime) __ksym __weak;
extern bool scx_bpf_dispatch_vtime_from_dsq___v6_12(struct bpf_iter_scx_dsq *it__iter,
						    struct task_struct *p, __u64 dsq_id,
						    __u64 enq_flags) __ksym __weak;

/* Moves a task that the iterator has found to another queue, with a new slice and virtual time. */
static __always_inline void dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					   __u64 dsq_id, __u64 slice, __u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime___v6_13)) {
		scx_bpf_dsq_move_set_slice___v6_13(it, slice);
		scx_bpf_dsq_move_set_vtime___v6_13(it, vtime);
		scx_bpf_dsq_move_vtime___v6_13(it, p, dsq_id, 0);
	} else {
		scx_bpf_dispatch_from_dsq_set_slice___v6_12(it, slice);
		scx_bpf_dispatch_from_dsq_set_vtime___v6_12(it, vtime);
		scx_bpf_dispatch_vtime_from_dsq___v6_12(it, p, dsq_id, 0);
	}
}

extern bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) __ksym __weak;
extern bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, __u64 vtime) __ksym __weak;

static __always_inline void set_slice(struct task_struct *p, __u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

static __always_inline void set_dsq_vtime(struct task_struct *p, __u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(p, vtime);
	else
		p->scx.dsq_vtime = vtime;
}

#endif
