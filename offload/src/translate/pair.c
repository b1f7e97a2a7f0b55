// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Two loads or two stores of neighbouring words, made as one of a doubleword:
 *
 *   str r4, [r0, #8]                add s, r0, #delta
 *   add r5, r5, #1          ->      strd r4, r6, [s, #8]
 *   str r6, [r0, #12]               add r5, r5, #1
 *
 * One instruction that only computes may stand between them; it comes behind them. All of it belongs to the first
 * instruction, so nothing interrupts it; if it faults, nothing has happened yet, and the first is interpreted.
 *
 * A doubleword must be aligned, a word need not be. Where it is not, the executor translates the rest without pairs
 * and branches there from then on: see executor_fault().
 */
#include "translate/translate.h"

struct access access_by_stack(const struct translator *x, const struct instruction *in)
{
	struct access a = access_of(in);
	uint32_t offset;

	if (a.n >= SP || !bit(x->stack_copies, a.n) || a.m != 16 || a.move)
		return a;
	offset = (uint32_t)a.offset + x->stack_offset[a.n];
	if (offset + 255 < 4096 + 255) {
		a.n = SP;
		a.offset = (int32_t)offset;
	}
	return a;
}

/* Whether it can be half of a pair. */
static bool is_half(const struct translator *x, const struct access *a)
{
	return (a->kind & ~0x10) == KIND_STR && a->m == 16 && !a->move && a->t != SP && a->t != PC && a->n != PC &&
		!uses_scratch(x, a->t) && !uses_scratch(x, a->n) && !(a->offset & 3) && a->offset > -1024 &&
		a->offset < 1024 && !(a->load && a->t == a->n);
}

/* Whether they are neighbours. base: the second one's own, which may be a copy of SP. */
static bool is_pair(const struct translator *x, const struct access *a, const struct access *b, uint32_t base)
{
	int32_t distance = b->offset - a->offset;

	return is_half(x, b) && b->n == a->n && b->kind == a->kind && (distance == 4 || distance == -4) &&
		!(a->load && (a->t == b->t || a->t == base || b->t == base));
}

static bool is_data(const struct instruction *in)
{
	return a32_table[in->op].family == DATA_IMMEDIATE || a32_table[in->op].family == DATA_REGISTER;
}

/*
 * Whether an instruction between them may come behind them: it only computes, with other registers, and is one that is
 * always translated.
 */
static bool may_follow(const struct translator *x, const struct instruction *in, const struct access *b, uint32_t base)
{
	uint32_t writes = instruction_writes(in), touched = instruction_reads(in) | writes;
	uint32_t never = 1u << scratch(x) | 1u << SP | 1u << PC | (b->load ? 1u << b->t : 0);

	return computes(in) && !(touched & never) && !(writes & (1u << b->t | 1u << base)) &&
		!(is_data(in) && instruction_opcode(in) == OP_RSC);
}

static void double_at(struct translator *x, const struct access *a, const struct access *b)
{
	const struct access *low = b->offset > a->offset ? a : b, *high = low == a ? b : a;
	uint32_t base = host_base_register(x, a->n), from = x->code.at;

	t32_double(&x->code, a->load, low->t, high->t, base, low->offset);
	if (a->n != SP)
		add_fixup(x, from, FIX_PAIR, a->n);
	if (!a->load)
		return;
	forget_base(x, a->t);
	forget_base(x, b->t);
}

/* The instruction at another index, as part of x->in. */
static void translate_between(struct translator *x, uint32_t index)
{
	struct instruction first = x->in;
	uint32_t at = x->index;

	x->in = x->list[index];
	x->index = index;
	if (is_data(&x->in))
		translate_data(x);
	else
		translate_media(x);
	x->in = first;
	x->index = at;
}

bool translate_pair(struct translator *x, const struct access *a)
{
	uint32_t between = index_behind(x, x->index), second = between, base;
	struct access b;

	if (!is_half(x, a) || (a->n != SP && (x->without_pairs || x->hosted)))
		return false;
	if (second < x->count && computes(&x->list[second]))
		second = index_behind(x, second);
	if (second >= x->count || x->list[second].op == A32_UNDEFINED || a32_table[x->list[second].op].family != SINGLE)
		return false;
	base = access_of(&x->list[second]).n;
	b = access_by_stack(x, &x->list[second]);
	if (!is_pair(x, a, &b, base) || !is_joinable(x, second) || (a->n != SP && keeps_guest_scratch(x)))
		return false;
	if (second != between && (!may_follow(x, &x->list[between], &b, base) || !is_joinable(x, between)))
		return false;
	double_at(x, a, &b);
	if (second != between)
		translate_between(x, between);
	/* Otherwise each for itself. */
	if (!x->interpret)
		x->done = second;
	return true;
}
