// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Reads memory of the kernel: a test run executes it once for each piece. It writes nothing but its
 * own map.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>

/* `PIECE_BYTES` in src/uring/kernel.rs. */
#define PIECE_BYTES 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, char[PIECE_BYTES]);
} piece SEC(".maps");

/* (address, bytes): copies a piece into the map; of address 0, the address of the running task. */
SEC("raw_tp")
int read_kernel(struct bpf_raw_tracepoint_args *arguments)
{
	__u64 address = arguments->args[0], bytes = arguments->args[1];
	const __u32 first = 0;
	char *to = bpf_map_lookup_elem(&piece, &first);

	if (!to || bytes > PIECE_BYTES)
		return -EINVAL;
	if (address)
		return bpf_probe_read_kernel(to, bytes, (void *)address);
	*(__u64 *)to = bpf_get_current_task();
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
