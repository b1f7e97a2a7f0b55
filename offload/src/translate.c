// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Makes regions: finds their extent, translates instruction by instruction, lays out what follows. */
#include "translate.h"
#include "t32.h"

enum { BYTES_OF_EXIT = 12, MOST_OF_INSTRUCTION = 80 };

static bool get(const uint8_t *set, uint32_t index)
{
	return set[index / 8] >> (index % 8) & 1;
}

static void put(uint8_t *set, uint32_t index)
{
	set[index / 8] |= 1 << (index % 8);
}

static bool falls_through(enum a32_op op, uint32_t word)
{
	if (op == A32_BL || op == A32_BLX_reg)
		return true;
	return !a32_is_branch(op, word) || field_cond(word) < COND_AL;
}

/*
 * Reads the guest's code from the entry on, until nothing goes on in it. Instructions that are
 * only jumped over stay in the region without code.
 */
static bool find_extent(struct translator *x)
{
	uint32_t farthest = 0, most = x->most, index, word;
	bool reached = true, one_block = !translator_option(x, OPTION_REGIONS);

	for (index = 0; index < most; index++) {
		uint32_t address = x->guest + 4 * index;
		enum a32_op op;

		if (get(x->label, index))
			reached = true;
		if (!reached && index > farthest)
			break;
		if (!x->fetch(x->owner, address, &word))
			break;
		op = a32_decode(word);
		x->words[index] = word;
		x->ops[index] = op;
		if (!reached)
			continue;
		put(x->reached, index);
		if (index && x->native(x->owner, address) >= 0) {
			index++;
			break;
		}
		if (op == A32_B && !one_block) {
			uint32_t target = (a32_branch_target(word, address) - x->guest) / 4;

			if (target < most) {
				put(x->label, target);
				if (target > farthest)
					farthest = target;
			}
		}
		if (op != A32_UNDEFINED && a32_table[op].family == EXCLUSIVE &&
		    op != A32_CLREX &&
		    (uses_scratch(x, field_n(word)) || uses_scratch(x, field_d(word)) ||
		     uses_scratch(x, field_m(word)) || op == A32_LDREXD || op == A32_STREXD))
			x->exclusives_interpreted = true;
		reached = falls_through(op, word);
		if (one_block && (a32_is_branch(op, word) || (address & 0xffc) == 0xffc)) {
			index++;
			break;
		}
	}
	x->count = index;
	return index;
}

static void begin_instruction(struct translator *x)
{
	x->emitted = 0;
	x->flags_set_at = 0;
	x->interpret = false;
	x->keep_single = false;
	x->ends_it = false;
}

static void emit_call(struct translator *x, enum offload_call call)
{
	begin_instruction(x);
	t32_call(x, call);
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
}

/* What the driver must remember to try something else. */
struct mark {
	uint16_t at, literals, exits;
	uint8_t holds, held_base;
};

static struct mark mark(const struct translator *x)
{
	return (struct mark){ x->at, x->literals, x->exits, x->holds, x->held_base };
}

static void go_back(struct translator *x, struct mark mark)
{
	x->at = mark.at;
	x->literals = mark.literals;
	x->exits = mark.exits;
	x->holds = mark.holds;
	x->held_base = mark.held_base;
	begin_instruction(x);
}

static bool fits_it(const struct translator *x, uint32_t room)
{
	return !x->interpret && !x->keep_single && x->emitted && x->emitted <= room &&
		(!x->flags_set_at || x->flags_set_at == x->emitted);
}

/* The IT instruction for the instructions collected in the open block. */
static void write_it(struct translator *x)
{
	uint32_t first = x->it_cond & 1, mask = 0;

	for (uint32_t i = 1; i < x->it_count; i++)
		mask |= (first ^ bit(x->it_pattern, i)) << (4 - i);
	mask |= 1u << (4 - x->it_count);
	x->out[x->it_at] = x->it_cond << 4 | mask;
	x->out[x->it_at + 1] = 0xbf;
}

static void grow_it(struct translator *x, bool inverse)
{
	for (uint32_t i = 0; i < x->emitted; i++)
		x->it_pattern |= inverse << (x->it_count + i);
	x->it_count += x->emitted;
	write_it(x);
	if (x->flags_set_at || x->ends_it)
		x->it_count = 4;
}

/* An instruction under a condition: in the open IT block, in one of its own, or branched around. */
static void translate_conditional(struct translator *x, uint32_t cond, bool may_join)
{
	struct mark start = mark(x);
	uint32_t length;

	if (may_join && x->it_count && x->it_count < 4 && (cond ^ x->it_cond) <= 1) {
		begin_instruction(x);
		translate_body(x);
		if (fits_it(x, 4 - x->it_count)) {
			grow_it(x, cond != x->it_cond);
			goto done;
		}
		go_back(x, start);
	}
	x->it_at = x->at;
	emit16(x, 0);
	begin_instruction(x);
	translate_body(x);
	length = x->at - x->it_at - 2;
	if (x->interpret) {
		go_back(x, start);
		emit_call(x, CALL_INTERPRET);
		return;
	}
	if (!length) {
		x->at = x->it_at;
		return;
	}
	x->it_count = 0;
	if (fits_it(x, 4)) {
		x->it_cond = cond;
		x->it_pattern = 0;
		grow_it(x, false);
	} else if (x->at <= x->room) {
		/* b<inverse>.n over it; the offset counts from four bytes behind the branch. */
		x->out[x->it_at] = (uint8_t)((length - 2) / 2);
		x->out[x->it_at + 1] = 0xd0 | (cond ^ 1);
	}
done:
	/* It may or may not have happened. */
	if (x->holds != start.holds || x->held_base != start.held_base)
		x->holds = HOLDS_NOTHING;
	else if (x->holds == HOLDS_BASE && bit(a32_writes(x->op, x->word), x->held_base))
		x->holds = HOLDS_NOTHING;
}

static void translate_instruction(struct translator *x, bool is_label)
{
	uint32_t cond = field_cond(x->word);
	struct mark start;
	int native;

	begin_instruction(x);
	if (is_label)
		x->holds = HOLDS_NOTHING;
	native = x->native(x->owner, x->address);
	if (native >= 0) {
		emit_call(x, CALL_NATIVE);
		emit16(x, native);
		return;
	}
	if (x->op == A32_UNDEFINED || a32_unpredictable(x->op, x->word) ||
	    a32_table[x->op].family == REFUSED) {
		emit_call(x, CALL_STOP);
		return;
	}
	if (cond < COND_AL && x->op != A32_B) {
		translate_conditional(x, cond, !is_label);
		return;
	}
	x->it_count = 0;
	start = mark(x);
	translate_body(x);
	if (x->interpret) {
		go_back(x, start);
		emit_call(x, CALL_INTERPRET);
	}
}

/* Behind the code: constants, then one exit for each branch that leaves. */
static void lay_out_literals(struct translator *x)
{
	if (x->at & 2)
		emit16(x, 0xbf00);
	for (uint32_t i = 0; i < x->literals; i++) {
		uint32_t value = x->literal[i].value, at = x->at, j;

		for (j = 0; j < i && x->literal[j].value != value; j++)
			;
		if (j < i) {
			/* Where it already stands. */
			at = x->literal[j].at;
		} else {
			emit32(x, value & 0xffff, value >> 16);
		}
		if (x->overflow)
			return;
		/* The offset counts from the word-aligned PC, four bytes behind the load. */
		j = at - ((x->literal[i].at + 4) & ~3u);
		x->out[x->literal[i].at + 2] |= j & 0xff;
		x->out[x->literal[i].at + 3] |= j >> 8;
		x->literal[i].at = at;
	}
}

static void write_branch(struct translator *x, uint32_t at, uint32_t to)
{
	uint32_t second = x->out[at + 2] | x->out[at + 3] << 8, code;
	uint32_t first = x->out[at] | x->out[at + 1] << 8;

	/* The place says which kind: t32_branch's second half has bit 12 set. */
	if (second & 0x1000)
		code = t32_branch(x->host + at, to);
	else
		code = t32_branch_if(bits(first, 9, 6), x->host + at, to);
	for (int i = 0; i < 4; i++)
		x->out[at + i] = code >> 8 * i;
}

static void lay_out_exits(struct translator *x)
{
	for (uint32_t i = 0; i < x->exits && !x->overflow; i++) {
		uint32_t target = x->exit[i].target, index = (target - x->guest) / 4;
		uint32_t at = x->exit[i].at, known;

		if (index < x->count && get(x->reached, index) &&
		    (index == 0 || get(x->label, index)) &&
		    translator_option(x, OPTION_CHAIN)) {
			write_branch(x, at, x->host + x->offset[index]);
			continue;
		}
		known = translator_option(x, OPTION_CHAIN) ? cache_find(x->cache, target) : 0;
		if (known) {
			write_branch(x, at, known & ~1u);
			continue;
		}
		write_branch(x, at, x->host + x->at);
		if (translator_option(x, OPTION_CHAIN)) {
			emit32(x, 0xdf00 | CALL_CHAIN, 0xbf00);
			emit32(x, target & 0xffff, target >> 16);
			emit32(x, (x->host + at) & 0xffff, (x->host + at) >> 16);
		} else {
			emit32(x, 0xdf00 | CALL_EXIT, 0xbf00);
			emit32(x, target & 0xffff, target >> 16);
		}
	}
}

/* Where calls return to: what a return looks for. */
static bool is_return_point(const struct translator *x, uint32_t index)
{
	enum a32_op before = index ? x->ops[index - 1] : A32_UNDEFINED;

	return get(x->reached, index) && index && get(x->reached, index - 1) &&
		(before == A32_BL || before == A32_BLX_reg);
}

static void enter(struct translator *x)
{
	for (uint32_t i = 0; i < x->count; i++)
		if (!i || (get(x->reached, i) && (get(x->label, i) || is_return_point(x, i))))
			cache_enter(x->cache, x->guest + 4 * i, (x->host + x->offset[i]) | 1);
}

uint32_t translate_region(struct translator *x, uint32_t guest, bool *unmapped)
{
	struct code_cache *cache = x->cache;
	uint32_t header, lengths;
	struct region *region;

	*unmapped = false;
	x->guest = guest;
	x->exclusives_interpreted = false;
	for (uint32_t i = 0; i < sizeof(x->label); i++)
		x->label[i] = x->reached[i] = 0;
	if (!find_extent(x)) {
		*unmapped = true;
		return 0;
	}
	lengths = (sizeof(*region) + x->count + 3) & ~3u;
	header = cache->used;
	if (cache->regions == REGIONS_MOST || header + lengths + 64 > cache->size)
		return 0;
	region = (void *)(cache->bytes + header);
	x->out = cache->bytes + header + lengths;
	x->host = cache->address + header + lengths;
	x->room = cache->size - header - lengths;
	if (x->room > 0x8000)
		x->room = 0x8000;
	x->at = 0;
	x->literals = 0;
	x->exits = 0;
	x->overflow = false;
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
	for (uint32_t i = 0; i < x->count; i++) {
		x->address = guest + 4 * i;
		x->word = x->words[i];
		x->op = x->ops[i];
		x->offset[i] = x->at;
		if (get(x->reached, i)) {
			if (is_return_point(x, i))
				x->holds = HOLDS_NOTHING;
			translate_instruction(x, get(x->label, i) || is_return_point(x, i));
		}
		region->lengths[i] = (x->at - x->offset[i]) / 2;
		/* Literals must be reachable from the first that needs one. */
		if (x->at + 4u * x->literals > 3500 || x->literals > LITERALS_MOST - 8 ||
		    x->exits > EXITS_MOST - 8)
			x->count = i + 1;
	}
	/* Where the region was cut, it goes on elsewhere. */
	if (get(x->reached, x->count - 1) && falls_through(x->ops[x->count - 1],
							   x->words[x->count - 1])) {
		x->exit[x->exits].at = x->at;
		x->exit[x->exits++].target = guest + 4 * x->count;
		emit32(x, 0xf000, 0x9000);
	}
	region->guest = guest;
	region->count = x->count;
	region->code_offset = lengths;
	region->code_bytes = x->at;
	lay_out_literals(x);
	lay_out_exits(x);
	if (x->overflow)
		return 0;
	if (x->at & 2)
		emit16(x, 0xbf00);
	region->bytes = lengths + x->at;
	cache->region[cache->regions++] = header;
	cache->used = header + region->bytes;
	cache->translated_regions++;
	cache->translated_instructions += x->count;
	cache->emitted_bytes += x->at;
	enter(x);
	return x->host | 1;
}
