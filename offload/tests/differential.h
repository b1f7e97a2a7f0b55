/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shared by the comparisons with an oracle. */
#ifndef OFFLOAD_TESTS_DIFFERENTIAL_H
#define OFFLOAD_TESTS_DIFFERENTIAL_H

#include "edge.h"

/* Unicorn's Cortex-A15. */
struct oracle {
	uc_engine *core;
	uint8_t *memory;
	uint32_t base;
};

/* Where guest memory is, and the scratch register. */
struct world {
	uint32_t base, scratch;
	bool other_table;	/* the target table is of the other instruction set */
};

enum { WORLDS = 8 };
/* Undefined as a word of A32 and as both halfwords of T32, the second after a branch to the first. */
#define MARKER 0xe7fddefeu

extern const struct world worlds[WORLDS];
extern struct edge *edges[WORLDS];
extern struct oracle oracles[WORLDS];
extern uint64_t dice_state;

uint32_t dice(void);
uint32_t below(uint32_t limit);
struct oracle oracle_new(uint32_t base);
/* Runs until an instruction that stops, or the maximum; true: it stopped at the MARKER. */
bool oracle_run(struct oracle *oracle, struct offload_cpu *cpu, uint32_t max_instructions);
/* Whether it read what is just below its stack pointer: at an address from before that moved, say. */
extern bool oracle_exposed;
/* Where the oracle's last access found nothing. It may go on for an instruction after a store. */
extern uint32_t oracle_missed, oracle_stacks[64], oracle_stack_count;
/* Whether the oracle knows no such instruction; whether it stopped because of the maximum. */
extern bool oracle_undefined, oracle_ran_out;
/* A halfword of the oracle's memory; 0 outside of it. */
uint32_t half_at(const struct oracle *oracle, uint32_t address);
/* thumb: the instruction set of the code. */
void make_worlds(bool thumb, uint32_t options, uint32_t cache_size);
/* Makes register fields of a word of a table's line likely to be those that are treated apart. */
uint32_t favour_special_registers(const char *pattern, uint32_t code, uint32_t scratch);
void put_word(uint8_t *memory, uint32_t offset, uint32_t word);
void put_half(uint8_t *memory, uint32_t offset, uint32_t half);
void randomise_memory(uint8_t *memory);
/* No exclusive access of an earlier run is open any more. */
void oracle_clear_exclusive(struct oracle *oracle);
/* Both get the same memory and code; all other code is MARKER. */
void load_code(struct oracle *oracle, struct edge *edge, const uint32_t *words, uint32_t count,
	       uint32_t offset);
void random_state(struct offload_cpu *cpu, uint32_t base);
/* Makes the addresses of a load or store likely to be good ones; the word has A32's fields. */
void aim(struct offload_cpu *cpu, enum a32_op op, uint32_t word, uint32_t base);
bool is_transfer(enum a32_op op);
/*
 * Whether it reads what is below SP, or makes it part of the stack without writing it: memory that
 * an interrupt may use at any time, and the translator does.
 */
bool exposes_stack(enum a32_op op, uint32_t word);
/* Runs both from one state, the oracle up to a maximum of instructions; false: they differ. */
bool compare(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start,
	     uint32_t bytes, uint32_t max_instructions);

/* As compare(); while the code cache is kept, also from other memory and with other code. */
bool compare_block(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start, uint32_t bytes,
		   uint32_t max_instructions);
/* The code cache is kept from run to run. */
extern bool keeping;

/* The executor hands back to the big core at this guest address; 0: nowhere. */
void hand_back_at(struct edge *edge, uint32_t address);
/* It does so behind a random number of host instructions of each run, at the end of a guest instruction. */
extern bool interrupting;
/* How often it did. */
extern uint32_t handed_back;

/* Random blocks at an offset in memory; the distance to one of their instructions is returned. */
uint32_t put_block(uint8_t *memory, uint32_t offset);
uint32_t put_thumb_block(uint8_t *memory, uint32_t base, uint32_t offset);
/* The registers that blocks have as bases and count loops with. */
void block_registers(struct offload_cpu *cpu, uint32_t base, bool thumb);

int check_instructions(uint32_t wanted, uint32_t options);
/* hand_back: at one instruction of each block, where the oracle goes on. */
int check_blocks(uint32_t wanted, uint32_t options, uint32_t cache_size, bool hand_back);
int check_thumb_instructions(uint32_t wanted, uint32_t options);
int check_thumb_blocks(uint32_t wanted, uint32_t options, uint32_t cache_size, bool hand_back);
/* Stores of a guest to where the executor's memory is; each must be a stop. */
int check_wild_stores(uint32_t wanted);
/* Blocks and loops of both instruction sets with a code cache that is kept. */
int check_kept(uint32_t wanted, uint32_t options, uint32_t cache_size);
/* caches/: the hand-over on a big core with caches, and with each of its steps left out. */
int check_caches(uint32_t wanted);
int check_loops(uint32_t wanted, uint32_t options, uint32_t cache_size, bool thumb);
int check_directed(uint32_t wanted, uint32_t options, uint32_t cache_size);

#endif
