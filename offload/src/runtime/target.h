/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the Rust driver puts into the small core's memory (rust/machine/job.rs writes it). Where each part is
 * depends on the board: target/boards.
 */
#ifndef OFFLOAD_RUNTIME_TARGET_H
#define OFFLOAD_RUNTIME_TARGET_H

#include "runtime/executor.h"

#ifdef TARGET_BOARD
#include TARGET_BOARD
#else
#include "target/boards/mps2-an385.h"
#endif

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
