// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The oracle: Unicorn's Cortex-A15 runs the guest's instructions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "differential.h"

static const int ids[16] = {
	UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_R4, UC_ARM_REG_R5,
	UC_ARM_REG_R6, UC_ARM_REG_R7, UC_ARM_REG_R8, UC_ARM_REG_R9, UC_ARM_REG_R10, UC_ARM_REG_R11,
	UC_ARM_REG_R12, UC_ARM_REG_SP, UC_ARM_REG_LR, UC_ARM_REG_PC,
};

static int oracle_interrupt;

static void on_oracle_interrupt(uc_engine *core, uint32_t number, void *user)
{
	(void)user;
	oracle_interrupt = number;
	uc_emu_stop(core);
}

/* Whether the oracle knows no such instruction; whether it stopped because of the maximum. */
bool oracle_undefined, oracle_ran_out;

/* How many more instructions it begins. */
static uint32_t instructions_left;

/* Where the oracle's access found nothing. It may go on for an instruction after a store. */
uint32_t oracle_missed;

static bool oracle_failed;

static bool on_oracle_miss(uc_engine *core, uc_mem_type type, uint64_t address, int size,
			   int64_t value, void *user)
{
	(void)core;
	(void)type;
	(void)size;
	(void)value;
	(void)user;
	oracle_missed = address;
	oracle_failed = true;
	return false;
}

/* Where the guest's stack pointer was: see excused() in compare.c. */
uint32_t oracle_stacks[64], oracle_stack_count;

/* Registers and status before the oracle's last instruction: what they are when it faults. */
static uint32_t before[17];

static void on_oracle_instruction(uc_engine *core, uint64_t address, uint32_t size, void *user)
{
	static int all[17];
	void *places[17];

	(void)size;
	(void)user;
	if (oracle_failed)
		return;
	instructions_left--;
	for (int i = 0; i < 17; i++) {
		all[i] = i < 16 ? ids[i] : UC_ARM_REG_CPSR;
		places[i] = &before[i];
	}
	uc_reg_read_batch(core, all, places, 17);
	before[PC] = address;
	if (oracle_stack_count < 64 &&
	    (!oracle_stack_count || oracle_stacks[oracle_stack_count - 1] != before[SP]))
		oracle_stacks[oracle_stack_count++] = before[SP];
}

/* What a hand-over keeps there, and more than translated code does. */
enum { EXPOSED_BYTES = 64 };

bool oracle_exposed;

static void on_oracle_read(uc_engine *core, uc_mem_type type, uint64_t address, int size, int64_t value, void *user)
{
	(void)core, (void)type, (void)size, (void)value, (void)user;
	oracle_exposed |= before[SP] - 1 - (uint32_t)address < EXPOSED_BYTES;
}

struct oracle oracle_new(uint32_t base)
{
	struct oracle oracle = { .base = base };
	uc_hook hook, miss, instruction, read;

	oracle.memory = aligned_alloc(4096, TEST_MEMORY);
	uc_open(UC_ARCH_ARM, UC_MODE_ARM, &oracle.core);
	uc_ctl_set_cpu_model(oracle.core, UC_CPU_ARM_CORTEX_A15);
	uc_mem_map_ptr(oracle.core, base, TEST_TEXT, UC_PROT_READ | UC_PROT_WRITE, oracle.memory);
	uc_mem_map_ptr(oracle.core, base + TEST_TEXT, TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_EXEC,
		       oracle.memory + TEST_TEXT);
	uc_mem_map_ptr(oracle.core, base + TEST_TEXT + TEST_TEXT_BYTES,
		       TEST_MEMORY - TEST_TEXT - TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_WRITE,
		       oracle.memory + TEST_TEXT + TEST_TEXT_BYTES);
	uc_hook_add(oracle.core, &hook, UC_HOOK_INTR, on_oracle_interrupt, NULL, 1, 0);
	uc_hook_add(oracle.core, &miss, UC_HOOK_MEM_READ_UNMAPPED | UC_HOOK_MEM_WRITE_UNMAPPED |
		    UC_HOOK_MEM_WRITE_PROT,
		    on_oracle_miss, NULL, 1, 0);
	uc_hook_add(oracle.core, &read, UC_HOOK_MEM_READ, on_oracle_read, NULL, 1, 0);
	uc_hook_add(oracle.core, &instruction, UC_HOOK_CODE, on_oracle_instruction, NULL, 1, 0);
	return oracle;
}

uint32_t half_at(const struct oracle *oracle, uint32_t address)
{
	uint32_t offset = address - oracle->base;

	if (offset > TEST_MEMORY - 2)
		return 0;
	return oracle->memory[offset] | oracle->memory[offset + 1] << 8;
}

/* Runs until an instruction that stops; true: it stopped by the MARKER. */
bool oracle_run(struct oracle *oracle, struct offload_cpu *cpu, uint32_t count)
{
	uint32_t status = cpu->flags | cpu->ge | cpu->control, thumb = cpu->control >> 5 & 1;
	uint32_t half;
	uc_err error;

	for (int i = 0; i < 15; i++)
		uc_reg_write(oracle->core, ids[i], &cpu->r[i]);
	uc_reg_write(oracle->core, UC_ARM_REG_CPSR, &status);
	oracle_interrupt = -1;
	oracle_undefined = false;
	oracle_missed = oracle->base;
	oracle_failed = false;
	instructions_left = count;
	uc_ctl_remove_cache(oracle->core, oracle->base + TEST_TEXT,
			    oracle->base + TEST_TEXT + TEST_TEXT_BYTES - 1);
	error = uc_emu_start(oracle->core, cpu->r[PC] | thumb, 0xfffffffc, 0, count);
	for (int i = 0; i < 16; i++)
		uc_reg_read(oracle->core, ids[i], &cpu->r[i]);
	uc_reg_read(oracle->core, UC_ARM_REG_CPSR, &status);
	if (error == UC_ERR_READ_UNMAPPED || error == UC_ERR_WRITE_UNMAPPED ||
	    error == UC_ERR_WRITE_PROT) {
		memcpy(cpu->r, before, sizeof(cpu->r));
		status = before[16];
	}
	cpu->flags = status & 0xf8000000;
	cpu->ge = status & 0xf0000;
	cpu->control = status & 0x3ff;
	half = half_at(oracle, cpu->r[PC]);
	oracle_ran_out = !error && !instructions_left && half != (MARKER & 0xffff) && half != MARKER >> 16;
	if (!error)
		return true;
	if (error == UC_ERR_WRITE_UNMAPPED || error == UC_ERR_WRITE_PROT)
		return false;
	oracle_undefined = error == UC_ERR_INSN_INVALID;
	/* At the marker it stops with an exception of its own. */
	return half == (MARKER & 0xffff) || half == MARKER >> 16;
}

void oracle_clear_exclusive(struct oracle *oracle)
{
	struct offload_cpu cpu = { .control = 0xd3, .exclusive = 1 };

	cpu.r[PC] = oracle->base + TEST_TEXT;
	put_word(oracle->memory, TEST_TEXT, 0xf57ff01f);	/* clrex */
	oracle_run(oracle, &cpu, 1);
	put_word(oracle->memory, TEST_TEXT, MARKER);
}
