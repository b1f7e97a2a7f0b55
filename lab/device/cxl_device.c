// SPDX-License-Identifier: GPL-2.0-only
/*
 * An emulated memory device with traffic counters and a bandwidth limit: a QEMU plugin.
 *
 *  each access of the machine ──▶ is it on one of the nodes? ──▶ cache of that processor
 *                                                                      │ misses, write-backs
 *   counters (a BAR laid out as in Kämmerer 2025) ◀── counts ──────────┤
 *   a ring of sampled lines beside them ◀── one of many, at random ────┤
 *   the processor waits while too much is under way ◀── one queue ─────┘
 *
 * Caches are set-associative, of 64-byte lines, allocate on reads and on writes, and write back
 * when a changed line is thrown out; the line that was used least recently goes. So a store to a
 * line that is not there reads it, and writes it later.
 *
 * The device serves a line in `service_ns`, one after the other, for all nodes together; an answer
 * takes `latency_ns` more. A processor goes on until `depth` of its reads are under way and then
 * waits for the oldest, in the host's time: `depth` is the memory-level parallelism, and the queue
 * is never longer than the sum of all processors' depths. Write-backs take their turn but no
 * processor waits for them.
 *
 * With `sleeps`, a processor sleeps while it waits. If each has a thread of the host, the others go on,
 * and several processors contend for the device. A thread that wakes late is behind: its next reads
 * count as if they came in time, and it waits less until it has caught up (by up to 10 ms).
 *
 * With `programs_only`, accesses with addresses of the kernel neither count nor wait: the kernel has
 * records of pages on the nodes, which it would take minutes to write at the boot.
 *
 * About one of `sample` lines that the device serves, read or written back, is sampled: its address
 * goes into a ring. How many lines lie between two samples is random (1 to 2 * sample - 1, each as
 * likely), so programs with a regular pattern are sampled like others. A device's
 * hotness monitoring unit (CXL 3.2) reports addresses, too, but as counts of hot units, and with
 * device addresses instead of host addresses.
 *
 * Left out: what other memory does to the cache (only lines of the nodes are in it), prefetching,
 * further levels, coherence between caches (a line may be in two of them), page tables (the
 * emulator walks them itself), and the time that the emulation of an instruction takes, which is
 * the host's.
 *
 * Arguments: counters=FILE nodes=FROM:BYTES:BASE[+FROM:BYTES:BASE...] (FROM as hwaddr_phys_addr has
 * addresses, BASE as the machine has them) service_ns=N latency_ns=N depth=N sample=N (0: none)
 * sleeps=0|1 programs_only=0|1
 *
 * In FILE (1 MiB, shared with the machine):
 *   0x18100  for each node: lines read, lines written, 64 bits each (Kämmerer 2025, section 5.1.3)
 *   0x20000  for all: reads answered, the sum of their latencies in ns, ns that processors waited
 *   0x40000  the ring: "LINERING", its slots (a power of two), bytes from here to the first slot,
 *            one of how many lines is sampled; at 0x40040 the samples so far
 *   0x80000  slots of 64 bits; sample number n is in slot n % slots: bit 0: written; bits 6 to 51: the
 *            address of the line; bits 52 to 63: n / slots + 1, so that a reader sees which of the
 *            samples that have been in a slot it has got, or that this one is not there yet
 */

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "plugin.h"

#define FILE_BYTES (1u << 20)
#define COUNTERS 0x18100
#define STATISTICS 0x20000
#define RING 0x40000
#define SLOTS_AT 0x80000
#define SLOTS ((FILE_BYTES - SLOTS_AT) / sizeof(counter))
#define SIGNATURE 0x474e4952454e494cull /* "LINERING", the first letter in the lowest byte */
#define WRITTEN 1ull
#define ADDRESS_MASK 0x000fffffffffffc0ull
#define LAP_SHIFT 52
#define MAX_NODES 16
#define MAX_CPUS 16
#define MAX_DEPTH 64
#define MAX_LATE_NS 10000000
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
	/* In the machine's memory. */
	uint64_t base;
};

/* In the file. */
struct ring {
	counter signature;
	counter slots;
	counter first;
	counter sample;
	counter unused[4];
	counter head;
};

/* One processor's cache, the most recently used way of each set first, and its reads under way. */
struct cpu {
	uint64_t lines[SETS][WAYS];
	uint64_t done_ns[MAX_DEPTH];
	uint64_t reads;
	/* Lines until the next sample; the state of the random numbers. */
	uint64_t until_sample;
	uint64_t random;
	/* By how much it is behind, because it woke late; whether its thread wakes in time. */
	uint64_t late_ns;
	bool is_exact;
} __attribute__((aligned(64)));

PLUGIN_EXPORT int qemu_plugin_version = PLUGIN_VERSION;

static struct node nodes[MAX_NODES];
static unsigned int node_count;
static uint64_t service_ns;
static uint64_t latency_ns;
static uint64_t depth = 1;
static uint64_t sample;
static uint64_t sleeps;
static uint64_t programs_only;
static struct cpu cpus[MAX_CPUS];
static counter *counters;
static counter *statistics;
static struct ring *ring;
static counter *slots;
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

/* Lines until the next sample: 1 to 2 * sample - 1 (xorshift64). */
static uint64_t next_sample(struct cpu *cpu)
{
	cpu->random ^= cpu->random << 13;
	cpu->random ^= cpu->random >> 7;
	cpu->random ^= cpu->random << 17;
	return 1 + cpu->random % (2 * sample - 1);
}

/* A line of a node was served; the address is as the emulator has it. */
static void served(struct cpu *cpu, unsigned int node, uint64_t address, bool write)
{
	uint64_t at, word;

	add(&counters[2 * node + write], 1);
	if (!sample || --cpu->until_sample)
		return;
	cpu->until_sample = next_sample(cpu);
	at = atomic_fetch_add_explicit(&ring->head, 1, memory_order_relaxed);
	word = (address - nodes[node].from + nodes[node].base) & ADDRESS_MASK;
	word |= (at / SLOTS + 1) << LAP_SHIFT;
	if (write)
		word |= WRITTEN;
	atomic_store_explicit(&slots[at % SLOTS], word, memory_order_release);
}

/* Waits in the host's time; returns the time of the device then. */
static uint64_t wait_until(struct cpu *cpu, uint64_t until)
{
	struct timespec at = { until / 1000000000, until % 1000000000 };
	uint64_t now;

	if (!sleeps) {
		while ((now = now_ns()) < until)
			;
		return now;
	}
	if (!cpu->is_exact) {
		/* Of this thread: the kernel would add up to 50 us otherwise. */
		prctl(PR_SET_TIMERSLACK, 1ul);
		cpu->is_exact = true;
	}
	while ((now = now_ns()) < until)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	now -= until;
	cpu->late_ns = now < MAX_LATE_NS ? now : MAX_LATE_NS;
	return until;
}

static void read_line(struct cpu *cpu, unsigned int node, uint64_t address)
{
	uint64_t now = now_ns();
	uint64_t *oldest = &cpu->done_ns[cpu->reads++ % depth];
	uint64_t until = *oldest;

	now -= cpu->late_ns;
	if (now < until) {
		add(&statistics[2], until - now);
		now = wait_until(cpu, until);
	}
	*oldest = serve(now) + latency_ns;
	add(&statistics[1], *oldest - now);
	add(&statistics[0], 1);
	served(cpu, node, address, false);
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
	if (programs_only && vaddr >> 63)
		return;
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

			serve(now_ns());
			served(cpu, node_of(from), from, true);
		}
		read_line(cpu, node, address);
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
		if (*end != ':')
			return false;
		node->base = strtoull(end + 1, &end, 0);
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

/* The file is new, so all else in it is 0. */
static void begin_ring(uint8_t *map)
{
	ring = (struct ring *)(map + RING);
	slots = (counter *)(map + SLOTS_AT);
	for (unsigned int at = 0; at < MAX_CPUS; at++) {
		cpus[at].random = 0x9e3779b97f4a7c15ull * (at + 1);
		cpus[at].until_sample = next_sample(&cpus[at]);
	}
	ring->slots = SLOTS;
	ring->first = SLOTS_AT - RING;
	ring->sample = sample;
	ring->signature = SIGNATURE;
}

PLUGIN_EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
				      char **argv)
{
	const struct {
		const char *name;
		uint64_t *number;
	} numbers[] = {
		{ "service_ns", &service_ns },
		{ "latency_ns", &latency_ns },
		{ "depth", &depth },
		{ "sample", &sample },
		{ "sleeps", &sleeps },
		{ "programs_only", &programs_only },
	};
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
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
			value = value_of(argument, numbers[i].name);
			if (value)
				right = parse_number(value, numbers[i].number);
		}
		if (!right)
			return complain("not understood", argument);
	}
	if (!path || !node_count)
		return complain("are needed", "counters and nodes");
	if (!depth || depth > MAX_DEPTH)
		return complain("1 to 64", "depth");
	if (sample >= 1ull << 32)
		return complain("0 to 4294967295", "sample");
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
	if (sample)
		begin_ring(map);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
