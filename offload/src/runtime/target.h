/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the Rust driver puts into the small core's memory, and where (rust/machine/job.rs writes it).
 *
 *   host address   what
 *   0x00000000     vectors; struct offload_state at 0x7900, a stack below it
 *   0x00008000     target table of the guest's instruction set, by offset in guest memory: one word for
 *                  each word of A32, or for each halfword of T32. Nothing behind it can be read, so a
 *                  branch to code that it does not reach faults
 *   0x20000000     target table of the other instruction set; only the executor reads it
 *   0x20200000     code cache
 *   0x20300000     the executor itself: code, constants, data
 *   0x20380000     struct target_job
 *   0x20400000     (down from here) the executor's stack
 *   0x21000000     guest memory
 *
 * No entry of the target table that is read at an odd address is an address of the code cache: such a
 * branch faults, and the executor decides.
 */
#ifndef OFFLOAD_RUNTIME_TARGET_H
#define OFFLOAD_RUNTIME_TARGET_H

#include "runtime/executor.h"

#define TARGET_STATE 0x00007900u
#define TARGET_STATE_PAGE 0x00007800u
#define TARGET_STATE_BYTES 0x00000800u
#define TARGET_TABLE 0x00000000u
#define TARGET_TABLE_BYTES 0x00400000u
#define TARGET_OTHER_TABLE 0x20000000u
#define TARGET_OTHER_TABLE_BYTES 0x00200000u
#define TARGET_CACHE 0x20200000u
#define TARGET_CACHE_MAX 0x00100000u
#define TARGET_JOB 0x20380000u
#define TARGET_MEMORY 0x21000000u
/* Behind the timer that counts for the executor, up to the end of peripherals. */
#define TARGET_DEVICES 0x40001000u
#define TARGET_DEVICES_END 0x60000000u
#define TARGET_MAGIC 0x31424a44u	/* "DJB1" */

struct target_job {
	uint32_t magic;
	uint32_t bytes;			/* of this structure */
	uint32_t runs;			/* how often, one after the other, the cache kept */
	uint32_t cache_bytes;
	uint32_t tick;			/* timer ticks between interrupts */
	uint32_t budget;		/* interrupts until it is stopped */
	uint32_t dump_start;		/* guest memory written to a file at the end */
	uint32_t dump_bytes;
	uint32_t presets;		/* how many of the next: */
	struct {
		uint32_t host, value;
	} preset[4];			/* words written to the small core's devices before the first run */
	struct offload_job job;
};

#endif
