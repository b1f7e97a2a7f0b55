// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Translates one instruction, under a condition if it has one: IT blocks, or a branch around it. */
#include "translate/steps.h"

static void begin_instruction(struct translator *x)
{
	x->code.emitted = 0;
	x->code.flags_set_at = 0;
	x->slot_registers = 0;
	x->interpret = false;
	x->code.keep_single = false;
	x->ends_it = false;
}

static void emit_call(struct translator *x, enum offload_call call)
{
	begin_instruction(x);
	t32_call(&x->code, call);
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
}

/* What the driver must remember to try something else. */
struct mark {
	uint16_t at, literals, exits, fixups;
	uint8_t holds, held_base;
	int16_t held_offset;
};

static struct mark mark(const struct translator *x)
{
	return (struct mark){ x->code.at, x->code.literals, x->exits, x->fixups, x->holds, x->held_base,
		x->held_offset };
}

static void go_back(struct translator *x, struct mark mark)
{
	x->code.at = mark.at;
	x->code.literals = mark.literals;
	x->exits = mark.exits;
	x->fixups = mark.fixups;
	x->holds = mark.holds;
	x->held_base = mark.held_base;
	x->held_offset = mark.held_offset;
	begin_instruction(x);
}

static bool fits_it(const struct translator *x, uint32_t room)
{
	return !x->interpret && !x->code.keep_single && x->code.emitted && x->code.emitted <= room &&
		(!x->code.flags_set_at || x->code.flags_set_at == x->code.emitted);
}

/* The IT instruction for the instructions collected in the open block. */
static void write_it(struct translator *x)
{
	uint32_t first = x->it_cond & 1, mask = 0;

	for (uint32_t i = 1; i < x->it_count; i++)
		mask |= (first ^ bit(x->it_pattern, i)) << (4 - i);
	mask |= 1u << (4 - x->it_count);
	x->code.out[x->it_at] = x->it_cond << 4 | mask;
	x->code.out[x->it_at + 1] = 0xbf;
}

static void grow_it(struct translator *x, bool inverse)
{
	for (uint32_t i = 0; i < x->code.emitted; i++)
		x->it_pattern |= inverse << (x->it_count + i);
	x->it_count += x->code.emitted;
	write_it(x);
	if (x->code.flags_set_at || x->ends_it)
		x->it_count = 4;
}

/*
 * Whether a branch around is better than IT. Where they are not executed it takes 2 to 4 cycles, as IT and three
 * instructions; an indirect branch is not likely to be executed, and nothing can join its block.
 */
static bool is_better_skipped(const struct translator *x)
{
	return x->code.emitted >= 3 || (x->ends_it && x->code.emitted >= 2);
}

/* An instruction under a condition: in the open IT block, in one of its own, or branched around. */
static void translate_conditional(struct translator *x, uint32_t cond, bool may_join)
{
	struct mark before = mark(x), start;
	uint32_t length;

	/* Directly behind another one, what that has left still holds where this is executed. */
	if (may_join && x->kept_at == x->code.at && x->kept_cond == cond) {
		x->holds = x->kept.what;
		x->held_base = x->kept.base;
		x->held_offset = 0;
	}
	start = mark(x);
	if (may_join && x->it_count && x->it_count < 4 && (cond ^ x->it_cond) <= 1) {
		begin_instruction(x);
		translate_body(x);
		if (fits_it(x, 4 - x->it_count)) {
			grow_it(x, cond != x->it_cond);
			goto done;
		}
		go_back(x, start);
	}
	x->it_at = x->code.at;
	emit16(&x->code, 0);
	begin_instruction(x);
	translate_body(x);
	length = x->code.at - x->it_at - 2;
	if (x->interpret) {
		go_back(x, start);
		x->it_at = x->code.at;
		emit16(&x->code, 0);
		begin_instruction(x);
		if (!translate_renamed(x)) {
			go_back(x, start);
			emit_call(x, CALL_INTERPRET);
			return;
		}
		length = x->code.at - x->it_at - 2;
	}
	/* Where an open block's IT stood is forgotten. */
	x->it_count = 0;
	if (!length) {
		x->code.at = x->it_at;
	} else if (fits_it(x, 4) && !is_better_skipped(x)) {
		x->it_cond = cond;
		x->it_pattern = 0;
		grow_it(x, false);
	} else if (x->code.at <= x->code.room) {
		/* b<inverse>.n over it; the offset counts from four bytes behind the branch. */
		x->code.out[x->it_at] = (uint8_t)((length - 2) / 2);
		x->code.out[x->it_at + 1] = 0xd0 | (cond ^ 1);
	}
done:
	/* It may or may not have happened; what leaves has not where this goes on. */
	if (x->carries && instruction_branches(&x->in) && !instruction_links(&x->in)) {
		x->holds = before.holds;
		x->held_base = before.held_base;
		x->held_offset = before.held_offset;
	}
	x->kept = held_now(x);
	x->kept_at = x->code.at;
	x->kept_cond = x->code.flags_set_at ? COND_NEVER : cond;
	if (x->holds != before.holds || x->held_base != before.held_base ||
	    x->held_offset != before.held_offset)
		x->holds = HOLDS_NOTHING;
	else if (x->holds == HOLDS_BASE && bit(instruction_writes(&x->in), x->held_base))
		x->holds = HOLDS_NOTHING;
}

void translate_instruction(struct translator *x, bool is_label)
{
	uint32_t cond = x->in.cond;
	struct mark start;
	int native;

	begin_instruction(x);
	/* Whoever comes here by a branch has not executed the conditional instruction before it. */
	if (is_label)
		x->kept_cond = COND_NEVER;
	if (x->index && x->index <= x->done && !is_plain(x))
		return;
	native = x->native(x->owner, x->address);
	if (native >= 0) {
		emit_call(x, CALL_NATIVE);
		emit16(&x->code, native);
		return;
	}
	if (x->in.op == A32_UNDEFINED || instruction_unpredictable(&x->in) ||
	    a32_table[x->in.op].family == REFUSED) {
		emit_call(x, CALL_STOP);
		return;
	}
	if (is_plain(x)) {
		x->it_count = 0;
		x->holds = HOLDS_NOTHING;
		start = mark(x);
		translate_plain(x);
		x->holds = HOLDS_NOTHING;
		x->pushed = 0;
		if (x->interpret) {
			go_back(x, start);
			emit_call(x, CALL_INTERPRET);
		}
		return;
	}
	if (cond < COND_AL && x->in.op != A32_B) {
		translate_conditional(x, cond, !is_label);
		return;
	}
	x->it_count = 0;
	start = mark(x);
	translate_body(x);
	if (!x->interpret)
		return;
	go_back(x, start);
	if (translate_renamed(x))
		return;
	go_back(x, start);
	emit_call(x, CALL_INTERPRET);
}
