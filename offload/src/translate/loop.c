// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Loops whose pointers are host addresses while they run.
 *
 * A register that a loop only uses to access memory, moves by constants and compares with others of
 * its kind is made a host address where the loop is entered, and a guest address again wherever it is
 * left; between them its accesses are the host's own. Flags are the guest's, too: a register that is
 * compared is near guest memory, because the loop accesses memory there before, or because the entry
 * did; so both addresses of a comparison have moved by the same, and neither went past 0 or 2^31.
 */
#include "translate/translate.h"
#include "emit/t32.h"

/* Farthest that one instruction may move a pointer, and all of a region from guest memory. */
enum { NEAR = 4096, MARGIN = REGION_MAX * NEAR };

/* No address of a range, nor one a little before or behind it, lies across 0 or 2^31. */
static bool is_ordered(uint32_t base, uint32_t size)
{
	uint32_t first = base - MARGIN, last = base + size + MARGIN;

	return first < last && !((first ^ last) >> 31);
}

bool may_host(const struct offload_layout *layout)
{
	return (layout->options & OPTION_LOOPS) && is_ordered(layout->guest_base, layout->size) &&
		is_ordered(layout->host_base, layout->size);
}

static bool is_comparison(const struct instruction *in)
{
	return in->op != A32_UNDEFINED && a32_table[in->op].family == DATA_REGISTER &&
		instruction_opcode(in) == OP_CMP && !bits(in->word, 11, 5);
}

/* The registers that an instruction compares with each other. */
static uint32_t compared(const struct instruction *in)
{
	return is_comparison(in) ? 1u << field_n(in->word) | 1u << field_m(in->word) : 0;
}

/* The register at which an instruction accesses memory, as a set; *at_constant: not far from it. */
static uint32_t accessed(const struct instruction *in, bool *at_constant)
{
	uint32_t word = in->word, n = field_n(word);

	*at_constant = true;
	if (in->op == A32_UNDEFINED)
		return 0;
	switch (a32_table[in->op].family) {
	case SINGLE:
	case EXTRA:
		*at_constant = a32_table[in->op].family == SINGLE ? !bit(word, 25) : bit(word, 22);
		return n == field_d(word) || (!*at_constant && n == field_m(word)) ? 0 : 1u << n;
	case MULTIPLE:
		return bit(word, n) ? 0 : 1u << n;
	default:
		return 0;
	}
}

/* Registers of which an instruction needs or makes the guest's value. */
static uint32_t needs_guest(const struct instruction *in)
{
	uint32_t opcode;
	bool at_constant;

	if (in->op == A32_UNDEFINED)
		return ~0u;
	switch (a32_table[in->op].family) {
	case TABLE_BRANCH:
	case REFUSED:
		return ~0u;
	case BRANCH:
		return 0;
	case DATA_IMMEDIATE:
		opcode = instruction_opcode(in);
		if ((opcode == OP_ADD || opcode == OP_SUB) && !field_set_flags(in->word) &&
		    field_d(in->word) == field_n(in->word) && in->value < NEAR)
			return 0;
		break;
	default:
		break;
	}
	return (instruction_reads(in) | instruction_writes(in)) &
		~(accessed(in, &at_constant) | compared(in));
}

/* Whether a register is known to be near guest memory wherever an instruction of the loop is. */
static bool is_proved(const struct translator *x, uint32_t first, uint32_t end, uint32_t number)
{
	bool at_constant;

	for (uint32_t i = first; i < end; i = index_behind(x, i))
		if (x->list[i].cond == COND_AL && bit(accessed(&x->list[i], &at_constant), number) &&
		    at_constant)
			return true;
	return false;
}

/* Instructions of a turn of the loop that are about addresses, some registers being host addresses. */
static uint32_t cost_of(const struct translator *x, uint32_t first, uint32_t last, uint32_t hosted)
{
	uint32_t moves = 0, changes = 0, bases = 0, written = 0, before = 0;
	bool distance = true, at_constant;

	for (uint32_t i = first; i <= last; i = index_behind(x, i)) {
		const struct instruction *in = &x->list[i];
		uint32_t base = accessed(in, &at_constant) & ~(1u << SP | 1u << PC | hosted);

		written |= instruction_writes(in);
		if (!base)
			continue;
		if (a32_table[in->op].family == MULTIPLE) {
			moves += bit(in->word, 21);
			distance = false;
		} else {
			struct access a = access_of(in);

			moves += a.move;
			distance &= is_at_base(&a);
		}
		changes += base != before;
		before = base;
		bases |= base;
	}
	if (distance || !bases)
		return moves;
	return !(bases & (bases - 1)) && !(written & bases) ? 0 : changes + moves;
}

/* Nothing but the loop itself: no calls, no ways in but its beginning. */
static bool is_simple(const struct translator *x, uint32_t first, uint32_t last)
{
	if (last >= x->count || x->native(x->owner, address_of(x, first)) >= 0)
		return false;
	for (uint32_t i = first; i <= last; i = index_behind(x, i))
		if (!(x->reached[i / 32] >> (i % 32) & 1) || instruction_links(&x->list[i]) ||
		    (i != first && translator_is_label(x, i)))
			return false;
	return true;
}

/* Of a loop: the registers that can be host addresses, and which of them the entry must try. */
static uint32_t choose(const struct translator *x, uint32_t first, uint32_t last, uint32_t *tried)
{
	uint32_t never = 1u << scratch(x) | 1u << SP | 1u << PC, written = 0, hosted = 0, old;
	bool at_constant, comparisons = false;

	for (uint32_t i = first; i <= last; i = index_behind(x, i)) {
		never |= needs_guest(&x->list[i]);
		hosted |= accessed(&x->list[i], &at_constant);
		comparisons |= is_comparison(&x->list[i]);
	}
	hosted &= ~never;
	*tried = 0;
	if (!hosted || !comparisons)
		return hosted;
	for (uint32_t i = first; i <= last; i = index_behind(x, i))
		written |= instruction_writes(&x->list[i]);
	/* With what they are compared. */
	do {
		old = hosted;
		for (uint32_t i = first; i <= last; i = index_behind(x, i))
			if (compared(&x->list[i]) & hosted)
				hosted |= compared(&x->list[i]) & ~never;
	} while (hosted != old);
	/* Not those that are compared with others, or move without a proof where they are. */
	do {
		old = hosted;
		*tried = 0;
		for (uint32_t i = first; i <= last; i = index_behind(x, i)) {
			uint32_t both = compared(&x->list[i]);

			if (!both)
				continue;
			if ((both & hosted) != both)
				hosted &= ~both;
			for (uint32_t r = 0; r < SP + 2; r++) {
				if (!bit(both & hosted, r) || is_proved(x, first, i, r))
					continue;
				*tried |= 1u << r;
				if (bit(written, r) && !is_proved(x, first, last + 1, r))
					hosted &= ~(1u << r);
			}
		}
	} while (hosted != old);
	*tried &= hosted;
	return hosted;
}

static void add_to_hosted(struct translator *x, uint32_t hosted, uint32_t addend)
{
	for (uint32_t r = 0; r < SP + 2; r++)
		if (bit(hosted, r))
			t32_add_constant(&x->code, r, r, addend);
}

void emit_guest_addresses(struct translator *x, uint32_t hosted)
{
	add_to_hosted(x, hosted, -delta(x));
}

bool begin_loop(struct translator *x, uint32_t index)
{
	uint32_t last = x->back[index], tried, hosted, gain;

	if (!x->hosts || x->loops == LOOPS_MAX || last <= index || !is_simple(x, index, last))
		return false;
	hosted = choose(x, index, last, &tried);
	if (!hosted)
		return false;
	/* Worth it after a few turns: the ways in and out cost, too. */
	gain = cost_of(x, index, last, 0) - cost_of(x, index, last, hosted);
	if ((int32_t)gain <= 0 || 2 * count_bits(hosted) + count_bits(tried) > 6 * gain)
		return false;
	x->loop[x->loops++] = (struct loop){ index, last, hosted };
	x->hosted = hosted;
	x->tried = tried;
	return true;
}

void enter_loop(struct translator *x)
{
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
	add_to_hosted(x, x->hosted, delta(x));
	for (uint32_t r = 0; r < SP + 2; r++)
		if (bit(x->tried, r))
			t32_transfer(&x->code, KIND_LDRB, scratch(x), r, 0);
}

void end_loop(struct translator *x, uint32_t index, bool goes_on)
{
	if (!x->hosted || x->loop[x->loops - 1].last != index)
		return;
	x->it_count = 0;
	if (goes_on)
		emit_guest_addresses(x, x->hosted);
	x->hosted = 0;
}
