// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Which T32 encodings are UNPREDICTABLE; docs/explanation/offload.md lists the rules. */
#include "decode/t32_lines.h"

static bool bad(uint32_t number)
{
	return number == SP || number == PC;
}

/* Adds to and subtractions from SP may write SP; of anything else SP is no operand. */
static bool bad_sum(const struct instruction *in, uint32_t d, uint32_t n, bool by_register)
{
	uint32_t word = in->word;

	if (n == PC)
		return t32_table[in->line].form != FORM_ADDRESS || bad(d);
	if (n != SP)
		return bad(d);
	if (d == SP && by_register && (bits(word, 6, 5) != SHIFT_LSL || bits(word, 11, 7) > 3))
		return true;
	return d == PC;
}

static bool bad_move(const struct instruction *in, uint32_t d, uint32_t m)
{
	if (!field_set_flags(in->word) && !bits(in->word, 11, 5))
		return d == PC || m == PC || (d == SP && m == SP);
	return bad(d) || bad(m);
}

static bool bad_data_16(const struct instruction *in)
{
	uint32_t n = field_n(in->word), m = field_m(in->word), d = field_d(in->word);

	switch (t32_table[in->line].form) {
	case FORM_SHIFT_16:
		/* movs */
		return in->it && !bits(in->word, 11, 5);
	case FORM_DN:
		return d == PC && m == PC;
	case FORM_PLAIN:
		return in->raw >> 8 == 0x45 && (n == PC || m == PC || (n < 8 && m < 8));
	default:
		return false;
	}
}

static bool bad_data(const struct instruction *in)
{
	uint32_t word = in->word, opcode = instruction_opcode(in);
	uint32_t d = field_d(word), n = field_n(word), m = field_m(word);
	bool by_register = a32_table[in->op].family == DATA_REGISTER;

	if (in->raw < 0x10000)
		return bad_data_16(in);
	if (opcode == OP_MOV && by_register)
		return bad_move(in, d, m);
	if (by_register && bad(m))
		return true;
	switch (opcode) {
	case OP_MOV:
	case OP_MVN:
		return bad(d);
	case OP_CMP:
	case OP_CMN:
		return n == PC;
	case OP_TST:
	case OP_TEQ:
		return bad(n);
	case OP_ADD:
	case OP_SUB:
		return bad_sum(in, d, n, by_register);
	default:
		return bad(d) || bad(n);
	}
}

static bool bad_rare(const struct instruction *in)
{
	uint32_t n = field_n(in->word), d = field_d(in->word);
	uint32_t s = field_s(in->word), m = field_m(in->word);
	bool sources = bad(m) || bad(s);

	switch (in->op) {
	case A32_SMLAD:
	case A32_SMLSD:
	case A32_SMMLA:
	case A32_USADA8:
		return bad(n) || sources || d == SP;
	case A32_SMULWy:
		return bad(n) || sources;
	case A32_SMLAWy:
	case A32_SMMLS:
		return bad(n) || sources || bad(d);
	case A32_SMLALxy:
	case A32_SMLALD:
	case A32_SMLSLD:
	case A32_UMAAL:
		return bad(n) || sources || bad(d) || n == d;
	case A32_SXTAB16:
	case A32_UXTAB16:
		return bad(d) || bad(m) || n == SP;
	case A32_SSAT16:
	case A32_USAT16:
		return bad(d) || bad(m);
	default:
		return bad(d) || bad(n) || bad(m);
	}
}

static bool bad_transfer(const struct instruction *in)
{
	uint32_t word = in->word, n = field_n(word), t = field_d(word), m = field_m(word);
	bool single = a32_table[in->op].family == SINGLE, load = bit(word, 20);
	bool by_register = single ? bit(word, 25) : !bit(word, 22), literal;
	bool move = !bit(word, 24) || bit(word, 21), is_word = single && !bit(word, 22);

	if (in->raw < 0x10000)
		return false;
	literal = t32_table[in->line].form == FORM_LITERAL;
	if ((by_register && bad(m)) || (n == PC && !literal) || (move && n == t))
		return true;
	return is_word ? t == PC && !load : bad(t);
}

static bool bad_double(const struct instruction *in)
{
	uint32_t word = in->word, n = field_n(word), t = field_d(word), u = in->second;
	bool load = !bit(word, 5), move = !bit(word, 24) || bit(word, 21);

	return bad(t) || bad(u) || (load && t == u) || (move && (n == t || n == u)) ||
		(n == PC && (!load || move));
}

static bool bad_list(const struct instruction *in)
{
	uint32_t word = in->word, list = word & 0xffff, n = field_n(word);
	bool load = bit(word, 20);

	switch (t32_table[in->line].form) {
	case FORM_LIST_16:
		return !list || (!load && bit(list, n) && (list & ((1u << n) - 1)));
	case FORM_LIST:
		return count_bits(list) < 2 || n == PC || (load && list >> LR == 3) ||
			(bit(word, 21) && bit(list, n));
	default:
		return !list;
	}
}

static bool bad_exclusive(const struct instruction *in)
{
	uint32_t n = field_n(in->word), d = field_d(in->word), m = field_m(in->word);

	switch (in->op) {
	case A32_CLREX:
		return false;
	case A32_LDREX:
	case A32_LDREXB:
	case A32_LDREXH:
		return n == PC || bad(d);
	case A32_LDREXD:
		return n == PC || bad(d) || bad(in->second) || d == in->second;
	case A32_STREXD:
		if (bad(in->second) || d == in->second)
			return true;
		/* fall through */
	default:
		return n == PC || bad(d) || bad(m) || d == n || d == m;
	}
}

static bool bad_field(const struct instruction *in)
{
	uint32_t word = in->word, low = bits(word, 11, 7), last = bits(word, 20, 16);

	if (in->op == A32_BFI)
		return bad(field_d(word)) || field_m(word) == SP || last < low;
	return bad(field_d(word)) || bad(field_m(word)) || low + last > 31;
}

/* What may stand in an IT block, and where. */
static bool bad_in_it(const struct instruction *in)
{
	uint32_t form = t32_table[in->line].form;

	if (!in->it)
		return false;
	if (form == FORM_COMPARE_BRANCH || form == FORM_BRANCH_8 || form == FORM_BRANCH_20 ||
	    form == FORM_CPS || form == FORM_CPS_16 || in->op == A32_IT || in->op == A32_SETEND)
		return true;
	return instruction_branches(in) && a32_table[in->op].family != REFUSED &&
		(in->it & 15) != 8;
}

static bool bad_status(const struct instruction *in)
{
	if (in->op == A32_MRS)
		return bad(field_d(in->word));
	if (in->op == A32_MSR_reg)
		return bad(field_m(in->word)) || !field_n(in->word);
	return a32_unpredictable(in->op, in->word);
}

bool t32_unpredictable(const struct instruction *in)
{
	uint32_t n = field_n(in->word), d = field_d(in->word);
	uint32_t s = field_s(in->word), m = field_m(in->word);

	if (in->op == A32_UNDEFINED)
		return false;
	if (bad_in_it(in))
		return true;
	if (t32_table[in->line].form == FORM_TWICE && in->twice_m >> 4 != (in->twice_m & 15))
		return true;
	switch (a32_table[in->op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
		return bad_data(in);
	case DATA_SHIFTED:
		return in->raw >= 0x10000 && (bad(d) || bad(m) || bad(s));
	case WIDE:
		return bad(d);
	case MULTIPLY:
		return bad(n) || bad(m) || bad(s) || (in->op != A32_MUL && bad(d));
	case MULTIPLY_LONG:
		return bad(n) || bad(d) || bad(m) || bad(s) || n == d;
	case HALF_MULTIPLY:
		return bad(n) || bad(m) || bad(s) || (in->op == A32_SMLAxy && bad(d));
	case DIVIDE:
		return bad(n) || bad(m) || bad(s);
	case UNARY:
		return bad(d) || bad(m);
	case SATURATE:
		/* An amount of 0 to the right would be SSAT16. */
		return bad(d) || bad(m) || (bit(in->word, 6) && !bits(in->word, 11, 7));
	case EXTEND:
		return bad(d) || bad(m) || n == SP;
	case BIT_FIELD:
		return bad_field(in);
	case SINGLE:
	case EXTRA:
		return bad_transfer(in);
	case DOUBLE:
		return bad_double(in);
	case MULTIPLE:
		return bad_list(in);
	case EXCLUSIVE:
		return bad_exclusive(in);
	case TABLE_BRANCH:
		return n == SP || bad(m);
	case BRANCH_REGISTER:
		return in->op == A32_BLX_reg && m == PC;
	case PRELOAD:
		return bit(in->word, 25) && bad(m);
	case STATUS:
		return bad_status(in);
	case COPROCESSOR:
		return in->op == A32_MCR ? bad(d) : d == SP;
	case RARE:
		return bad_rare(in);
	case HINT:
		/* The unallocated hints have no use either. */
		if (in->op != A32_IT)
			return false;
		return !(in->value & 15) || in->value >> 4 == COND_NEVER ||
			(in->value >> 4 == COND_AL && count_bits(in->value & 15) != 1);
	default:
		return false;
	}
}
