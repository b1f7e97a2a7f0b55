/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The lines of isa/t32.def: what a T32 instruction is in terms of a32.def. */
#ifndef OFFLOAD_T32_LINES_H
#define OFFLOAD_T32_LINES_H

#include "decode/a32.h"

/* What a constant or list is, and what else an encoding implies. */
enum t32_form {
	/* data processing and others; _16: sets flags outside of IT blocks */
	FORM_PLAIN,
	FORM_FLAGS_16,
	FORM_SHIFT,		/* the amount of a shift, or the lowest bit of a field */
	FORM_SHIFT_16,
	FORM_CONSTANT,
	FORM_CONSTANT_16,
	FORM_CONSTANT_DN,	/* n is d */
	FORM_DN,
	FORM_DN_16,
	FORM_BY_REGISTER,
	FORM_BY_REGISTER_16,
	FORM_MULTIPLY_16,
	FORM_MODIFIED,		/* T32's modified immediates */
	FORM_WIDE,		/* 16 bits */
	FORM_ADDRESS,		/* 12 bits; PC is aligned */
	FORM_ADDRESS_16,
	FORM_STACK_ADDRESS_16,
	FORM_STACK_MOVE_16,
	FORM_EXTEND_16,
	FORM_TWICE,		/* m stands twice */
	FORM_CPS,
	FORM_CPS_16,
	FORM_COPROCESSOR,
	/* loads and stores */
	FORM_STACK_16,
	FORM_UP,		/* base + constant */
	FORM_UP_HALVES,
	FORM_UP_WORDS,
	FORM_LITERAL,
	FORM_LITERAL_16,
	FORM_BEFORE,		/* base - constant */
	FORM_MOVING,		/* P, U; the base moves */
	FORM_INDEX,		/* base + register, shifted */
	FORM_WORDS,
	FORM_BEFORE_WORDS,
	FORM_AFTER_WORDS,
	FORM_LIST,
	FORM_LIST_16,
	FORM_PUSH_16,
	FORM_POP_16,
	/* branches */
	FORM_COMPARE_BRANCH,
	FORM_BRANCH_8,
	FORM_BRANCH_11,
	FORM_BRANCH_20,
	FORM_BRANCH_24,
};

/* What a letter of a pattern stands for; at most 16, so that two fit into a byte. */
enum t32_field {
	FIELD_NONE,		/* a fixed bit, or a letter that only documents the field */
	/* Fields that A32 has, too; see place_of() */
	FIELD_N, FIELD_D, FIELD_S, FIELD_M, FIELD_T, FIELD_H, FIELD_O, FIELD_SETS, FIELD_W, FIELD_U,
	FIELD_P, FIELD_MODE,
	FIELD_CONSTANT,
	FIELD_COND,
	FIELD_SECOND,
};

enum {
#define T16(op, pattern, form) + 1
#define T32(op, pattern, form) + 1
	T32_COUNT = 0
#include "isa/t32.def"
#undef T16
#undef T32
};

struct t32_line {
	uint32_t mask;		/* of 16 bits: in the upper half */
	uint32_t value;
	uint8_t op;		/* enum a32_op */
	uint8_t form;
	bool wide;		/* 32 bits */
	uint8_t fields[16];	/* enum t32_field of each bit, 31 first, two to a byte */
#ifndef OFFLOAD_TARGET
	/* For tests. */
	const char *pattern;
#endif
};

extern const struct t32_line t32_table[T32_COUNT];

/* The line for an instruction, 16 bits in the upper half; T32_COUNT if there is none. */
uint32_t t32_decode(uint32_t left);

#endif
