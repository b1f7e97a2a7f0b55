// SPDX-License-Identifier: GPL-2.0-only
/*
 * A memory device that counts and saturates, as a plugin of the emulator.
 *
 *  each access of the machine ──▶ is it on one of the nodes? ──▶ cache of that processor
 *                                                                      │ misses, write-backs
 *   counters (a BAR, as the seed's FPGA has them) ◀── counts ──────────┤
 *   the processor waits while too much is under way ◀── one queue ─────┘
 *
 * Caches are set-associative, of 64-byte lines, allocate on reads and on writes, and write back
 * when a changed line is thrown out; the line that was used least recently goes. So a store to a
 * line that is not there reads it, and writes it later.
 *
 * The device serves a line in `service_ns`, one after the other, for all nodes together; an answer
 * takes `latency_ns` more. A processor goes on until `depth` of its reads are under way and then
 * waits for the oldest, in the host's time: so much memory-level parallelism there is, and the
 * queue is never longer than all processors' depths. Write-backs take their turn but nobody waits
 * for them.
 *
 * Left out: what other memory does to the cache (only lines of the nodes are in it), prefetching,
 * further levels, coherence between caches (a line may be in two of them), page tables (the
 * emulator walks them itself), and the time that the emulation of an instruction takes, which is
 * the host's.
 *
 * Arguments: counters=FILE nodes=FROM:BYTES[+FROM:BYTES...] (as hwaddr_phys_addr has addresses)
 * service_ns=N latency_ns=N depth=N
 *
 * In FILE (1 MiB, shared with the machine):
 *   0x18100  for each node: lines read, lines written, 64 bits each (Kämmerer 2025, section 5.1.3)
 *   0x20000  for all: reads answered, the sum of their latencies in ns, ns that processors waited
 */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "plugin.h"

#define FILE_BYTES (1u << 20)
#define COUNTERS 0x18100
#define STATISTICS 0x20000
#define MAX_NODES 16
#define MAX_CPUS 16
#define MAX_DEPTH 64
#define LINE_SHIFT 6
#define SETS 32
#define WAYS 8
/* In a cache's entry, beside the line's number. */
#define PRESENT (1ull << 63)
#define CHANGED (1ull << 62)

typedef _Atomic uint64_t counter;

struct node {
	uint64_t from;
	uint64_t bytes;
};

/* One processor's cache, the most recently used way of each set first, and its reads under way. */
struct cpu {
	uint64_t lines[SETS][WAYS];
	uint64_t done_ns[MAX_DEPTH];
	uint64_t reads;
} __attribute__((aligned(64)));

PLUGIN_EXPORT int qemu_plugin_version = PLUGIN_VERSION;

static struct node nodes[MAX_NODES];
static unsigned int node_count;
static uint64_t service_ns;
static uint64_t latency_ns;
static uint64_t depth = 1;
static struct cpu cpus[MAX_CPUS];
static counter *counters;
static counter *statistics;
/* When the device will have served all that it was asked for. */
static counter free_at_ns;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void add(counter *to, uint64_t what)
{
	atomic_fetch_add_explicit(to, what, memory_order_relaxed);
}

/* Queues a line; returns when it will have been served. */
static uint64_t serve(uint64_t now)
{
	uint64_t before = atomic_load_explicit(&free_at_ns, memory_order_relaxed);
	uint64_t after;

	do {
		after = (before > now ? before : now) + service_ns;
	} while (!atomic_compare_exchange_weak(&free_at_ns, &before, after));
	return after;
}

static void read_line(struct cpu *cpu, unsigned int node)
{
	uint64_t now = now_ns();
	uint64_t *oldest = &cpu->done_ns[cpu->reads++ % depth];
	uint64_t until = *oldest;

	if (now < until) {
		add(&statistics[2], until - now);
		while (now < until)
			now = now_ns();
	}
	*oldest = serve(now) + latency_ns;
	add(&statistics[1], *oldest - now);
	add(&statistics[0], 1);
	add(&counters[2 * node], 1);
}

static int node_of(uint64_t address)
{
	for (unsigned int at = 0; at < node_count; at++)
		if (address - nodes[at].from < nodes[at].bytes)
			return at;
	return -1;
}

static void on_access(unsigned int vcpu, uint32_t info, uint64_t vaddr, void *data)
{
	struct qemu_plugin_hwaddr *hwaddr = qemu_plugin_get_hwaddr(info, vaddr);
	uint64_t address, line, entry, *ways;
	struct cpu *cpu;
	int node, at;

	(void)data;
	if (!hwaddr || qemu_plugin_hwaddr_is_io(hwaddr) || vcpu >= MAX_CPUS)
		return;
	address = qemu_plugin_hwaddr_phys_addr(hwaddr);
	node = node_of(address);
	if (node < 0)
		return;
	cpu = &cpus[vcpu];
	line = address >> LINE_SHIFT;
	ways = cpu->lines[line % SETS];
	line |= PRESENT;
	for (at = 0; at < WAYS; at++)
		if ((ways[at] & ~CHANGED) == line)
			break;
	if (at == WAYS) {
		uint64_t old = ways[--at];

		if (old & CHANGED) {
			uint64_t from = (old & ~(PRESENT | CHANGED)) << LINE_SHIFT;

			add(&counters[2 * node_of(from) + 1], 1);
			serve(now_ns());
		}
		read_line(cpu, node);
		entry = line;
	} else {
		entry = ways[at];
	}
	if (qemu_plugin_mem_is_store(info))
		entry |= CHANGED;
	memmove(&ways[1], &ways[0], at * sizeof(*ways));
	ways[0] = entry;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t at = 0; at < count; at++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, at), on_access,
						 QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 NULL);
}

static int complain(const char *what, const char *which)
{
	fprintf(stderr, "cxl_device: %s: %s\n", which, what);
	return -1;
}

static bool parse_nodes(const char *text)
{
	while (node_count < MAX_NODES) {
		struct node *node = &nodes[node_count++];
		char *end;

		node->from = strtoull(text, &end, 0);
		if (*end != ':')
			return false;
		node->bytes = strtoull(end + 1, &end, 0);
		if (!*end)
			return node->bytes > 0;
		if (*end != '+')
			return false;
		text = end + 1;
	}
	return false;
}

static bool parse_number(const char *text, uint64_t *number)
{
	char *end;

	*number = strtoull(text, &end, 0);
	return *text && !*end;
}

static const char *value_of(const char *argument, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(argument, name, length) || argument[length] != '=')
		return NULL;
	return argument + length + 1;
}

PLUGIN_EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
				      char **argv)
{
	const char *path = NULL;
	uint8_t *map;
	int file;

	for (int at = 0; at < argc; at++) {
		const char *argument = argv[at];
		const char *value;
		bool right = false;

		value = value_of(argument, "counters");
		if (value) {
			path = value;
			right = true;
		}
		value = value_of(argument, "nodes");
		if (value)
			right = parse_nodes(value);
		value = value_of(argument, "service_ns");
		if (value)
			right = parse_number(value, &service_ns);
		value = value_of(argument, "latency_ns");
		if (value)
			right = parse_number(value, &latency_ns);
		value = value_of(argument, "depth");
		if (value)
			right = parse_number(value, &depth);
		if (!right)
			return complain("not understood", argument);
	}
	if (!path || !node_count)
		return complain("are needed", "counters and nodes");
	if (!depth || depth > MAX_DEPTH)
		return complain("1 to 64", "depth");
	if (!info->system_emulation || info->system.max_vcpus > MAX_CPUS)
		return complain("a machine with 1 to 16 processors is needed", info->target_name);
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0)
		return complain("cannot be opened", path);
	map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (map == MAP_FAILED)
		return complain("cannot be mapped", path);
	counters = (counter *)(map + COUNTERS);
	statistics = (counter *)(map + STATISTICS);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
