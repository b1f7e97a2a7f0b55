/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The executor's edge in a host process: Unicorn's Cortex-M3 runs what the translator made. */
#ifndef OFFLOAD_TESTS_EDGE_H
#define OFFLOAD_TESTS_EDGE_H

#include <unicorn/unicorn.h>

#include "runtime/executor.h"

enum {
	TEST_MEMORY = 1 << 20,	/* bytes of guest memory */
	TEST_TEXT = 0x10000,	/* offset of code */
	TEST_TEXT_BYTES = 0x10000,
	TEST_DATA = 0x80000,	/* offset of what registers point to */
	TEST_STACK = 0xc0000,
	TEST_CACHE = 1 << 18,
	TEST_STATE = 0xf100,	/* host address of struct offload_state */
};

#define TEST_HOST_BASE 0x21000000u
#define TEST_TABLE_BASE 0u
#define TEST_CACHE_BASE 0x20200000u

struct edge {
	struct executor executor;
	struct offload_job job;
	uc_engine *core;
	uint8_t *low;		/* the page of struct offload_state */
	uint8_t *memory;
	uint32_t *table;
	uint32_t *thumb;
	uint8_t *cache;
	/* Host instructions to where an interrupt stops the next run with OFFLOAD_FALLBACK; 0: none does. */
	uint32_t interrupt_in;
};

/* offset: 0 for a linear map at its host addresses. */
struct edge *edge_new(uint32_t guest_base, uint32_t scratch, bool thumb, uint32_t options,
		      uint32_t cache_size);
/* Runs from cpu on (r[15] is the entry) up to a maximum of rounds; leaves the final state in cpu. */
enum offload_stop edge_run(struct edge *edge, struct offload_cpu *cpu, uint64_t rounds);
/* No exclusive access of an earlier run is open any more. */
void edge_clear_exclusive(struct edge *edge);
/* A run has ended: what it translated may be kept. */
void edge_leave(struct edge *edge);
/* The next job may run what was translated for the last one, if that still holds. */
void edge_keep(struct edge *edge);
/* Forgets all translations. */
void edge_forget(struct edge *edge);
void edge_free(struct edge *edge);

#endif
