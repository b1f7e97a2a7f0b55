// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The executor's edge in a host process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge.h"

static void must(uc_err error, const char *what)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", what, uc_strerror(error));
		exit(1);
	}
}

static void code_changed(void *owner)
{
	struct edge *edge = owner;

	uc_ctl_remove_cache(edge->core, TEST_CACHE_BASE, TEST_CACHE_BASE + TEST_CACHE - 1);
}

static bool no_device(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value)
{
	(void)owner, (void)host, (void)size, (void)write, (void)value;
	return false;
}

static void on_interrupt(uc_engine *core, uint32_t number, void *user)
{
	int *last = user;

	*last = number;
	uc_emu_stop(core);
}

static int last_interrupt;
static uint64_t last_access;

static int register_ids[17] = {
	UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_R4, UC_ARM_REG_R5,
	UC_ARM_REG_R6, UC_ARM_REG_R7, UC_ARM_REG_R8, UC_ARM_REG_R9, UC_ARM_REG_R10, UC_ARM_REG_R11,
	UC_ARM_REG_R12, UC_ARM_REG_SP, UC_ARM_REG_LR, UC_ARM_REG_PC, UC_ARM_REG_XPSR,
};

/*
 * Unicorn goes on behind a store that is not allowed, to the end of its block; a real core does
 * not. So the registers are taken before each instruction, and a store that failed ends there.
 */
static uint32_t before_instruction[17];
static bool interrupted;
static bool store_failed;

static void read_all(uc_engine *core, uint32_t *values)
{
	void *pointers[17];

	for (int i = 0; i < 17; i++)
		pointers[i] = &values[i];
	uc_reg_read_batch(core, register_ids, pointers, 17);
}

/*
 * A list or a doubleword must be aligned to words on a Cortex-M3; Unicorn does not mind. PC is no base of the
 * translator's.
 */
static bool must_fault(const struct edge *edge, uint32_t address)
{
	uint32_t offset = address - TEST_CACHE_BASE, half;

	if (offset >= TEST_CACHE - 1)
		return false;
	half = edge->cache[offset] | edge->cache[offset + 1] << 8;
	if ((half & 0xfe00) != 0xe800 || (bit(half, 6) && !(half & 0x120)))
		return false;
	last_access = before_instruction[half & 15];
	return last_access & 3;
}

static void on_instruction(uc_engine *core, uint64_t address, uint32_t size, void *user)
{
	struct edge *edge = user;

	(void)size;
	if (store_failed || interrupted) {
		uc_emu_stop(core);
		return;
	}
	read_all(core, before_instruction);
	before_instruction[PC] = address;
	if (must_fault(edge, address)) {
		store_failed = true;
		uc_emu_stop(core);
		return;
	}
	/* An interrupt waits for the end of a guest instruction, as target/main.c makes it wait. */
	if (edge->interrupt_in > 1)
		edge->interrupt_in--;
	else if (edge->interrupt_in && executor_at_boundary(&edge->executor, address)) {
		edge->interrupt_in = 0;
		interrupted = true;
		uc_emu_stop(core);
	}
}

static bool on_unmapped(uc_engine *core, uc_mem_type type, uint64_t address, int size,
			int64_t value, void *user)
{
	(void)core, (void)size, (void)value, (void)user;
	last_access = address;
	if (type == UC_MEM_WRITE_UNMAPPED || type == UC_MEM_WRITE_PROT)
		store_failed = true;
	return false;
}

/* What stores overwrote that a real core does not make, in their order. */
enum { MAX_UNDONE = 64 };
static struct {
	uint64_t address;
	int size;
	uint8_t bytes[8];
} undone[MAX_UNDONE];
static uint32_t undone_count;

static void undo_later(uc_engine *core, uint64_t address, int size)
{
	if (undone_count == MAX_UNDONE || size > (int)sizeof(undone[0].bytes)) {
		fprintf(stderr, "a block goes on for too long behind a store that failed\n");
		exit(1);
	}
	/* What is not there is not written either. */
	if (uc_mem_read(core, address, undone[undone_count].bytes, size))
		return;
	undone[undone_count].address = address;
	undone[undone_count++].size = size;
}

static void undo(uc_engine *core)
{
	while (undone_count) {
		undone_count--;
		must(uc_mem_write(core, undone[undone_count].address, undone[undone_count].bytes,
				  undone[undone_count].size), "undo");
	}
}

/*
 * Unicorn protects whole pages, the memory protection unit of a core less: all of struct offload_state but
 * its window. So a store to the rest is undone, and has failed. So are the stores behind one that failed or behind
 * an interrupt: of an IT block, Unicorn executes the rest.
 */
static void on_store(uc_engine *core, uc_mem_type type, uint64_t address, int size, int64_t value, void *user)
{
	struct edge *edge = user;

	(void)type, (void)value;
	if (!store_failed && !interrupted && protects_state(&edge->job.layout) && (address & ~0xfffu) == (TEST_STATE & ~0xfffu) &&
	    (address < TEST_STATE || address + size > TEST_STATE + STATE_WINDOW_BYTES)) {
		last_access = address;
		store_failed = true;
	}
	if (store_failed || interrupted)
		undo_later(core, address, size);
}

struct edge *edge_new(uint32_t guest_base, uint32_t scratch_register, bool thumb,
		      uint32_t options, uint32_t cache_size)
{
	struct edge *edge = calloc(1, sizeof(*edge));
	struct executor *x = &edge->executor;
	uc_hook hook;

	edge->low = aligned_alloc(4096, 0x1000);
	edge->memory = aligned_alloc(4096, TEST_MEMORY);
	edge->table = aligned_alloc(4096, TEST_MEMORY);
	edge->thumb = aligned_alloc(4096, 2 * TEST_MEMORY);
	edge->cache = aligned_alloc(4096, TEST_CACHE);
	memset(edge->low, 0, 0x1000);
	memset(edge->table, 0, TEST_MEMORY);
	memset(edge->thumb, 0, 2 * TEST_MEMORY);
	must(uc_open(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS, &edge->core), "open");
	must(uc_ctl_set_cpu_model(edge->core, UC_CPU_ARM_CORTEX_M3), "model");
	must(uc_mem_map_ptr(edge->core, TEST_STATE & ~0xfff, 0x1000, UC_PROT_READ | UC_PROT_WRITE, edge->low),
	     "state");
	must(uc_mem_map_ptr(edge->core, TEST_HOST_BASE, TEST_TEXT, UC_PROT_READ | UC_PROT_WRITE,
			    edge->memory), "memory");
	must(uc_mem_map_ptr(edge->core, TEST_HOST_BASE + TEST_TEXT, TEST_TEXT_BYTES, UC_PROT_READ,
			    edge->memory + TEST_TEXT), "text");
	must(uc_mem_map_ptr(edge->core, TEST_HOST_BASE + TEST_TEXT + TEST_TEXT_BYTES,
			    TEST_MEMORY - TEST_TEXT - TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_WRITE,
			    edge->memory + TEST_TEXT + TEST_TEXT_BYTES), "data");
	/* The target table begins where the code does; below it is struct offload_state. */
	if (thumb)
		must(uc_mem_map_ptr(edge->core, TEST_TABLE_BASE + 2 * TEST_TEXT,
				    2 * (TEST_MEMORY - TEST_TEXT), UC_PROT_READ,
				    edge->thumb + TEST_TEXT / 2), "table");
	else
		must(uc_mem_map_ptr(edge->core, TEST_TABLE_BASE + TEST_TEXT, TEST_MEMORY - TEST_TEXT,
				    UC_PROT_READ, edge->table + TEST_TEXT / 4), "table");
	must(uc_mem_map_ptr(edge->core, TEST_CACHE_BASE, TEST_CACHE, UC_PROT_READ | UC_PROT_EXEC,
			    edge->cache), "cache");
	must(uc_hook_add(edge->core, &hook, UC_HOOK_INTR, on_interrupt, &last_interrupt, 1, 0), "hook");
	must(uc_hook_add(edge->core, &hook, UC_HOOK_CODE, on_instruction, edge, 1, 0), "hook");
	must(uc_hook_add(edge->core, &hook, UC_HOOK_MEM_WRITE, on_store, edge, 1, 0), "hook");
	must(uc_hook_add(edge->core, &hook, UC_HOOK_MEM_INVALID, on_unmapped, NULL, 1, 0), "hook");
	edge->job = (struct offload_job){
		.layout = {
			.guest_base = guest_base, .size = TEST_MEMORY, .host_base = TEST_HOST_BASE,
			.text_start = guest_base + TEST_TEXT,
			.text_end = guest_base + TEST_TEXT + TEST_TEXT_BYTES,
			.thumb = thumb, .table_base = TEST_TABLE_BASE, .state = TEST_STATE, .options = options,
			.scratch = scratch_register,
		},
		.page_table = 1, .control = 0x13,
		.stack_top = guest_base + TEST_STACK,
		.stack_bottom = guest_base + TEST_STACK - 0x8000,
		.stack_guard = guest_base + TEST_STACK - 0x8000,
	};
	x->job = &edge->job;
	x->state = (struct offload_state *)(edge->low + (TEST_STATE & 0xfff));
	x->memory = edge->memory;
	x->cache.bytes = edge->cache;
	x->cache.address = TEST_CACHE_BASE;
	x->cache.size = cache_size;
	x->cache.table[0] = edge->table;
	x->cache.table_words[0] = TEST_MEMORY / 4;
	x->cache.table[1] = edge->thumb;
	x->cache.table_words[1] = TEST_MEMORY / 2;
	x->device = no_device;
	x->code_changed = code_changed;
	x->owner = edge;
	if (!executor_init(x)) {
		fprintf(stderr, "the job is refused\n");
		exit(1);
	}
	return edge;
}

void edge_free(struct edge *edge)
{
	uc_close(edge->core);
	free(edge->low);
	free(edge->memory);
	free(edge->table);
	free(edge->thumb);
	free(edge->cache);
	free(edge);
}

void edge_clear_exclusive(struct edge *edge)
{
	static const uint8_t clrex[4] = { 0xbf, 0xf3, 0x2f, 0x8f };
	uint32_t at = TEST_CACHE - sizeof(clrex);

	/* A core does that at each exception, this emulator does not. Nothing is translated at the moment. */
	edge_forget(edge);
	memcpy(edge->cache + at, clrex, sizeof(clrex));
	must(uc_emu_start(edge->core, (TEST_CACHE_BASE + at) | 1, TEST_CACHE_BASE + TEST_CACHE, 0, 1),
	     "clrex");
	code_changed(edge);
}

void edge_leave(struct edge *edge)
{
	struct executor *x = &edge->executor;

	/* This edge ends its runs at a marker, which is a stop; a job ends so that it can be gone on from. */
	if (x->stop == OFFLOAD_UNDEFINED)
		x->stop = OFFLOAD_RETURNED;
	kept_leave(x);
}

void edge_keep(struct edge *edge)
{
	struct executor *x = &edge->executor;

	x->keeps = kept_is_of(&x->kept, &edge->job, x->cache.size);
	if (!x->keeps)
		kept_forget(x);
	if (!executor_init(x)) {
		fprintf(stderr, "the job is refused\n");
		exit(1);
	}
	code_changed(edge);
}

void edge_forget(struct edge *edge)
{
	cache_flush(&edge->executor.cache);
	code_changed(edge);
}

static void read_core(struct edge *edge)
{
	uint32_t values[17];

	undo(edge->core);
	if (store_failed || interrupted)
		memcpy(values, before_instruction, sizeof(values));
	else
		read_all(edge->core, values);
	memcpy(edge->executor.raw, values, 16 * sizeof(uint32_t));
	edge->executor.raw_flags = values[16];
}

static void write_core(struct edge *edge)
{
	/* All of it, as an exception's return does: what faulted may have been in an IT block. */
	uint32_t status = (edge->executor.raw_flags & 0xf8000000) | 1 << 24;

	for (int i = 0; i < 15; i++)
		uc_reg_write(edge->core, register_ids[i], &edge->executor.raw[i]);
	uc_reg_write(edge->core, UC_ARM_REG_XPSR, &status);
}

/* As executor_begin(), but from any state. */
static uint32_t begin(struct edge *edge, const struct offload_cpu *cpu)
{
	struct executor *x = &edge->executor;

	x->stop = OFFLOAD_RUNNING;
	return executor_resume(x, cpu);
}

enum offload_stop edge_run(struct edge *edge, struct offload_cpu *cpu, uint64_t rounds)
{
	struct executor *x = &edge->executor;
	uint32_t host = begin(edge, cpu), pc;
	uc_err error;

	while (host) {
		if (!rounds--) {
			x->stop = OFFLOAD_BUDGET;
			break;
		}
		write_core(edge);
		last_interrupt = -1;
		last_access = 0;
		store_failed = interrupted = false;
		error = uc_emu_start(edge->core, host | 1, 0xfffffffe, 0, 2000);
		read_core(edge);
		pc = x->raw[PC] & ~1u;
		if (interrupted) {
			executor_stop_at(x, pc, OFFLOAD_FALLBACK);
			host = 0;
		} else if (store_failed) {
			host = executor_fault(x, pc, last_access);
		} else if (last_interrupt == 2) {
			/* The number is in the supervisor call's own byte. */
			host = executor_call(x, pc, edge->cache[pc - 2 - TEST_CACHE_BASE]);
		} else if (last_interrupt == 4) {
			/* A data abort: it was not aligned. */
			host = executor_fault(x, pc, last_access);
		} else if (error && (pc == 0 || pc - TEST_CACHE_BASE >= TEST_CACHE)) {
			host = executor_missing_target(x);
		} else if (error) {
			host = executor_fault(x, pc, last_access);
		} else if (last_interrupt >= 0) {
			host = executor_missing_target(x);
		} else {
			host = pc | 1;
		}
	}
	edge->interrupt_in = 0;
	*cpu = x->cpu;
	return x->stop;
}
