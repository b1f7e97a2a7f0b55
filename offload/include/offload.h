/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The virtual executor: runs unmodified ARMv7-A kernel code on an ARMv7-M core.
 *
 *      guest (ARMv7-A)                            host (ARMv7-M)
 *      ───────────────                            ──────────────
 *      r0–r12, lr          ── the same ────────►  r0–r12, lr, except one, the scratch register,
 *                                                 whose guest value lives in memory
 *      sp                  ── + offset ────────►  sp (a process stack)
 *      N Z C V Q           ── the same ────────►  N Z C V Q
 *      linear-mapped VA    ── + offset ────────►  address in the shared memory
 *      other VA            ── page tables ─────►  shared memory, or a device
 *
 * Names used everywhere: a guest address is one that the kernel uses (virtual); a physical
 * address is one that its page tables hold; a host address is one that the small core uses.
 */
#ifndef OFFLOAD_H
#define OFFLOAD_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* Why execution ended. The Rust driver has the same list (rust/machine/outcome.rs). */
enum offload_stop {
	OFFLOAD_RUNNING,	/* it did not */
	OFFLOAD_RETURNED,	/* the function returned */
	OFFLOAD_UNDEFINED,	/* no such instruction */
	OFFLOAD_UNPREDICTABLE,	/* the architecture leaves open what it does */
	OFFLOAD_REFUSED,	/* an instruction that this executor does not execute */
	OFFLOAD_UNALIGNED,	/* an access that must be aligned and was not */
	OFFLOAD_UNMAPPED_READ,
	OFFLOAD_UNMAPPED_WRITE,
	OFFLOAD_UNMAPPED_CODE,
	OFFLOAD_CODE_WRITTEN,	/* the code changes itself */
	OFFLOAD_STACK_OVERFLOW,
	OFFLOAD_BUDGET,		/* it ran for longer than it was allowed to */
	OFFLOAD_FALLBACK,	/* handed back to the big core at a function that it must run */
	OFFLOAD_BAD_JOB,	/* what was to be run makes no sense */
	OFFLOAD_INTERNAL,	/* a fault of the executor itself */
	OFFLOAD_WILD_STORE,	/* the guest wrote into the executor's memory, here or earlier */
};

/* A guest processor, at an instruction boundary. */
struct offload_cpu {
	uint32_t r[16];		/* r[15]: the next instruction */
	uint32_t flags;		/* N Z C V Q in bits 31:27 */
	uint32_t ge;		/* GE in bits 19:16 */
	uint32_t control;	/* CPSR's A, I, F, T and mode */
	uint32_t thread[3];	/* TPIDRURW, TPIDRURO, TPIDRPRW */
	uint32_t exclusive;	/* address of the open exclusive access, or 1 */
	uint32_t it;		/* T32: what is left of the IT block, as in ITSTATE */
};

#endif
