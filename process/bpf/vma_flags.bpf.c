// SPDX-License-Identifier: GPL-2.0
/*
 * Writes the flags of each mapping of a task. /proc/PID/smaps has them too, but counts the pages of
 * a mapping before it shows them.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* CO-RE relocates the members when the object is loaded. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;
struct task_struct;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

#pragma clang attribute pop

/* `Area` in src/vma_flags/reader.rs. */
struct area {
	__u64 start;
	__u64 end;
	__u64 flags;
};

SEC("iter/task_vma")
int vma_flags(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct area area;

	/* After the last mapping. */
	if (!vma)
		return 0;
	area.start = vma->vm_start;
	area.end = vma->vm_end;
	area.flags = vma->vm_flags;
	bpf_seq_write(ctx->meta->seq, &area, sizeof(area));
	return 0;
}

char _license[] SEC("license") = "GPL";
