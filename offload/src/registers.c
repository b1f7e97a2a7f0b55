// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Which registers and flags an A32 instruction reads and writes. */
#include "a32.h"

static uint32_t one(uint32_t number)
{
	return 1u << number;
}

static bool shifts_by_register(uint32_t word)
{
	return bits(word, 27, 25) == 0 && bit(word, 4);
}

uint32_t a32_reads(enum a32_op op, uint32_t word)
{
	uint32_t n = one(field_n(word)), d = one(field_d(word)), s = one(field_s(word));
	uint32_t m = one(field_m(word)), opcode = field_opcode(word), reads;

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
	case UNARY:
	case SATURATE:
	case BRANCH_REGISTER:
		return m;
	case SINGLE:
		return n | (bit(word, 25) ? m : 0) | (bit(word, 20) ? 0 : d);
	case EXTRA:
		return n | (bit(word, 22) ? 0 : m) | (bit(word, 20) ? 0 : d);
	case DOUBLE:
		return n | (bit(word, 22) ? 0 : m) | (bit(word, 5) ? d | d << 1 : 0);
	case MULTIPLE:
		return n | (bit(word, 20) ? 0 : word & 0xffff);
	case EXCLUSIVE:
		if (op == A32_CLREX)
			return 0;
		return n | (bit(word, 20) ? 0 : m | (op == A32_STREXD ? m << 1 : 0));
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

uint32_t a32_writes(enum a32_op op, uint32_t word)
{
	uint32_t n = one(field_n(word)), d = one(field_d(word));
	bool moves = !bit(word, 24) || bit(word, 21);

	if (op == A32_UNDEFINED)
		return 0;
	switch (a32_table[op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		return opcode_compares(field_opcode(word)) ? 0 : d;
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
		return (moves ? n : 0) | (bit(word, 5) ? 0 : d | d << 1);
	case MULTIPLE:
		return (bit(word, 21) ? n : 0) | (bit(word, 20) ? word & 0xffff : 0);
	case EXCLUSIVE:
		if (op == A32_CLREX)
			return 0;
		return d | (op == A32_LDREXD ? d << 1 : 0);
	case SWAP:
		return d;
	case BRANCH:
	case BRANCH_REGISTER:
		return op == A32_BL || op == A32_BLX_reg ? one(LR) : 0;
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

bool a32_reads_flags(enum a32_op op, uint32_t word)
{
	uint32_t opcode = field_opcode(word);

	if (field_cond(word) < COND_AL)
		return true;
	if (op == A32_UNDEFINED)
		return false;
	switch (a32_table[op].family) {
	case DATA_REGISTER:
		/* rrx */
		if (bits(word, 11, 5) == 3)
			return true;
		/* fall through */
	case DATA_IMMEDIATE:
	case DATA_SHIFTED:
		/* What is not set here stays as it was. */
		return opcode == OP_ADC || opcode == OP_SBC || opcode == OP_RSC ||
			a32_writes_flags(op, word);
	case SINGLE:
		return bit(word, 25) && bits(word, 11, 5) == 3;
	default:
		return a32_writes_flags(op, word) || op == A32_MRS;
	}
}

bool a32_writes_flags(enum a32_op op, uint32_t word)
{
	if (op == A32_UNDEFINED)
		return false;
	switch (a32_table[op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		return field_set_flags(word);
	case MULTIPLY:
		return op != A32_MLS && field_set_flags(word);
	case MULTIPLY_LONG:
		return field_set_flags(word);
	case SATURATE:
	case RARE:
		return true;
	case HALF_MULTIPLY:
		return op == A32_SMLAxy;
	case STATUS:
		return op == A32_MSR_reg || op == A32_MSR_imm;
	default:
		return false;
	}
}
