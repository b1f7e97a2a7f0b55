/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A big core with caches: Unicorn's Cortex-A15 executes, hierarchy.h has its data, and what it shares with the small
 * core without caching passes a write buffer.
 */
#ifndef OFFLOAD_TESTS_CACHES_BIG_CORE_H
#define OFFLOAD_TESTS_CACHES_BIG_CORE_H

#include "../differential.h"
#include "big/control.h"
#include "handover.h"
#include "hierarchy.h"

/* A step of the hand-over that is left out, which must be found. */
enum fault {
	FAULT_NONE,
	FAULT_NO_FIRST_FLUSH,	/* maintenance before the offer does nothing */
	FAULT_NO_LAST_FLUSH,	/* maintenance behind the offer does nothing */
	FAULT_OFFER_FIRST,	/* the small core begins when the flush does */
	FAULT_CLEAN_ONLY,	/* lines are cleaned and not invalidated */
	FAULT_FIRST_LEVEL,	/* only the first level is maintained */
	FAULT_NO_BARRIERS,	/* DSB and DMB do nothing */
	FAULT_NO_LEVEL_BARRIER,	/* DSB between the levels does nothing: erratum 814220 */
	FAULT_CACHES_ON,	/* the data cache is never switched off */
	FAULT_LATE_RING,	/* the mailbox's driver writes memory behind the offer */
	FAULT_READS_ONCE,	/* the small core runs what it has taken without reading the offer again */
	FAULT_TAKES_OLD,	/* the small core takes any offer but its last answer */
	FAULTS,
};

enum { PENDING_MAX = 4096, STORES_MAX = 4096, RECENT_MAX = 64 };

struct big_core {
	uc_engine *core;
	uint8_t *program;	/* PROGRAM_BYTES of it */
	uint8_t *view;		/* what an access reads and writes: put there, and taken from there, around it */
	struct hierarchy caches;
	bool on;		/* SCTLR.C */
	bool speculates;
	uint32_t selected;	/* CSSELR */
	/* Maintenance that no DSB has completed. */
	struct {
		uint32_t word;
		bool by_address, clean, invalidate;
	} pending[PENDING_MAX];
	uint32_t pendings;
	/* A register that the last instruction has read from the emulator, and what this core has there. */
	int corrected;
	uint32_t correct_value;
	/* The hand-over, as this core and as the small core sees it, and stores on the way. */
	uint8_t *shared;
	uint8_t *seen;
	struct {
		uint32_t offset, value;
	} stores[STORES_MAX];
	uint32_t stores_count;
	struct control *control;
	/* Addresses that this core accessed lately, and the small core wrote: where speculation is worth most. */
	uint32_t recent[RECENT_MAX], foreign[RECENT_MAX];
	uint32_t foreign_count;
	uint32_t delay;		/* of so many instructions one completes something that waits for a barrier */
	enum fault fault;
	bool offered, maintains;
	uint32_t step_us;	/* of time, each time it is read */
	/* Something executed or was read by this core: the small core may go on. */
	void (*passes)(void);
	uint64_t maintenance, loads, speculated;
};

struct big_core *big_core_new(const char *program);
/* Random empty caches, the data cache on. again: the hand-over's memory stays what it is; otherwise it is 0. */
void big_core_reset(struct big_core *big, uint8_t *memory, enum fault fault, bool again);
/* Some lines are in the caches, a part of them dirty, with other data in memory. */
void big_core_warm(struct big_core *big);
/* Runs until the MARKER or another instruction that stops, or up to a maximum; false: it failed. */
bool big_core_run(struct big_core *big, struct offload_cpu *cpu, uint32_t max_instructions);
/* A line may come in, or leave, whatever is executed. */
void big_core_speculate(struct big_core *big);
/* The small core writes a word or more that this core reads. */
void big_core_share(struct big_core *big, uint32_t offset, uint32_t bytes);
/* All stores are seen. */
void big_core_drain(struct big_core *big);
/* The small core writes to an address. */
void big_core_note_foreign(struct big_core *big, uint32_t address);

#endif
