/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The A32 instruction set as the table isa/a32.def defines it: decoding and fields. */
#ifndef OFFLOAD_A32_H
#define OFFLOAD_A32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What interprets and translates an instruction. */
enum a32_family {
	DATA_IMMEDIATE,
	DATA_REGISTER,
	DATA_SHIFTED,
	WIDE,		/* movw, movt */
	MULTIPLY,
	MULTIPLY_LONG,
	HALF_MULTIPLY,
	DIVIDE,
	UNARY,		/* clz, rbit, rev … */
	EXTEND,
	BIT_FIELD,
	SATURATE,
	SINGLE,		/* one word or byte */
	EXTRA,		/* one halfword or signed byte */
	DOUBLE,
	MULTIPLE,
	EXCLUSIVE,
	SWAP,
	BRANCH,
	BRANCH_REGISTER,
	COMPARE_BRANCH,	/* cbz, cbnz */
	TABLE_BRANCH,	/* tbb, tbh */
	HINT,
	PRELOAD,
	BARRIER,
	STATUS,		/* CPSR */
	COPROCESSOR,
	RARE,		/* only ever interpreted */
	REFUSED,	/* known, and no business of the suspend path: a stop */
};

enum a32_op {
#define A32(name, pattern, family, syntax) A32_##name,
#include "isa/a32.def"
#undef A32
	A32_COUNT,
	A32_UNDEFINED = A32_COUNT,
};

struct a32_line {
	uint32_t mask;
	uint32_t value;
	uint8_t family;
	const char *syntax;
#ifndef OFFLOAD_TARGET
	/* For tests. */
	const char *name;
	const char *pattern;
#endif
};

extern const struct a32_line a32_table[A32_COUNT];

/*
 * An instruction, made from either encoding, with those operands as numbers that the two encode
 * differently. Registers, shifts and switches are where A32 has them.
 */
struct instruction {
	uint32_t word;		/* in A32's encoding, as far as that has it */
	uint32_t raw;		/* as the guest has it; a T32 instruction of 32 bits: first half high */
	uint32_t value;		/* constant, size of an offset, or target of a branch */
	uint32_t pc;		/* what PC reads as */
	uint32_t next;		/* address behind it, bit 0 set in T32 */
	uint8_t op;		/* enum a32_op */
	uint8_t cond;		/* COND_AL or less */
	uint8_t second;		/* of a doubleword's registers */
	bool sets_carry;	/* the constant decides on C where a logical operation sets flags */
	bool thumb;
	/* T32 only. */
	uint8_t it;		/* ITSTATE */
	uint8_t twice_m;	/* m where it stands twice */
	uint16_t line;		/* of t32.def */
};

/* The line of the table that holds for a word; A32_UNDEFINED if none does. */
enum a32_op a32_decode(uint32_t word);
/* The instruction that a word is at an address. */
void a32_expand(uint32_t word, uint32_t address, struct instruction *in);

/*
 * Whether the architecture leaves open what this word does. docs/explanation/offload.md lists the rules.
 * The translator refuses such words, the tests leave them out.
 */
bool a32_unpredictable(enum a32_op op, uint32_t word);

/* The same for T32 (raw: 2 or 4 bytes, under an ITSTATE), and for any instruction. */
void t32_expand(uint32_t raw, uint32_t bytes, uint32_t address, uint32_t it,
		struct instruction *in);
bool t32_unpredictable(const struct instruction *in);
bool instruction_unpredictable(const struct instruction *in);

/* Writes the instruction in assembler syntax. Returns the length. */
size_t instruction_disassemble(const struct instruction *in, char *text, size_t size);

/* The registers that an instruction may read and write, one bit each. */
uint32_t instruction_reads(const struct instruction *in);
uint32_t instruction_writes(const struct instruction *in);
/* The same for flags: FLAG_… of interpret.h, which are the bits of CPSR. */
uint32_t instruction_reads_flags(const struct instruction *in);
uint32_t instruction_writes_flags(const struct instruction *in);
/* Control does not simply go on behind it. */
bool instruction_branches(const struct instruction *in);
/* The flags that a condition depends on. */
uint32_t condition_flags(uint32_t cond);

enum { SP = 13, LR = 14, PC = 15 };
enum { COND_AL = 14, COND_NEVER = 15 };
#define FLAG_N 0x80000000u
#define FLAG_Z 0x40000000u
#define FLAG_C 0x20000000u
#define FLAG_V 0x10000000u
#define FLAG_Q 0x08000000u
enum { SHIFT_LSL, SHIFT_LSR, SHIFT_ASR, SHIFT_ROR };
/* Bits 24:21 of data processing. */
enum {
	OP_AND, OP_EOR, OP_SUB, OP_RSB, OP_ADD, OP_ADC, OP_SBC, OP_RSC,
	OP_TST, OP_TEQ, OP_CMP, OP_CMN, OP_ORR, OP_MOV, OP_BIC, OP_MVN,
	OP_ORN,		/* only in T32 */
};

static inline uint32_t bits(uint32_t word, unsigned int high, unsigned int low)
{
	return (word >> low) & (0xffffffffu >> (31 - (high - low)));
}

static inline bool bit(uint32_t word, unsigned int number)
{
	return (word >> number) & 1;
}

static inline uint32_t rotate_right(uint32_t value, unsigned int by)
{
	by &= 31;
	return by ? value >> by | value << (32 - by) : value;
}

static inline uint32_t field_cond(uint32_t word) { return word >> 28; }
static inline uint32_t field_n(uint32_t word) { return bits(word, 19, 16); }
static inline uint32_t field_d(uint32_t word) { return bits(word, 15, 12); }
static inline uint32_t field_s(uint32_t word) { return bits(word, 11, 8); }
static inline uint32_t field_m(uint32_t word) { return bits(word, 3, 0); }
static inline uint32_t field_opcode(uint32_t word) { return bits(word, 24, 21); }
static inline bool field_set_flags(uint32_t word) { return bit(word, 20); }

static inline uint32_t a32_immediate(uint32_t word)
{
	return rotate_right(word & 0xff, 2 * bits(word, 11, 8));
}

/* Target of b, bl; blx adds bit 24. */
static inline uint32_t a32_branch_target(uint32_t word, uint32_t address)
{
	return address + 8 + (uint32_t)((int32_t)(word << 8) >> 6);
}

/* The number of bits in a list of registers. */
static inline unsigned int count_bits(uint32_t list)
{
	unsigned int count = 0;

	for (; list; list &= list - 1)
		count++;
	return count;
}

/* Of tst, teq, cmp, cmn: no destination. */
static inline bool opcode_compares(uint32_t opcode)
{
	return opcode >= OP_TST && opcode <= OP_CMN;
}

/* Of and, eor, tst, teq, orr, mov, bic, mvn, orn: C comes from the shifter, V stays. */
static inline bool opcode_is_logical(uint32_t opcode)
{
	return (0x1f303u >> opcode) & 1;
}

/* Of data processing; OP_ORN has no place in a word. */
static inline uint32_t instruction_opcode(const struct instruction *in)
{
	return in->op == A32_ORN_imm || in->op == A32_ORN_reg ? (uint32_t)OP_ORN :
		field_opcode(in->word);
}

/* bl, blx: LR becomes the address behind it. */
static inline bool instruction_links(const struct instruction *in)
{
	return in->op == A32_BL || in->op == A32_BLX_reg || in->op == A32_BLX_imm;
}

#endif
