// SPDX-License-Identifier: GPL-2.0
/* The smallest possible scheduler: the overhead of dormouse.bpf.c is measured against it. */
#include "compat.h"

#define SCX_DSQ_GLOBAL 0x8000000000000001ULL

char LICENSE[] SEC("license") = "GPL";

SEC("struct_ops/empty_enqueue")
void BPF_PROG(empty_enqueue, struct task_struct *p, __u64 enq_flags)
{
	dsq_insert(p, SCX_DSQ_GLOBAL, 5000000, enq_flags);
}

SEC(".struct_ops.link")
struct sched_ext_ops empty = {
	.enqueue = (void *)empty_enqueue,
	.timeout_ms = 10000,
	.name = "dormouse_empty",
};
