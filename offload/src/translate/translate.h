/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Translates A32 and T32 to what a Cortex-M3 executes, a region at a time, into the code cache.
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

#include "cache/cache.h"
#include "decode/a32.h"
#include "emit/t32.h"
#include "job.h"
#include "offload.h"

/* What translated code reads and writes besides guest memory; at a host address below 64 KiB, or with protection. */
struct offload_state {
	/*
	 * The only words that fully optimised code writes: the guest's value of the scratch register, and a check
	 * word that makes SCRATCH_SUM with it. The memory protection unit keeps all others from a wild store;
	 * STATE_WINDOW_BYTES, with STATE_GUARD in the other words, is the smallest area that it knows. A store that
	 * hits them is noticed when the executor is called next: writing a new value makes the check word of the
	 * old sum, so that what was wrong with it stays wrong (scratch.c).
	 */
	uint32_t guard_before[3];
	uint32_t scratch;
	uint32_t check;
	uint32_t guard_behind[3];
	uint32_t registers[16];	/* those that have no host register of their own */
	uint32_t flags[5];	/* N, Z, C, V, Q, each 0 or 1; without OPTION_FLAGS */
	uint32_t pending;	/* an interrupt is; without OPTION_INTERRUPTS */
	uint32_t saved[4];	/* host registers, during one access to memory */
	uint32_t control;	/* CPSR's A, I, F and mode */
	uint32_t status;	/* what MRS reads besides flags: control without T, and GE */
	uint32_t thread[3];	/* TPIDRURW, TPIDRURO, TPIDRPRW */
	/* Pages that were walked to, by number modulo TLB_PAGES; without OPTION_LINEAR. */
	struct { uint32_t page, addend; } tlb[128];
};
/* Below it are this many bytes of stack, for when the guest's is not the host's. */
enum { STATE_STACK_BYTES = 256, STATE_WINDOW_BYTES = 32, TLB_PAGES = 128 };
/* Translated code may keep registers in so many bytes below the guest's SP. */
enum { BELOW_STACK_BYTES = 16 };
#define STATE_GUARD 0x5afec0deu
/*
 * Odd, so that no two equal words make it. Rotating it changes nothing, but moves an error on at each write: a
 * second store of the same difference does not make up for the first.
 */
#define SCRATCH_SUM 0xa5a5a5a5u
enum { SCRATCH_SUM_PERIOD = 8 };

static inline void set_guest_scratch(struct offload_state *state, uint32_t value)
{
	state->scratch = value;
	state->check = SCRATCH_SUM - value;
}

/* Numbers of the supervisor calls by which translated code calls the executor. */
enum offload_call {
	CALL_CHAIN,		/* words behind it: guest target, host address of the branch to patch */
	CALL_INTERPRET,		/* the guest instruction that it stands for */
	CALL_STOP,		/* the same, but it will stop */
	CALL_NATIVE,		/* word behind it: number of the native function */
	CALL_DISPATCH,		/* guest target in the scratch register */
	CALL_EXIT,		/* word behind it: guest target */
	CALL_POLL,		/* an interrupt is pending at this instruction */
	CALL_CONTROL,		/* halfword behind it: enum control_change, and a register's number */
	CALL_WALK,		/* guest address in the scratch register: its page is not in the TLB */
};

/* What CALL_CONTROL does to CPSR's A, I and F: sets or clears some, or takes I and F from a register. */
enum control_change { CONTROL_SET = 0x100, CONTROL_CLEAR = 0x200, CONTROL_FROM = 0x300, CONTROL_BITS = 0xff };

/* With all of these translated code writes nothing of struct offload_state but scratch. */
enum {
	OPTIONS_PROTECTING_STATE = OPTION_REGISTERS | OPTION_FLAGS | OPTION_STACK | OPTION_LINEAR |
		OPTION_PROTECTION,
};

/* Of a region: A32 words or T32 halfwords, and how many there may be without an IT block's end. */
enum {
	REGION_MAX = 256, REGION_DEFAULT = 192, EXITS_MAX = 96,
	SET_WORDS = REGION_MAX / 32 + 1, NO_PLACE = 0xffff,
};

/* What the scratch register holds besides temporary values. */
enum scratch_holds {
	HOLDS_NOTHING,
	HOLDS_GUEST,	/* its own guest value */
	HOLDS_BASE,	/* the host address of a guest register's address */
	HOLDS_DISTANCE,	/* from guest addresses to host addresses */
};

struct held {
	uint8_t what;	/* enum scratch_holds */
	uint8_t base;	/* the guest register of HOLDS_BASE, or 0 */
	uint16_t hosted;	/* guest registers that are host addresses, one bit each */
};

struct translator {
	struct emitter code;	/* first, so that its address is the translator's */

	/* What the runtime provides. */
	const struct offload_layout *layout;
	struct code_cache *cache;
	/* Reads an aligned word of guest code; false: it is unmapped. */
	bool (*fetch)(void *owner, uint32_t address, uint32_t *word);
	/* Number of the native function at a guest address, or -1. */
	int (*native)(void *owner, uint32_t address);
	void *owner;
	uint32_t max_units;	/* words or halfwords of a region */
	bool without_pairs;	/* see pair.c */

	/* The region being made (extent.c); arrays with an entry for each of its words are valid that far. */
	uint32_t guest;		/* its first instruction; bit 0: T32 */
	uint32_t unit;		/* 4, or 2 in T32 */
	uint32_t count;
	uint32_t runs;
	struct { uint32_t guest, first; } run[RUNS_MAX + 1];	/* as of struct region; the first is the region's beginning */
	bool exclusives_interpreted;
	bool inlines;	/* OPTION_INLINE, and all that it needs */
	bool carries;	/* OPTION_CARRY, and all that it needs */
	bool hosts;	/* OPTION_LOOPS, too */
	uint32_t label[SET_WORDS];
	uint32_t reached[SET_WORDS];
	uint32_t comeback[SET_WORDS];	/* behind a call */
	uint8_t back[REGION_MAX + 2];	/* the last branch back to it, or 0 */
	uint8_t it[REGION_MAX + 2];	/* ITSTATE at each */
	struct instruction list[REGION_MAX];

	/* The instruction being made (instruction.c). */
	uint32_t address, index;
	struct instruction in;
	bool interpret;		/* leave this one to the interpreter */
	bool ends_it;		/* it ends an IT block */
	bool alone;		/* nothing behind it can be made as part of it */
	uint32_t done;		/* index of the last instruction whose work one before it has done, or 0 */
	/* Set of registers that are on the stack for load_guest_scratch() to store_guest_scratch(), or 0. */
	uint16_t slot_registers;
	uint32_t pushed;	/* words, by what is being made (plain/) */

	/*
	 * Sets of registers that are the guest's SP plus an offset since an instruction before this one, and since
	 * this one.
	 */
	uint16_t stack_copies, stack_copy;
	uint32_t stack_offset[16];

	/* What the scratch register holds (scratch.c, label.c). */
	uint8_t holds;
	uint8_t held_base;
	int16_t held_offset;	/* HOLDS_DISTANCE: what is added to it; not carried unless it is 0 */
	/*
	 * Of a label: what the scratch register holds behind inner. A branch that comes with something
	 * else enters at outer; before it is laid out that is NO_PLACE if it is not in the code itself.
	 */
	struct held settled[REGION_MAX + 2];
	uint16_t inner[REGION_MAX + 2];
	uint16_t outer[REGION_MAX + 2];

	/* Loops whose pointers are host addresses (loop.c). */
	uint16_t hosted;	/* what of struct held is now */
	uint16_t tried;	/* of these: where the loop's entry reads memory */
	uint32_t loops;
	struct loop loop[LOOPS_MAX];

	/* The open IT block. */
	uint16_t it_at;
	uint8_t it_count;
	uint8_t it_cond;
	uint8_t it_pattern;	/* bit i: instruction i is under the inverse condition */
	/* Behind the last conditional instruction: what is held where it was executed. */
	uint8_t kept_cond;
	uint16_t kept_at;
	struct held kept;

	/* What is laid out behind the code (layout.c). */
	uint16_t offset[REGION_MAX + 2];
	uint16_t exits;
	/* index: where in this region it leads to, or REGION_MAX */
	struct { uint16_t at; struct held held; uint16_t index; uint32_t target; } exit[EXITS_MAX];
	uint32_t fixups;
	struct fixup fixup[FIXUPS_MAX];

	/* Words of text that it holds the values of, by their distance from its first: see region_sum(). */
	uint32_t constants;
	int16_t constant[CONSTANTS_MAX];
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

/* Whether an indirect branch of the instruction being made goes through the target table. */
static inline bool uses_table(const struct translator *x)
{
	return translator_option(x, OPTION_TABLE) && x->in.thumb == (x->layout->thumb != 0);
}

static inline uint32_t scratch(const struct translator *x)
{
	return x->layout->scratch;
}

static inline uint32_t delta(const struct translator *x)
{
	return x->layout->host_base - x->layout->guest_base;
}

/* To twice a T32 address, bit 0 included, from its entry in the target table. */
static inline uint32_t table_of_link(const struct offload_layout *layout)
{
	return layout->table_base - 2 * layout->guest_base - 2;
}

static inline bool protects_state(const struct offload_layout *layout)
{
	return (layout->options & OPTIONS_PROTECTING_STATE) == OPTIONS_PROTECTING_STATE;
}

/*
 * What was emitted from an offset on, if it faults, has left a register as a kind of fix-up says. Only
 * what differs from the guest's state before the instruction needs one.
 */
void add_fixup(struct translator *x, uint32_t from, enum fixup_kind kind, uint32_t number);

/* The instruction at an address (bit 0: T32) with an ITSTATE; false: unmapped. */
bool translator_fetch(const struct translator *x, uint32_t guest, uint32_t it,
		      struct instruction *in);

/* One load or store of a word, halfword or byte. */
struct access {
	uint32_t kind;		/* KIND_… */
	bool load;
	uint32_t t, n, m;	/* m: 16 if the offset is a constant */
	uint32_t type, amount;	/* shift of m */
	int32_t offset;
	bool up, before, move;
};
struct access access_of(const struct instruction *in);
/* The same, but at the stack pointer, which is a host address, if its base is a copy of that. */
struct access access_by_stack(const struct translator *x, const struct instruction *in);
/* An access and one behind it as one. False: there is no such pair. */
bool translate_pair(struct translator *x, const struct access *a);
/*
 * Whether it accesses its base register's own address, before or after that moves: the scratch
 * register can then hold what is added to it.
 */
static inline bool is_at_base(const struct access *a)
{
	return a->m == 16 && (a->move || !a->offset);
}
/* What must be added to its base register, besides the distance to host addresses. */
enum { NO_DISTANCE = 0x10000 };
static inline int32_t distance_of(const struct access *a)
{
	return a->m != 16 ? NO_DISTANCE : a->move ? 0 : a->offset;
}

void translate_body(struct translator *x);
void translate_data(struct translator *x);
void translate_media(struct translator *x);
void translate_transfer(struct translator *x);
void translate_double(struct translator *x);
void translate_multiple(struct translator *x);
void translate_exclusive(struct translator *x);
void translate_branch(struct translator *x);
void translate_compare_branch(struct translator *x);
void translate_table_branch(struct translator *x);
void translate_barrier(struct translator *x);
void translate_thread_register(struct translator *x);
void translate_status(struct translator *x);
/* A branch to a guest address, its encoding's halves first and second; laid out later. */
void leave_by_branch(struct translator *x, uint32_t target, uint32_t first, uint32_t second);

/* --- plain/: without some of the optimisations --- */

/* Whether this instruction is translated by translate_plain(). */
bool is_plain(const struct translator *x);
void translate_plain(struct translator *x);
/* Polls for an interrupt. */
void translate_poll(struct translator *x);
/* The host registers that are in offload_state.saved while an instruction accesses memory. */
uint32_t plain_saved(const struct offload_layout *layout, const struct instruction *in);
/* How far the host's SP has moved by then. */
int32_t plain_moved_stack(const struct offload_layout *layout, const struct instruction *in);

/* From a guest address to its entry in the target table, once the scratch register holds the address. */
uint32_t table_delta(const struct translator *x);
/* Goes to the address that the entry at the scratch register holds. */
void load_target(struct translator *x);
/* Branches to the guest address that register holds; lr becomes link first, if link is not 0. */
void emit_dispatch(struct translator *x, uint32_t number, uint32_t link);
/*
 * Whether the instruction at an index can be made as part of x->in (done), if it stands directly behind it or behind
 * another that can: control comes to it from there only, and neither of them is conditional.
 */
bool is_joinable(const struct translator *x, uint32_t index);
/* Whether an instruction neither accesses memory nor branches, nor needs another temporary register. */
bool computes(const struct instruction *in);
/* A constant's low half, then its high half by movt: one instruction. False: not such a pair. */
bool load_constant_pair(struct translator *x);
/* Puts the guest value of the scratch register there, and writes it back after a change. */
void load_guest_scratch(struct translator *x);
/* Puts it into another register, and leaves in the scratch register what it holds. */
void load_guest_scratch_to(struct translator *x, uint32_t d);
/* Writes it back by way of the lowest SLOT_TEMPORARIES of a set of registers, which change. */
enum { SLOT_TEMPORARIES = 3 };
void replace_guest_scratch(struct translator *x, uint32_t temporaries);
void store_guest_scratch(struct translator *x);
/* Its guest value becomes that of another register. */
void copy_to_guest_scratch(struct translator *x, uint32_t number);
/* Whether the scratch register holds the host address of a guest register's address. */
static inline bool holds_base(const struct translator *x, uint32_t number)
{
	return x->holds == HOLDS_BASE && x->held_base == number;
}
/* A guest register is written: what the scratch register holds of it is old. */
void forget_base(struct translator *x, uint32_t number);
/* Puts the host address of a part of struct offload_state into a register, with one instruction. */
void state_address(struct translator *x, uint32_t number, uint32_t offset);
/* The scratch register is about to be used for something else. */
uint32_t take_scratch(struct translator *x);
bool uses_scratch(const struct translator *x, uint32_t number);
/*
 * Whether the scratch register holds the distance from guest to host addresses plus an offset, for an
 * access at register n; puts it there where that is better than host_base_register().
 */
bool has_distance(struct translator *x, uint32_t n, int32_t offset);
/* Whether the next instructions need the scratch register's guest value before they need an address. */
bool reads_scratch_soon(const struct translator *x);
/* Whether it holds its guest value, and that is better than an address for the access being made. */
bool keeps_guest_scratch(const struct translator *x);
/* Whether an instruction accesses memory by way of the scratch register; *n is its base then. */
bool needs_address(const struct translator *x, const struct instruction *in, uint32_t *n);
/* Whether the distance with an offset is all that an access needs; the base moves only if that is 0. */
bool is_distance_enough(const struct translator *x, const struct instruction *in, int32_t offset);
/* --- runs.c: the region's instructions, in the order of their code --- */

/* The address of an index. */
uint32_t address_of(const struct translator *x, uint32_t index);
/* Index of a branch's target, from the index of the branch; REGION_MAX: it is not in this region. */
uint32_t index_of(const struct translator *x, uint32_t target, uint32_t from);
/* Words or halfwords that the instruction at an index takes. */
uint32_t units_of(const struct translator *x, uint32_t index);
/* Index of the instruction behind one. */
uint32_t index_behind(const struct translator *x, uint32_t index);
/* Whether an index is of an inlined function. */
bool is_inlined(const struct translator *x, uint32_t index);
/* Words or halfwords of the region's own. */
uint32_t own_units(const struct translator *x);

/* --- label.c, scratch.c --- */

/* A label: chooses what the scratch register holds from there on. */
void settle_label(struct translator *x, uint32_t index, bool falls_in, bool from_outside);
/* Code that puts there what is to be held. */
void emit_held(struct translator *x, struct held held);
static inline struct held held_now(const struct translator *x)
{
	if (x->holds == HOLDS_DISTANCE && x->held_offset)
		return (struct held){ HOLDS_NOTHING, 0, x->hosted };
	return (struct held){ x->holds, x->holds == HOLDS_BASE ? x->held_base : 0, x->hosted };
}
static inline bool same_held(struct held a, struct held b)
{
	return a.what == b.what && a.base == b.base && a.hosted == b.hosted;
}
static inline bool translator_is_label(const struct translator *x, uint32_t index)
{
	return (x->label[index / 32] | x->comeback[index / 32]) >> (index % 32) & 1;
}
/* Whether a guest register, not the scratch register, is a host address by itself. */
static inline bool is_host_address(const struct translator *x, uint32_t number)
{
	return number == SP || !delta(x) || (x->hosted >> number & 1);
}
/* A register with the host address for guest base register n, not changed by it. */
uint32_t host_base_register(struct translator *x, uint32_t n);

/* --- loop.c: loops whose pointers are host addresses --- */

/* Whether host addresses are in the order of the guest's, near guest memory. */
bool may_host(const struct offload_layout *layout);
/* A label that is branched back to: whether such a loop begins there; which registers, x->hosted. */
bool begin_loop(struct translator *x, uint32_t index);
/* Its way in: makes the host addresses. */
void enter_loop(struct translator *x);
/* Behind each instruction; goes_on: control does. */
void end_loop(struct translator *x, uint32_t index, bool goes_on);
/* Makes guest addresses of them. */
void emit_guest_addresses(struct translator *x, uint32_t hosted);

#endif
