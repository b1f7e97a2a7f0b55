// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Which registers and flags an instruction reads and writes, and whether it branches. */
#include "decode/a32.h"

static uint32_t one(uint32_t number)
{
	return 1u << number;
}

static bool shifts_by_register(uint32_t word)
{
	return bits(word, 27, 25) == 0 && bit(word, 4);
}

uint32_t instruction_reads(const struct instruction *in)
{
	enum a32_op op = in->op;
	uint32_t word = in->word;
	uint32_t n = one(field_n(word)), d = one(field_d(word)), s = one(field_s(word));
	uint32_t m = one(field_m(word)), opcode = instruction_opcode(in), reads;

	if (op == A32_UNDEFINED)
		return 0;
	switch (a32_table[op].family) {
	case DATA_IMMEDIATE:
		return opcode == OP_MOV || opcode == OP_MVN ? 0 : n;
	case DATA_REGISTER:
	case DATA_SHIFTED:
		reads = m | (shifts_by_register(word) ? s : 0);
		return opcode == OP_MOV || opcode == OP_MVN ? reads : reads | n;
	case WIDE:
		return op == A32_MOVT ? d : 0;
	case MULTIPLY:
		return m | s | (op == A32_MUL ? 0 : d);
	case MULTIPLY_LONG:
		return m | s | (bit(word, 21) ? n | d : 0);
	case HALF_MULTIPLY:
		return m | s | (op == A32_SMLAxy ? d : 0);
	case DIVIDE:
		return m | s;
	case EXTEND:
		return m | (field_n(word) == PC ? 0 : n);
	case BIT_FIELD:
		return (field_m(word) == PC ? 0 : m) | (op == A32_BFI ? d : 0);
	case COMPARE_BRANCH:
		return n;
	case TABLE_BRANCH:
		return n | m;
	case UNARY:
	case SATURATE:
	case BRANCH_REGISTER:
		return m;
	case SINGLE:
		return n | (bit(word, 25) ? m : 0) | (bit(word, 20) ? 0 : d);
	case EXTRA:
		return n | (bit(word, 22) ? 0 : m) | (bit(word, 20) ? 0 : d);
	case DOUBLE:
		return n | (bit(word, 22) ? 0 : m) | (bit(word, 5) ? d | one(in->second) : 0);
	case MULTIPLE:
		return n | (bit(word, 20) ? 0 : word & 0xffff);
	case EXCLUSIVE:
		if (op == A32_CLREX)
			return 0;
		return n | (bit(word, 20) ? 0 : m | (op == A32_STREXD ? one(in->second) : 0));
	case SWAP:
		return n | m;
	case STATUS:
		return op == A32_MSR_reg ? m : 0;
	case COPROCESSOR:
		return op == A32_MCR ? d : 0;
	case RARE:
		/* More than some of them read; enough for the translator. */
		return n | d | s | m;
	default:
		return 0;
	}
}

uint32_t instruction_writes(const struct instruction *in)
{
	enum a32_op op = in->op;
	uint32_t word = in->word;
	uint32_t n = one(field_n(word)), d = one(field_d(word));
	bool moves = !bit(word, 24) || bit(word, 21);

	if (op == A32_UNDEFINED)
		return 0;
	switch (a32_table[op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		return opcode_compares(instruction_opcode(in)) ? 0 : d;
	case MULTIPLY:
	case HALF_MULTIPLY:
	case DIVIDE:
		return n;
	case MULTIPLY_LONG:
		return n | d;
	case WIDE:
	case UNARY:
	case EXTEND:
	case BIT_FIELD:
	case SATURATE:
		return d;
	case SINGLE:
	case EXTRA:
		return (moves ? n : 0) | (bit(word, 20) ? d : 0);
	case DOUBLE:
		return (moves ? n : 0) | (bit(word, 5) ? 0 : d | one(in->second));
	case MULTIPLE:
		return (bit(word, 21) ? n : 0) | (bit(word, 20) ? word & 0xffff : 0);
	case EXCLUSIVE:
		if (op == A32_CLREX)
			return 0;
		return d | (op == A32_LDREXD ? one(in->second) : 0);
	case SWAP:
		return d;
	case BRANCH:
	case BRANCH_REGISTER:
		return instruction_links(in) ? one(LR) : 0;
	case STATUS:
		return op == A32_MRS ? d : 0;
	case COPROCESSOR:
		return op == A32_MRC && field_d(word) != PC ? d : 0;
	case RARE:
		return n | d;
	default:
		return 0;
	}
}

uint32_t condition_flags(uint32_t cond)
{
	static const uint32_t flags[] = {
		FLAG_Z, FLAG_C, FLAG_N, FLAG_V, FLAG_C | FLAG_Z, FLAG_N | FLAG_V,
		FLAG_N | FLAG_Z | FLAG_V, 0,
	};

	return flags[cond >> 1 & 7];
}

/* What a shifter does to C: nothing, something, or that depends on a register. */
static uint32_t shifter_reads(const struct instruction *in)
{
	uint32_t word = in->word;

	switch (a32_table[in->op].family) {
	case DATA_REGISTER:
		return bits(word, 11, 5) == 3 ? FLAG_C : 0;	/* rrx */
	case DATA_SHIFTED:
		return FLAG_C;
	default:
		return 0;
	}
}

static bool shifter_sets_carry(const struct instruction *in)
{
	if (a32_table[in->op].family == DATA_IMMEDIATE)
		return in->sets_carry;
	return a32_table[in->op].family == DATA_SHIFTED || bits(in->word, 11, 5);
}

uint32_t instruction_reads_flags(const struct instruction *in)
{
	uint32_t opcode = instruction_opcode(in), reads = condition_flags(in->cond);

	if (in->op == A32_UNDEFINED)
		return 0;
	switch (a32_table[in->op].family) {
	case DATA_REGISTER:
	case DATA_IMMEDIATE:
	case DATA_SHIFTED:
		if (opcode == OP_ADC || opcode == OP_SBC || opcode == OP_RSC)
			reads |= FLAG_C;
		return reads | shifter_reads(in);
	case SATURATE:
		return reads | FLAG_Q;
	case SINGLE:
		return reads | (bit(in->word, 25) && bits(in->word, 11, 5) == 3 ? FLAG_C : 0);
	default:
		return reads;
	}
}

uint32_t instruction_writes_flags(const struct instruction *in)
{
	uint32_t all = FLAG_N | FLAG_Z | FLAG_C | FLAG_V;

	if (in->op == A32_UNDEFINED)
		return 0;
	switch (a32_table[in->op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		if (!field_set_flags(in->word))
			return 0;
		if (!opcode_is_logical(instruction_opcode(in)))
			return all;
		return FLAG_N | FLAG_Z | (shifter_sets_carry(in) ? FLAG_C : 0);
	case MULTIPLY:
		return in->op != A32_MLS && field_set_flags(in->word) ? FLAG_N | FLAG_Z : 0;
	case SATURATE:
		return FLAG_Q;
	default:
		/* What else sets flags is interpreted. */
		return 0;
	}
}

bool instruction_branches(const struct instruction *in)
{
	uint32_t word = in->word;

	if (in->op == A32_UNDEFINED)
		return true;
	switch (a32_table[in->op].family) {
	case BRANCH:
	case BRANCH_REGISTER:
	case COMPARE_BRANCH:
	case TABLE_BRANCH:
	case REFUSED:
		return true;
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
		return field_d(word) == PC && !opcode_compares(instruction_opcode(in));
	case SINGLE:
		return bit(word, 20) && field_d(word) == PC;
	case MULTIPLE:
		return bit(word, 20) && bit(word, PC);
	default:
		return false;
	}
}
