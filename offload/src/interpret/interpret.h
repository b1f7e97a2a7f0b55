/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Executes single instructions. The translator leaves to it what is rare, and the executor
 * what must reach a device or a page table; it is exact, not quick.
 */
#ifndef OFFLOAD_INTERPRET_H
#define OFFLOAD_INTERPRET_H

#include "decode/a32.h"
#include "offload.h"

/* How guest addresses are read and written; size is 1, 2 or 4 bytes. */
struct offload_bus {
	enum offload_stop (*load)(void *owner, uint32_t address, unsigned int size, uint32_t *value);
	enum offload_stop (*store)(void *owner, uint32_t address, unsigned int size, uint32_t value);
	/* Says that an address must be aligned and is not; returns OFFLOAD_UNALIGNED. */
	enum offload_stop (*unaligned)(void *owner, uint32_t address);
	void *owner;
};

/* One instruction in execution. */
struct step {
	struct offload_cpu *cpu;
	const struct offload_bus *bus;
	const struct instruction *in;
	uint32_t next;		/* bit 0: T32 */
};

/*
 * Executes the instruction at cpu->r[15] and moves r[15] on.
 * If it stops, the processor is as it was before, except what a load or store of several
 * registers had already done.
 */
enum offload_stop interpret(struct offload_cpu *cpu, const struct offload_bus *bus,
			    const struct instruction *in);

bool a32_condition_holds(uint32_t condition, uint32_t flags);

/* What the parts of the interpreter share. */

uint32_t step_read(const struct step *step, uint32_t number);
/* Writes a register; PC is a branch that may change to T32. */
enum offload_stop step_write(struct step *step, uint32_t number, uint32_t value);
enum offload_stop interpret_data(struct step *step);
enum offload_stop interpret_transfer(struct step *step);
enum offload_stop interpret_multiple(struct step *step);
enum offload_stop interpret_exclusive(struct step *step);
enum offload_stop interpret_media(struct step *step);
enum offload_stop interpret_status(struct step *step);
enum offload_stop interpret_coprocessor(struct step *step);

/* A register shifted by a constant or by a register; carry is the flag before and after. */
uint32_t shift_value(uint32_t value, unsigned int type, unsigned int amount, bool *carry);
uint32_t shifted_operand(const struct step *step, bool *carry);

#endif
