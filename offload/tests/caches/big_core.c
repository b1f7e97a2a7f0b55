// SPDX-License-Identifier: Apache-2.0 OR MIT
/* A big core with caches: big_core.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "big_core.h"

static const int ids[17] = {
	UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_R4, UC_ARM_REG_R5,
	UC_ARM_REG_R6, UC_ARM_REG_R7, UC_ARM_REG_R8, UC_ARM_REG_R9, UC_ARM_REG_R10, UC_ARM_REG_R11,
	UC_ARM_REG_R12, UC_ARM_REG_SP, UC_ARM_REG_LR, UC_ARM_REG_PC, UC_ARM_REG_CPSR,
};

enum { SHARED_BYTES = 0x1000, CONTROL_BYTES = 0x1000 };

/* --- what is shared without caches --- */

/* Stores to other words may pass a store, those to its own word not. */
static void see_store(struct big_core *big, uint32_t at)
{
	for (uint32_t i = 0; i < at; i++)
		if (big->stores[i].offset == big->stores[at].offset)
			at = i;
	memcpy(big->seen + big->stores[at].offset, &big->stores[at].value, 4);
	big->stores_count--;
	memmove(&big->stores[at], &big->stores[at + 1], (big->stores_count - at) * sizeof(big->stores[0]));
}

void big_core_drain(struct big_core *big)
{
	while (big->stores_count)
		see_store(big, 0);
}

void big_core_share(struct big_core *big, uint32_t offset, uint32_t bytes)
{
	memcpy(big->shared + offset, big->seen + offset, bytes);
}

static void store_shared(struct big_core *big, uint32_t offset, uint32_t value)
{
	if (big->stores_count == STORES_MAX)
		see_store(big, 0);
	big->stores[big->stores_count].offset = offset & ~3u;
	big->stores[big->stores_count++].value = value;
	if (offset == offsetof(struct offload_handover, offer))
		big->offered = true;
}

/* --- maintenance --- */

static void maintain(struct big_core *big, uint32_t at)
{
	struct hierarchy *h = &big->caches;
	uint32_t word = big->pending[at].word;
	bool invalidate = big->pending[at].invalidate && big->fault != FAULT_CLEAN_ONLY;

	if (big->pending[at].by_address)
		hierarchy_by_address(h, word, big->pending[at].clean, invalidate);
	else if (big->fault != FAULT_FIRST_LEVEL || !(word >> 1 & 7))
		hierarchy_by_set_way(h, word, big->pending[at].clean, invalidate);
	big->pendings--;
	memmove(&big->pending[at], &big->pending[at + 1], (big->pendings - at) * sizeof(big->pending[0]));
}

/* One of those that wait: of different levels in any order, as erratum 814220 of the Cortex-A7 has it. */
static void maintain_some(struct big_core *big)
{
	uint32_t at = below(big->pendings);

	for (uint32_t i = 0; i < at; i++)
		if (big->pending[i].by_address || big->pending[at].by_address ||
		    ((big->pending[i].word ^ big->pending[at].word) & 0xe) == 0)
			at = i;
	maintain(big, at);
}

static void begin_maintenance(struct big_core *big, uint32_t word, bool by_address, bool clean, bool invalidate)
{
	/* As if the offer stood before the flush. */
	if (big->fault == FAULT_OFFER_FIRST && !big->maintains) {
		struct offload_handover *seen = (struct offload_handover *)big->seen;

		big->maintains = true;
		big_core_drain(big);
		seen->offer = seen->answer + 1;
		for (int i = 0; i < 1000 && seen->offer != seen->answer; i++)
			big->passes();
	}
	big->maintenance++;
	if (big->fault == (big->offered ? FAULT_NO_LAST_FLUSH : FAULT_NO_FIRST_FLUSH))
		return;
	if (big->pendings == PENDING_MAX)
		maintain(big, 0);
	big->pending[big->pendings].word = word;
	big->pending[big->pendings].by_address = by_address;
	big->pending[big->pendings].clean = clean;
	big->pending[big->pendings++].invalidate = invalidate;
}

static void barrier(struct big_core *big, bool completes)
{
	if (big->fault == FAULT_NO_BARRIERS)
		return;
	while (completes && big->pendings)
		maintain_some(big);
	big_core_drain(big);
}

/* --- instructions that caches take part in --- */

static void correct(struct big_core *big, uint32_t word, uint32_t value)
{
	big->corrected = word >> 12 & 15;
	big->correct_value = value;
}

/* Where a move to or from coprocessor 15 goes: op1, CRn, CRm, op2. */
#define REGISTER(op1, n, m, op2) ((op1) << 21 | (n) << 16 | (m) | (op2) << 5)

static void move_coprocessor(struct big_core *big, uint32_t word)
{
	uint32_t value;

	uc_reg_read(big->core, ids[word >> 12 & 15], &value);
	if (word & 1 << 20) {
		switch (word & 0xef00ef) {
		case REGISTER(0, 0, 0, 1):
			correct(big, word, hierarchy_ctr(&big->caches));
			break;
		case REGISTER(1, 0, 0, 1):
			correct(big, word, hierarchy_clidr(&big->caches));
			break;
		case REGISTER(1, 0, 0, 0):
			correct(big, word, hierarchy_ccsidr(&big->caches, big->selected >> 1 & 7));
			break;
		}
		return;
	}
	switch (word & 0xef00ef) {
	case REGISTER(2, 0, 0, 0):
		big->selected = value;
		break;
	case REGISTER(0, 1, 0, 0):
		big->on = (value & 4) || big->fault == FAULT_CACHES_ON;
		break;
	case REGISTER(0, 7, 6, 2):	/* DCISW */
		begin_maintenance(big, value, false, false, true);
		break;
	case REGISTER(0, 7, 10, 2):	/* DCCSW */
		begin_maintenance(big, value, false, true, false);
		break;
	case REGISTER(0, 7, 14, 2):	/* DCCISW */
		begin_maintenance(big, value, false, true, true);
		break;
	case REGISTER(0, 7, 6, 1):	/* DCIMVAC */
		begin_maintenance(big, value, true, false, true);
		break;
	case REGISTER(0, 7, 10, 1):	/* DCCMVAC */
		begin_maintenance(big, value, true, true, false);
		break;
	case REGISTER(0, 7, 14, 1):	/* DCCIMVAC */
		begin_maintenance(big, value, true, true, true);
		break;
	}
}

static bool condition_holds(uint32_t condition, uint32_t status)
{
	bool n = status >> 31 & 1, z = status >> 30 & 1, c = status >> 29 & 1, v = status >> 28 & 1;
	const bool holds[8] = { z, c, n, v, c && !z, n == v, !z && n == v, true };

	return condition >= 14 || holds[condition >> 1] != (condition & 1);
}

/* In an IT block every instruction counts as executed: the hand-over has none there. */
static void decode(struct big_core *big, uint32_t offset, uint32_t status)
{
	uint32_t word, half;
	bool thumb = status >> 5 & 1;

	memcpy(&word, big->view + offset, 4);
	if (thumb) {
		half = word & 0xffff;
		word = half << 16 | word >> 16;
		/* In A32 the same, but for barriers. */
		if ((word & 0xffffff00) == 0xf3bf8f00)
			word = 0xf57ff000 | (word & 0xff);
	}
	if ((word & 0x0f000f10) == 0x0e000f10 && word >> 28 != 15 && condition_holds(word >> 28, status))
		move_coprocessor(big, word);
	else if ((word & 0xfffffff0) == 0xf57ff040)
		/* The one between levels is of all accesses, the one at the end of stores. */
		barrier(big, big->fault != FAULT_NO_LEVEL_BARRIER || (word & 15) == 14);
	else if ((word & 0xfffffff0) == 0xf57ff050)
		barrier(big, false);
}

/* --- hooks --- */

void big_core_note_foreign(struct big_core *big, uint32_t address)
{
	big->foreign[big->foreign_count++ % RECENT_MAX] = address;
}

void big_core_speculate(struct big_core *big)
{
	uint32_t address, foreign = big->foreign_count < RECENT_MAX ? big->foreign_count : RECENT_MAX;

	if (foreign && below(2))
		address = big->foreign[below(foreign)];
	else
		address = big->recent[below(RECENT_MAX)] + below(256) - 128;

	if (!hierarchy_covers(&big->caches, address))
		return;
	big->speculated++;
	switch (below(4)) {
	case 0:
		hierarchy_evict_random(&big->caches);
		break;
	case 1:
		hierarchy_fetch(&big->caches, address);
		break;
	default:
		if (big->on)
			hierarchy_load(&big->caches, address);
		break;
	}
}

static void on_instruction(uc_engine *core, uint64_t address, uint32_t size, void *user)
{
	struct big_core *big = user;
	uint32_t status;

	(void)size;
	if (big->corrected >= 0)
		uc_reg_write(core, ids[big->corrected], &big->correct_value);
	big->corrected = -1;
	if (big->speculates && below(2))
		big_core_speculate(big);
	if (big->pendings && below(big->delay) == 0)
		maintain_some(big);
	if (big->stores_count && below(big->delay) == 0)
		see_store(big, below(big->stores_count));
	if (big->fault != FAULT_OFFER_FIRST)
		big->passes();
	if (!hierarchy_covers(&big->caches, address))
		return;
	uc_reg_read(core, UC_ARM_REG_CPSR, &status);
	decode(big, address - big->caches.base, status);
}

/* What a load reads is put into the view, and what a store writes taken to where it goes. */
static void on_cached(struct big_core *big, uint32_t address, uint32_t size, bool write, uint64_t value)
{
	struct hierarchy *h = &big->caches;

	big->recent[below(RECENT_MAX)] = address;
	for (uint32_t i = 0; i < size; i++) {
		uint32_t at = address + i, offset = at - h->base;
		uint8_t *byte = &h->memory[offset];

		if (!hierarchy_covers(h, at))
			return;
		if (big->on) {
			struct line *line = hierarchy_load(h, at);

			byte = &line->data[at % h->line_bytes];
			line->dirty |= write;
		}
		if (write)
			*byte = value >> 8 * i;
		else
			big->view[offset] = *byte;
	}
}

static void on_access(uc_engine *core, uc_mem_type type, uint64_t address, int size, int64_t value, void *user)
{
	struct big_core *big = user;
	bool write = type == UC_MEM_WRITE;

	(void)core;
	if (hierarchy_covers(&big->caches, address)) {
		on_cached(big, address, size, write, value);
	} else if (address - SHARED_AT < SHARED_BYTES) {
		big->loads += !write;
		if (write)
			store_shared(big, address - SHARED_AT, value);
		else if (big->fault != FAULT_OFFER_FIRST)
			big->passes();
	} else if (address == CONTROL_AT + offsetof(struct control, microseconds)) {
		big->control->microseconds += 1 + below(big->step_us);
	}
}

static void on_interrupt(uc_engine *core, uint32_t number, void *user)
{
	(void)number, (void)user;
	uc_emu_stop(core);
}

static void must(bool good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s\n", what);
		exit(1);
	}
}

/* --- making and running --- */

struct big_core *big_core_new(const char *program)
{
	struct big_core *big = calloc(1, sizeof(*big));
	FILE *file = fopen(program, "rb");
	uc_hook hook;

	must(file, program);
	big->caches.base = PROGRAM_BASE;
	big->view = aligned_alloc(4096, TEST_MEMORY);
	big->shared = aligned_alloc(4096, SHARED_BYTES);
	big->seen = aligned_alloc(4096, SHARED_BYTES);
	big->control = aligned_alloc(4096, CONTROL_BYTES);
	big->program = calloc(1, PROGRAM_BYTES);
	memset(big->view, 0, TEST_MEMORY);
	memset(big->control, 0, CONTROL_BYTES);
	must(fread(big->program, 1, PROGRAM_BYTES, file) > sizeof(struct program_head), program);
	fclose(file);
	must(!uc_open(UC_ARCH_ARM, UC_MODE_ARM, &big->core), "open");
	must(!uc_ctl_set_cpu_model(big->core, UC_CPU_ARM_CORTEX_A15), "model");
	must(!uc_mem_map_ptr(big->core, PROGRAM_BASE, TEST_MEMORY, UC_PROT_ALL, big->view), "memory");
	must(!uc_mem_map_ptr(big->core, SHARED_AT, SHARED_BYTES, UC_PROT_READ | UC_PROT_WRITE, big->shared), "shared");
	must(!uc_mem_map_ptr(big->core, CONTROL_AT, CONTROL_BYTES, UC_PROT_READ | UC_PROT_WRITE, big->control), "control");
	must(!uc_hook_add(big->core, &hook, UC_HOOK_CODE, on_instruction, big, 1, 0), "hook");
	must(!uc_hook_add(big->core, &hook, UC_HOOK_INTR, on_interrupt, big, 1, 0), "hook");
	must(!uc_hook_add(big->core, &hook, UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, on_access, big, 1, 0), "hook");
	return big;
}

void big_core_reset(struct big_core *big, uint8_t *memory, enum fault fault, bool again)
{
	hierarchy_choose(&big->caches, memory, big->caches.base, TEST_MEMORY);
	if (!again) {
		memset(big->shared, 0, SHARED_BYTES);
		memset(big->seen, 0, SHARED_BYTES);
		big->stores_count = 0;
	}
	big->pendings = big->foreign_count = 0;
	big->delay = 1u << below(12);
	big->corrected = -1;
	big->on = big->speculates = true;
	big->fault = fault;
	big->offered = big->maintains = false;
	memcpy(big->view, memory, TEST_MEMORY);
	uc_ctl_remove_cache(big->core, big->caches.base + TEST_TEXT,
			    big->caches.base + TEST_TEXT + TEST_TEXT_BYTES - 1);
}

void big_core_warm(struct big_core *big)
{
	static const struct { uint32_t offset, bytes; } parts[] = {
		{ TEST_DATA + 0x1c00, 0x3000 }, { TEST_STACK - 0x800, 0x1000 }, { TEST_TEXT + 0x4000, 0x3000 },
		{ PROGRAM, 0x3000 },
	};
	uint32_t lines = below(256);

	for (uint32_t i = 0; i < RECENT_MAX; i++)
		big->recent[i] = big->caches.base + parts[0].offset + below(parts[0].bytes);
	while (lines--) {
		uint32_t part = below(4), address = big->caches.base + parts[part].offset + below(parts[part].bytes);

		if (below(2))
			hierarchy_make_dirty(&big->caches, address);
		else
			hierarchy_load(&big->caches, address);
		if (below(4) == 0)
			hierarchy_evict_random(&big->caches);
	}
}

bool big_core_run(struct big_core *big, struct offload_cpu *cpu, uint32_t count)
{
	uint32_t status = cpu->flags | cpu->ge | cpu->control, thumb = cpu->control >> 5 & 1;
	uc_err error;

	for (int i = 0; i < 15; i++)
		uc_reg_write(big->core, ids[i], &cpu->r[i]);
	uc_reg_write(big->core, UC_ARM_REG_CPSR, &status);
	error = uc_emu_start(big->core, cpu->r[PC] | thumb, 0xfffffffc, 0, count);
	for (int i = 0; i < 16; i++)
		uc_reg_read(big->core, ids[i], &cpu->r[i]);
	uc_reg_read(big->core, UC_ARM_REG_CPSR, &status);
	cpu->flags = status & 0xf8000000;
	cpu->ge = status & 0xf0000;
	cpu->control = status & 0x3ff;
	return !error || error == UC_ERR_INSN_INVALID || error == UC_ERR_EXCEPTION;
}
