/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Translates A32 to T32, a region at a time, into the code cache.
 *
 * A region is guest code in its own order, from an entry to where nothing falls through or
 * branches forward any more; so most of it costs no branch that the guest did not have.
 *
 * One register, the scratch register, is the translator's; its guest value is in memory
 * (struct offload_state). Nothing that a guest can see changes before the last access of an
 * instruction to memory, so that an instruction whose access faults can be executed anew.
 */
#ifndef OFFLOAD_TRANSLATE_H
#define OFFLOAD_TRANSLATE_H

#include "a32.h"
#include "cache.h"
#include "offload.h"

/* What translated code reads and writes besides guest memory; at a host address below 64 KiB. */
struct offload_state {
	uint32_t registers[16];	/* the scratch register's guest value; all of them in baseline mode */
	uint32_t flags[5];	/* N, Z, C, V, Q, each 0 or 1: baseline mode */
	uint32_t pending;	/* baseline mode: an interrupt is pending */
	uint32_t spill[4];
	uint32_t control;	/* CPSR's A, I, F, T and mode */
	uint32_t thread[3];	/* TPIDRURW, TPIDRURO, TPIDRPRW */
};

/* Numbers of the supervisor calls by which translated code calls the executor. */
enum offload_call {
	CALL_CHAIN,		/* words behind it: guest target, host address of the branch to patch */
	CALL_INTERPRET,		/* the guest instruction that it stands for */
	CALL_STOP,		/* the same, but it will stop */
	CALL_NATIVE,		/* word behind it: number of the native function */
	CALL_DISPATCH,		/* guest target in the scratch register */
	CALL_EXIT,		/* word behind it: guest target */
	CALL_POLL,		/* an interrupt is pending at this instruction */
	CALL_LOAD,		/* number + size and sign: see translate_plain.c */
	CALL_STORE,
};

/* Switches, one for each optimisation; all clear is the baseline. */
enum offload_option {
	OPTION_REGISTERS = 1 << 0,	/* guest registers in host registers */
	OPTION_FLAGS = 1 << 1,		/* guest flags in host flags */
	OPTION_STACK = 1 << 2,		/* guest stack through the host's stack pointer */
	OPTION_CHAIN = 1 << 3,		/* blocks branch to each other, also across pages */
	OPTION_INTERRUPTS = 1 << 4,	/* interrupts are looked for every few dozen blocks */
	OPTION_LINEAR = 1 << 5,		/* linear addresses: a check and an addition, no walk */
	OPTION_PROTECTION = 1 << 6,	/* the check is the memory protection unit's */
	OPTION_TABLE = 1 << 7,		/* indirect branches through the target table */
	OPTION_REGIONS = 1 << 8,	/* a region has many blocks, not one */
	OPTIONS_ALL = (1 << 9) - 1,
};

/* Where a guest's memory is, and how it is to be translated. */
struct offload_layout {
	uint32_t guest_base;	/* first linear-mapped guest address */
	uint32_t size;		/* bytes of guest memory */
	uint32_t host_base;
	uint32_t text_start;	/* guest code: never written to */
	uint32_t text_end;
	uint32_t table_base;	/* host address of the entry for guest_base */
	uint32_t state;		/* host address of struct offload_state */
	uint32_t options;
	uint32_t scratch;	/* number of the scratch register */
};

enum { REGION_MOST = 192, LITERALS_MOST = 96, EXITS_MOST = 96 };

/* What the scratch register holds besides temporary values. */
enum scratch_holds { HOLDS_NOTHING, HOLDS_GUEST, HOLDS_BASE };

struct translator {
	const struct offload_layout *layout;
	struct code_cache *cache;
	/* Reads a word of guest code; false: it is unmapped. */
	bool (*fetch)(void *owner, uint32_t address, uint32_t *word);
	/* Number of the native function at a guest address, or -1. */
	int (*native)(void *owner, uint32_t address);
	void *owner;

	/* The region being made. */
	uint32_t most;		/* guest instructions of a region */
	uint32_t guest;		/* its first instruction */
	uint32_t count;
	uint32_t address;	/* of the instruction being made */
	uint32_t word;
	enum a32_op op;
	uint16_t at;		/* bytes emitted */
	uint16_t emitted;	/* host instructions of this guest instruction */
	uint16_t flags_set_at;	/* the last of them that sets flags; 0: none */
	bool interpret;		/* leave this one to the interpreter */
	bool keep_single;	/* it cannot stand in an IT block */
	bool ends_it;		/* it ends an IT block */
	bool exclusives_interpreted;
	bool overflow;
	uint8_t holds;
	uint8_t held_base;
	/* The open IT block. */
	uint16_t it_at;
	uint8_t it_count;
	uint8_t it_cond;
	uint8_t it_pattern;	/* bit i: instruction i is under the inverse condition */

	uint8_t label[(REGION_MOST + 8) / 8];
	uint8_t reached[(REGION_MOST + 8) / 8];
	uint16_t offset[REGION_MOST + 1];
	uint32_t words[REGION_MOST];
	uint8_t ops[REGION_MOST];
	struct { uint16_t at; uint32_t value; } literal[LITERALS_MOST];
	uint16_t literals;
	struct { uint16_t at; uint32_t target; } exit[EXITS_MOST];
	uint16_t exits;
	uint8_t *out;
	uint32_t host;		/* host address of out */
	uint32_t room;
};

/*
 * Translates the region that begins at a guest address. Returns the host address of its code
 * (bit 0 set), or 0: the cache is full (empty it and try again), or there is no code there
 * (*unmapped).
 */
uint32_t translate_region(struct translator *x, uint32_t guest, bool *unmapped);

/* --- shared by the parts of the translator --- */

static inline bool translator_option(const struct translator *x, uint32_t option)
{
	return x->layout->options & option;
}

static inline uint32_t scratch(const struct translator *x)
{
	return x->layout->scratch;
}

static inline uint32_t delta(const struct translator *x)
{
	return x->layout->host_base - x->layout->guest_base;
}

void translate_body(struct translator *x);
void translate_data(struct translator *x);
void translate_media(struct translator *x);
void translate_transfer(struct translator *x);
void translate_multiple(struct translator *x);
void translate_exclusive(struct translator *x);
void translate_branch(struct translator *x);
/* When registers, flags or stack are not the host's own. */
void translate_plain(struct translator *x);

/* Branches to the guest address that register holds; lr becomes link first, if link is not 0. */
void emit_dispatch(struct translator *x, uint32_t number, uint32_t link);
/* Puts the guest value of the scratch register there, and writes it back after a change. */
void load_guest_scratch(struct translator *x);
void store_guest_scratch(struct translator *x);
/* A guest register is written: what the scratch register holds of it is old. */
void forget_base(struct translator *x, uint32_t number);
/* The scratch register is about to be used for something else. */
uint32_t take_scratch(struct translator *x);
bool uses_scratch(const struct translator *x, uint32_t number);
/* A register with the host address for guest base register n, not changed by it. */
uint32_t host_base_register(struct translator *x, uint32_t n);

#endif
