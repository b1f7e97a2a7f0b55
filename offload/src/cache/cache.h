/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The code cache: translated regions one behind the other in a fixed budget.
 *
 *   ┌──────────────┬────────────────────────────┬──────┬──────────┬───────┬───────────────────────────┐
 *   │ struct region│ u8 lengths[count], padding │ code │ literals │ exits │ loops, fix-ups, constants │ …
 *   └──────────────┴────────────────────────────┴──────┴──────────┴───────┴───────────────────────────┘
 *
 * lengths[i] is the number of host halfwords of guest word or halfword i, so that a host address
 * can be turned into a guest address and back; behind it is ITSTATE for each halfword of T32. When
 * there is no room left, everything goes: no guest state ever holds a host code address, so this is
 * safe at every instruction boundary.
 *
 * The target tables have a word for each word of A32 and for each halfword of T32: 0, or where its
 * code is (bit 0 set). Translated code reads one of them, the executor both. Guest addresses have
 * bit 0 set for T32 everywhere.
 */
#ifndef OFFLOAD_CACHE_H
#define OFFLOAD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region {
	uint32_t guest;		/* bit 0: T32 */
	uint16_t count;		/* words of A32, halfwords of T32, in the order of their code */
	uint16_t own;		/* the same without inlined functions */
	uint16_t states;	/* T32: where ITSTATE of each begins in lengths */
	uint16_t code_offset;	/* bytes from this struct */
	uint16_t code_bytes;	/* without literals and exits */
	uint16_t bytes;		/* all of it */
	uint16_t loops;		/* number of struct loop */
	uint16_t loops_offset;	/* bytes from this struct */
	uint16_t fixups;	/* number of struct fixup, behind the loops; ascending */
	uint16_t constants;	/* number of int16_t behind them: see region_sum() */
	uint16_t runs;		/* number of struct run behind them */
	uint32_t sum;		/* of the guest code that it was made of, if that has been computed */
	uint8_t lengths[];
};

/* Where some guest registers are host addresses: by index of guest words or halfwords. */
struct loop {
	uint16_t first;		/* its beginning is not yet: there they become so */
	uint16_t last;
	uint16_t hosted;	/* one bit for each register */
};

/*
 * An inlined function, or the region's own code behind one, by turns: where it begins, by index of words or halfwords,
 * and its address there.
 */
struct run {
	uint16_t first;
	uint16_t guest[2];	/* low half, high half; even */
};

/* What the executor must know of an access that faults, besides its guest instruction. */
enum fixup_kind {
	/* An indirect branch: the scratch register, or of T32 also lr, says where the target's entry is. */
	FIX_TARGET,
	FIX_HOST_BASE,		/* a guest register is a host address */
	FIX_MOVED_BASE,		/* the base register has moved already */
	FIX_RENAMED,		/* a guest register is on the stack, which has moved by a word: see rename.c */
	FIX_PAIR,		/* two words at a register, which must be aligned: see pair.c */
	FIX_SAVED,		/* guest registers are in offload_state.saved, SP may have moved: see plain/ */
};

/* Of code from one offset to another. */
struct fixup {
	uint16_t from, to;
	uint8_t kind;		/* enum fixup_kind */
	uint8_t number;		/* of a register */
};

/* A board with little memory has fewer regions and a smaller hash table (build.sh). */
#ifndef CACHE_REGIONS
#define CACHE_REGIONS 4096
#define CACHE_OUTSIDE 1024
#endif
enum { FIXUPS_MAX = 160, LOOPS_MAX = 8, CONSTANTS_MAX = 128, RUNS_MAX = 16, REGIONS_MAX = CACHE_REGIONS };
enum { OUTSIDE_MAX = CACHE_OUTSIDE, OUTSIDE_PROBES = 3 };

struct code_cache {
	uint8_t *bytes;
	uint32_t address;	/* host address of bytes */
	uint32_t size;
	uint32_t used;
	uint32_t *table[2];	/* target tables of A32 and T32 */
	uint32_t table_words[2];
	uint32_t table_guest;	/* guest address of their first entries */
	uint32_t regions;
	/* Counters, for reports. */
	uint32_t flushes;
	uint32_t translated_regions;
	uint32_t translated_instructions;
	uint32_t emitted_bytes;
	uint32_t region[REGIONS_MAX];	/* offsets, ascending */
	/* Entries for code that is in no table: a hash table. */
	struct { uint32_t guest, host; } outside[OUTSIDE_MAX];
};

/* Empties a cache whose target tables are empty. */
void cache_init(struct code_cache *cache);
/* The counters begin at 0. */
void cache_count(struct code_cache *cache);
void cache_flush(struct code_cache *cache);
uint32_t cache_find(const struct code_cache *cache, uint32_t guest);
void cache_enter(struct code_cache *cache, uint32_t guest, uint32_t host);
/* The region whose code, literals or exits contain a host address; none: 0. */
struct region *cache_region_at(const struct code_cache *cache, uint32_t host);
/* Index of the guest instruction of a host address within a region; *offset is how far into its code. */
uint32_t region_index_of(const struct code_cache *cache, const struct region *region,
			 uint32_t host, uint32_t *offset);
/* Its address. */
uint32_t region_guest_at(const struct region *region, uint32_t index);
/* The guest registers that are host addresses there, so far into its code. */
uint32_t region_hosted(const struct region *region, uint32_t index, uint32_t offset);
/* Host address of a region's code. */
uint32_t region_host_of(const struct code_cache *cache, const struct region *region);
/* The fix-up of code at an offset; NULL: none is needed. */
const struct fixup *region_fixup(const struct region *region, uint32_t offset);
/*
 * A checksum of the guest code that a region is made of: its own words, those of inlined functions, and the constants
 * outside of it, each by its distance in words. first: the word with the region's first instruction. FNV-1a on words: each step is a bijection,
 * so a change of one word always changes the sum.
 */
uint32_t region_sum(const struct region *region, const uint8_t *first);
/* Whether a region is made of the instruction at an address. */
bool region_covers(const struct region *region, uint32_t guest);
/* ITSTATE at an index of a region. */
uint32_t region_it(const struct region *region, uint32_t index);

#endif
