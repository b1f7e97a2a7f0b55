// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Makes regions: finds their extent, translates instruction by instruction, lays out what follows. */
#include "translate.h"
#include "t32.h"

enum { BYTES_OF_EXIT = 12, MOST_OF_INSTRUCTION = 80 };

/* Without one of these something else than the translator's own code uses the scratch register. */
enum {
	OPTIONS_OF_CARRY = OPTION_CARRY | OPTION_REGISTERS | OPTION_FLAGS | OPTION_STACK |
		OPTION_INTERRUPTS | OPTION_LINEAR | OPTION_PROTECTION,
};

static bool get(const uint32_t *set, uint32_t index)
{
	return set[index / 32] >> (index % 32) & 1;
}

static void put(uint32_t *set, uint32_t index)
{
	set[index / 32] |= 1u << (index % 32);
}

static bool falls_through(const struct instruction *in)
{
	return instruction_links(in) || !instruction_branches(in) || in->cond < COND_AL ||
		(in->op != A32_UNDEFINED && a32_table[in->op].family == COMPARE_BRANCH);
}

bool translator_fetch(const struct translator *x, uint32_t guest, uint32_t it,
		      struct instruction *in)
{
	uint32_t address = guest & ~1u, word, half;

	if (!x->fetch(x->owner, address & ~3u, &word))
		return false;
	if (!(guest & 1)) {
		a32_expand(word, address, in);
		return true;
	}
	half = (address & 2) ? word >> 16 : word & 0xffff;
	if (half >> 11 < 0x1d) {
		t32_expand(half, 2, address, it, in);
		return true;
	}
	if ((address & 2) && !x->fetch(x->owner, address + 2, &word))
		return false;
	half = half << 16 | ((address & 2) ? word & 0xffff : word >> 16);
	t32_expand(half, 4, address, it, in);
	return true;
}

/* Words or halfwords that an instruction takes. */
static uint32_t units_of(const struct translator *x, const struct instruction *in, uint32_t index)
{
	return ((in->next & ~1u) - (x->guest & ~1u)) / x->unit - index;
}

static uint32_t index_of(const struct translator *x, uint32_t target)
{
	/* Of another instruction set: nowhere in this region. */
	return (target ^ x->guest) & 1 ? REGION_MOST : (target - x->guest) / x->unit;
}

static bool is_interpreted_exclusive(const struct translator *x, const struct instruction *in)
{
	uint32_t word = in->word;

	if (in->op == A32_UNDEFINED || a32_table[in->op].family != EXCLUSIVE ||
	    in->op == A32_CLREX)
		return false;
	return uses_scratch(x, field_n(word)) || uses_scratch(x, field_d(word)) ||
		uses_scratch(x, field_m(word)) || in->op == A32_LDREXD || in->op == A32_STREXD ||
		!translator_option(x, OPTION_REGISTERS) ||
		!translator_option(x, OPTION_PROTECTION);
}

/* A branch within the region, if it goes to an instruction's beginning outside of IT blocks. */
static void add_label(struct translator *x, uint32_t index, uint32_t from, uint32_t *farthest)
{
	if (index >= x->most || (index <= from && x->it[index]))
		return;
	put(x->label, index);
	if (index <= from)
		x->back[index] = from;
	if (index > *farthest)
		*farthest = index;
}

/*
 * Reads the guest's code from the entry on, until nothing goes on in it. Instructions that are
 * only jumped over stay in the region without code. It ends in no IT block.
 */
static bool find_extent(struct translator *x)
{
	uint32_t farthest = 0, index = 0, it = 0;
	bool reached = true, one_block = !translator_option(x, OPTION_REGIONS);
	bool one_page = one_block || !translator_option(x, OPTION_PAGES);

	while ((index < x->most || it) && index < REGION_MOST - 2) {
		struct instruction *in = &x->list[index];
		uint32_t guest = x->guest + x->unit * index, units;

		/* Of both halves of an instruction of T32. */
		for (uint32_t i = index; i < index + 2; i++) {
			x->back[i] = 0;
			x->settled[i] = (struct held){ HOLDS_NOTHING, 0, 0 };
		}
		if (get(x->label, index)) {
			reached = true;
			/* Who branches into an IT block comes there without its conditions. */
			if (it)
				x->label[index / 32] &= ~(1u << (index % 32));
		}
		if ((!reached && index > farthest) ||
		    (one_page && ((guest ^ x->guest) & ~0xfffu) && !it))
			break;
		if (!translator_fetch(x, guest, it, in))
			break;
		x->it[index] = it;
		if (!reached) {
			index++;
			continue;
		}
		units = units_of(x, in, index);
		put(x->reached, index);
		if (index && x->native(x->owner, guest & ~1u) >= 0) {
			index += units;
			break;
		}
		if (it)
			it = (it & 7) ? (it & 0xe0) | (it << 1 & 0x1f) : 0;
		else if (in->op == A32_IT && !instruction_unpredictable(in))
			it = in->value;
		if (!one_block && (in->op == A32_B || in->op == A32_CBZ || in->op == A32_CBNZ))
			add_label(x, index_of(x, in->value), index, &farthest);
		x->exclusives_interpreted |= is_interpreted_exclusive(x, in);
		reached = falls_through(in);
		index += units;
		x->it[index] = it;
		if (reached && instruction_links(in))
			put(x->comeback, index);
		if (one_block && instruction_branches(in) && !it)
			break;
	}
	x->count = index;
	return index;
}

static void begin_instruction(struct translator *x)
{
	x->emitted = 0;
	x->flags_set_at = 0;
	x->home = 0;
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
	int16_t held_offset;
};

static struct mark mark(const struct translator *x)
{
	return (struct mark){ x->at, x->literals, x->exits, x->holds, x->held_base,
		x->held_offset };
}

static void go_back(struct translator *x, struct mark mark)
{
	x->at = mark.at;
	x->literals = mark.literals;
	x->exits = mark.exits;
	x->holds = mark.holds;
	x->held_base = mark.held_base;
	x->held_offset = mark.held_offset;
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
	struct mark before = mark(x), start;
	uint32_t length;

	/* Directly behind another one, what that has left still holds where this is executed. */
	if (may_join && x->kept_at == x->at && x->kept_cond == cond) {
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
	/* Where an open block's IT stood is forgotten. */
	x->it_count = 0;
	if (!length) {
		x->at = x->it_at;
	} else if (fits_it(x, 4)) {
		x->it_cond = cond;
		x->it_pattern = 0;
		grow_it(x, false);
	} else if (x->at <= x->room) {
		/* b<inverse>.n over it; the offset counts from four bytes behind the branch. */
		x->out[x->it_at] = (uint8_t)((length - 2) / 2);
		x->out[x->it_at + 1] = 0xd0 | (cond ^ 1);
	}
done:
	/* It may or may not have happened; what leaves has not where this goes on. */
	if (x->carries && instruction_branches(&x->in) && !instruction_links(&x->in)) {
		x->holds = before.holds;
		x->held_base = before.held_base;
		x->held_offset = before.held_offset;
	}
	x->kept = held_now(x);
	x->kept_at = x->at;
	x->kept_cond = x->flags_set_at ? COND_NEVER : cond;
	if (x->holds != before.holds || x->held_base != before.held_base ||
	    x->held_offset != before.held_offset)
		x->holds = HOLDS_NOTHING;
	else if (x->holds == HOLDS_BASE && bit(instruction_writes(&x->in), x->held_base))
		x->holds = HOLDS_NOTHING;
}

static void translate_instruction(struct translator *x, bool is_label)
{
	uint32_t cond = x->in.cond;
	struct mark start;
	int native;

	begin_instruction(x);
	native = x->native(x->owner, x->address);
	if (native >= 0) {
		emit_call(x, CALL_NATIVE);
		emit16(x, native);
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

/* Whether a branch to a guest address may be patched to its code. */
static bool is_chained(const struct translator *x, uint32_t target)
{
	return translator_option(x, OPTION_CHAIN) &&
		(translator_option(x, OPTION_PAGES) || !((target ^ x->guest) & ~0xfffu));
}

/* A branch within the region, or to code that is known; the place of the branch is the answer. */
static uint32_t emit_branch(struct translator *x)
{
	uint32_t at = x->at;

	emit32(x, 0xf000, 0x9000);
	return at;
}

/* Ways into labels from where the scratch register holds something else. */
static void lay_out_entries(struct translator *x)
{
	for (uint32_t i = 0; i < x->count && !x->overflow; i++) {
		uint32_t at;

		if (x->outer[i] != NO_PLACE || !x->settled[i].what)
			continue;
		x->outer[i] = x->at;
		emit_held(x, x->settled[i]);
		at = emit_branch(x);
		if (!x->overflow)
			write_branch(x, at, x->host + x->inner[i]);
	}
}

/* Host address of a label's code, for a branch with what the scratch register holds there. */
static uint32_t way_in(const struct translator *x, uint32_t index, struct held held)
{
	if (!x->settled[index].what && !x->settled[index].hosted)
		return x->host + x->offset[index];
	return x->host + (same_held(held, x->settled[index]) ? x->inner[index] : x->outer[index]);
}

static void lay_out_exits(struct translator *x)
{
	for (uint32_t i = 0; i < x->exits && !x->overflow; i++) {
		uint32_t target = x->exit[i].target, index = index_of(x, target);
		uint32_t at = x->exit[i].at, known;
		struct held held = x->exit[i].held;
		bool chained = is_chained(x, target);
		bool inside = chained && index < x->count && get(x->reached, index) &&
			(index == 0 || get(x->label, index));

		/* Back in a loop whose pointers are host addresses, or out of it. */
		if (held.hosted) {
			struct held wanted = x->settled[inside ? index : 0];
			bool stays = inside && wanted.hosted == held.hosted;

			if (!stays || (wanted.what && !same_held(wanted, held))) {
				write_branch(x, at, x->host + x->at);
				if (stays)
					emit_held(x, wanted);
				else
					emit_guest_addresses(x, held.hosted);
				at = emit_branch(x);
				if (x->overflow)
					return;
			}
			held = stays ? wanted : (struct held){ held.what, held.base, 0 };
		}
		if (inside) {
			write_branch(x, at, way_in(x, index, held));
			continue;
		}
		known = chained ? cache_find(x->cache, target) : 0;
		if (known) {
			write_branch(x, at, known & ~1u);
			continue;
		}
		write_branch(x, at, x->host + x->at);
		if (chained) {
			emit32(x, 0xdf00 | CALL_CHAIN, 0xbf00);
			emit32(x, target & 0xffff, target >> 16);
			emit32(x, (x->host + at) & 0xffff, (x->host + at) >> 16);
		} else {
			emit32(x, 0xdf00 | CALL_EXIT, 0xbf00);
			emit32(x, target & 0xffff, target >> 16);
		}
	}
}

static void enter(struct translator *x)
{
	for (uint32_t i = 0; i < x->count; i++)
		if (!i || (get(x->reached, i) && (get(x->label, i) || get(x->comeback, i))))
			cache_enter(x->cache, x->guest + x->unit * i,
				    way_in(x, i, (struct held){ HOLDS_NOTHING, 0, 0 }) | 1);
}

static void begin_region(struct translator *x, uint32_t guest)
{
	x->guest = guest;
	x->unit = guest & 1 ? 2 : 4;
	x->exclusives_interpreted = false;
	for (uint32_t i = 0; i < SET_WORDS; i++)
		x->label[i] = x->reached[i] = x->comeback[i] = 0;
	x->carries = delta(x) && (x->layout->options & OPTIONS_OF_CARRY) == OPTIONS_OF_CARRY;
	x->hosts = x->carries && may_host(x->layout);
	x->hosted = 0;
	x->loops = 0;
	x->kept_cond = COND_NEVER;
	x->at = 0;
	x->literals = 0;
	x->exits = 0;
	x->overflow = false;
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
	x->pushed = 0;
}

/* Literals must be reachable from the first that needs one; arrays end. */
static bool is_full(const struct translator *x)
{
	return x->at + 4u * x->literals > 3300 || x->literals > LITERALS_MOST - 8 ||
		x->exits > EXITS_MOST - 8;
}

uint32_t translate_region(struct translator *x, uint32_t guest, bool *unmapped)
{
	struct code_cache *cache = x->cache;
	uint32_t header, lengths, last = 0, total;
	struct region *region;

	*unmapped = false;
	begin_region(x, guest);
	if (!find_extent(x)) {
		*unmapped = true;
		return 0;
	}
	total = x->count;
	lengths = (sizeof(*region) + total * (guest & 1 ? 2 : 1) + 3) & ~3u;
	header = cache->used;
	if (cache->regions == REGIONS_MOST || header + lengths + 64 > cache->size)
		return 0;
	region = (void *)(cache->bytes + header);
	x->out = cache->bytes + header + lengths;
	x->host = cache->address + header + lengths;
	x->room = cache->size - header - lengths;
	if (x->room > 0x8000)
		x->room = 0x8000;
	for (uint32_t i = 0; i < x->count; i++) {
		x->address = (guest & ~1u) + x->unit * i;
		x->offset[i] = x->at;
		if (get(x->reached, i)) {
			bool entry = translator_is_label(x, i);

			x->in = x->list[i];
			if (entry)
				settle_label(x, i, i && falls_through(&x->list[last]),
					     !i || get(x->comeback, i));
			last = i;
			if (!translator_option(x, OPTION_INTERRUPTS) && (entry || !i))
				translate_poll(x);
			translate_instruction(x, entry);
			end_loop(x, i, falls_through(&x->list[i]));
			if (is_full(x) && !x->it[i + units_of(x, &x->list[i], i)])
				x->count = i + units_of(x, &x->list[i], i);
		}
		region->lengths[i] = (x->at - x->offset[i]) / 2;
		if (guest & 1)
			region->lengths[total + i] = x->it[i];
	}
	/* Where the region was cut, it goes on elsewhere. */
	if (falls_through(&x->list[last]) && last + units_of(x, &x->list[last], last) == x->count) {
		x->exit[x->exits].held = held_now(x);
		x->exit[x->exits].target = guest + x->unit * x->count;
		x->exit[x->exits++].at = emit_branch(x);
	}
	region->guest = guest;
	region->states = total;
	region->count = x->count;
	region->code_offset = lengths;
	region->code_bytes = x->at;
	lay_out_literals(x);
	lay_out_entries(x);
	lay_out_exits(x);
	region->loops = x->loops;
	region->loops_offset = lengths + x->at;
	for (uint32_t i = 0; i < x->loops; i++) {
		emit32(x, x->loop[i].first, x->loop[i].last);
		emit16(x, x->loop[i].hosted);
	}
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
