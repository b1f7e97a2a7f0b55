/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Write-back, write-allocate caches of a big core over memory that another core sees, too. Lines hold data of their
 * own, so what memory has may be older or newer. Nothing is coherent but through the operations below.
 */
#ifndef OFFLOAD_TESTS_CACHES_HIERARCHY_H
#define OFFLOAD_TESTS_CACHES_HIERARCHY_H

#include <stdbool.h>
#include <stdint.h>

enum { LEVELS_MAX = 2, SETS_MAX = 64, WAYS_MAX = 8, LINE_MAX = 64 };

/* What the second level does with lines of the first. */
enum sharing {
	INCLUSIVE,	/* it has each of them */
	INDEPENDENT,	/* it gets a line that is loaded, and may lose it before the first level does */
	VICTIM,		/* it gets a line when the first level evicts it, clean or dirty, as a Cortex-A7's */
	SHARINGS,
};

struct line {
	bool valid, dirty;
	uint32_t address;
	uint8_t data[LINE_MAX];
};

struct level {
	uint32_t sets, ways;
	struct line lines[SETS_MAX][WAYS_MAX];
};

struct hierarchy {
	uint32_t levels, line_bytes;
	enum sharing sharing;
	struct level level[LEVELS_MAX];
	uint8_t *memory;
	uint32_t base, size;
	uint64_t write_backs;
};

/* Random geometry, empty caches. */
void hierarchy_choose(struct hierarchy *h, uint8_t *memory, uint32_t base, uint32_t size);
/* The identification registers that describe it. */
uint32_t hierarchy_ctr(const struct hierarchy *h);
uint32_t hierarchy_clidr(const struct hierarchy *h);
uint32_t hierarchy_ccsidr(const struct hierarchy *h, uint32_t level);
bool hierarchy_covers(const struct hierarchy *h, uint32_t address);

/* The first level's line of an address, which a load or store brings in. */
struct line *hierarchy_load(struct hierarchy *h, uint32_t address);
/* An instruction's line, which only a unified cache keeps: the second level. */
void hierarchy_fetch(struct hierarchy *h, uint32_t address);
/* A line leaves a level, and is written back if it is dirty. */
void hierarchy_evict_random(struct hierarchy *h);
/* The line is modified in the first level, and older in all below. */
void hierarchy_make_dirty(struct hierarchy *h, uint32_t address);
/* What the core reads at an address, if it reads it through its caches. */
uint8_t hierarchy_byte(const struct hierarchy *h, uint32_t address);

/* Maintenance: word as the register of DCCISW and its relatives has it. */
void hierarchy_by_set_way(struct hierarchy *h, uint32_t word, bool clean, bool invalidate);
/* To the point of coherency. */
void hierarchy_by_address(struct hierarchy *h, uint32_t address, bool clean, bool invalidate);

#endif
