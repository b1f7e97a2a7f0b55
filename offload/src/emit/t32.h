/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Emits T32 instructions; names and operands as in assembler syntax, d n m registers. */
#ifndef OFFLOAD_T32_H
#define OFFLOAD_T32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LITERALS_MAX = 96 };

/* Where code is being written, and what its last instructions mean for an IT block around them. */
struct emitter {
	uint8_t *out;
	uint32_t host;		/* host address of out */
	uint32_t room;		/* bytes */
	uint16_t at;		/* bytes emitted */
	uint16_t emitted;	/* host instructions of this guest instruction */
	uint16_t flags_set_at;	/* the last of them that sets flags; 0: none */
	uint16_t literals;
	bool keep_single;	/* what was emitted cannot stand in an IT block */
	bool overflow;		/* there was no room */
	struct { uint16_t at; uint32_t value; } literal[LITERALS_MAX];
};

/* T32's operations of data processing (bits 24:21 of the encoding). */
enum t32_op {
	T32_AND = 0, T32_BIC = 1, T32_ORR = 2, T32_ORN = 3, T32_EOR = 4,
	T32_ADD = 8, T32_ADC = 10, T32_SBC = 11, T32_SUB = 13, T32_RSB = 14,
};

void emit16(struct emitter *e, uint32_t half);
void emit32(struct emitter *e, uint32_t first, uint32_t second);

/* The encoding of a modified immediate, or -1. */
int t32_modified(uint32_t value);

void t32_immediate(struct emitter *e, enum t32_op op, bool set, uint32_t d, uint32_t n,
		   uint32_t encoded);
void t32_register(struct emitter *e, enum t32_op op, bool set, uint32_t d, uint32_t n,
		  uint32_t m, uint32_t type, uint32_t amount);
void t32_shift(struct emitter *e, uint32_t type, bool set, uint32_t d, uint32_t m, uint32_t s);
void t32_mov(struct emitter *e, uint32_t d, uint32_t m);
void t32_movw(struct emitter *e, uint32_t d, uint32_t value);
void t32_movt(struct emitter *e, uint32_t d, uint32_t value);
/* d = d + m; flags stay. */
void t32_add_to(struct emitter *e, uint32_t d, uint32_t m);
/* d = n + value or n - value, any value; d may be used on the way. */
void t32_add_constant(struct emitter *e, uint32_t d, uint32_t n, uint32_t value);
/* d = value, the shortest way. */
void t32_constant(struct emitter *e, uint32_t d, uint32_t value);
/* d = value, always from a literal or one instruction. */
void t32_bit_field(struct emitter *e, uint32_t first, uint32_t n, uint32_t d, uint32_t low,
		   uint32_t last);

/* Loads and stores: kind says what, KIND_…. */
enum t32_kind {
	KIND_STRB = 0x00, KIND_LDRB = 0x10, KIND_STRH = 0x20, KIND_LDRH = 0x30,
	KIND_STR = 0x40, KIND_LDR = 0x50, KIND_LDRSB = 0x110, KIND_LDRSH = 0x130,
};
void t32_transfer(struct emitter *e, uint32_t kind, uint32_t t, uint32_t n, int32_t offset);
void t32_transfer_register(struct emitter *e, uint32_t kind, uint32_t t, uint32_t n, uint32_t m,
			   uint32_t shift);
/* before: the base moves before the access; else behind it. offset is within ±255. */
void t32_transfer_moving(struct emitter *e, uint32_t kind, uint32_t t, uint32_t n,
			 int32_t offset, bool before);
/* Sets of r0 to r7. */
void t32_push(struct emitter *e, uint32_t list);
void t32_pop(struct emitter *e, uint32_t list);
void t32_multiple(struct emitter *e, bool load, bool down, bool move, uint32_t n, uint32_t list);
void t32_double(struct emitter *e, bool load, uint32_t t, uint32_t u, uint32_t n,
		int32_t offset);
/* A supervisor call with this number. */
void t32_call(struct emitter *e, uint32_t number);
/* Patches: the encodings of branches at a host address to another. */
uint32_t t32_branch(uint32_t from, uint32_t to);
uint32_t t32_branch_if(uint32_t cond, uint32_t from, uint32_t to);

#endif
