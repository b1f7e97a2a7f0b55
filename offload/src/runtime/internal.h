/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shared by the parts of the executor: registers.c, executor.c, call.c, fault.c, interrupt.c. */
#ifndef OFFLOAD_RUNTIME_INTERNAL_H
#define OFFLOAD_RUNTIME_INTERNAL_H

#include "runtime/executor.h"

static inline uint32_t *raw_scratch(struct executor *x)
{
	return &x->raw[x->job->layout.scratch];
}

static inline uint32_t stack_delta(const struct executor *x)
{
	return x->job->layout.host_base - x->job->layout.guest_base;
}

/* Where a guest processor is; bit 0: in T32. */
static inline uint32_t place_of(const struct offload_cpu *cpu)
{
	return cpu->r[PC] | (cpu->control >> 5 & 1);
}

static inline void set_place(struct offload_cpu *cpu, uint32_t guest)
{
	cpu->r[PC] = guest & ~1u;
	cpu->control = (cpu->control & ~0x20u) | (guest & 1) << 5;
	cpu->it = 0;
}

static inline uint32_t stopped(struct executor *x, enum offload_stop stop)
{
	x->stop = stop;
	return 0;
}

/* --- registers.c --- */

/* The guest's registers from the host's, and back. */
void take_registers(struct executor *x);
void give_registers(struct executor *x);
/* Of that only what CPSR has besides flags. */
void give_control(struct executor *x);
/* Writes STATE_GUARD around the words that translated code writes. */
void guard_state(struct executor *x);
/*
 * Whether no wild store of the guest has hit those words; behind take_registers(). If one has, the run stops at
 * the guest instruction of a host address, which is that instruction or a later one.
 */
bool state_is_sound(struct executor *x, uint32_t host);
/* Registers of the guest that are host addresses become guest addresses, or the other way round. */
void add_to_hosted(struct executor *x, uint32_t addend);
/*
 * The instruction with the code at a host address becomes where the guest processor is; *offset is how far
 * into its code. False: there is none.
 */
bool find_guest(struct executor *x, uint32_t host, uint32_t *guest, uint32_t *offset);
/* A word of the code cache; 0 outside of it. */
uint32_t cache_word(const struct executor *x, uint32_t host);

/* --- executor.c --- */

/* Goes on at a guest address, with the guest's registers in x->cpu; the host address, or 0. */
uint32_t go_on(struct executor *x, uint32_t guest);
/* Translates the region that begins at a guest address; its host address, or 0. */
uint32_t make_code(struct executor *x, uint32_t guest);
/* Interprets the instruction at cpu.r[15]. */
bool interpret_one(struct executor *x);
/* The same, and on to the end of the IT block: translated code cannot be entered in one. */
uint32_t interpret_and_go_on(struct executor *x);

/* --- call.c --- */

/* Another instruction of 32 bits stands at a host address from now on. */
void write_code(struct executor *x, uint32_t site, uint32_t code);
/* An indirect branch of T32 or A32 did not find its target: see translate/branch.c. */
uint32_t thumb_target(struct executor *x, bool by_link);
uint32_t arm_target(struct executor *x);

#endif
