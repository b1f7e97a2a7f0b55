// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Makes a region: finds its extent, translates instruction by instruction, lays out what follows. */
#include "translate/steps.h"

/* Without one of these something else than the translator's own code uses the scratch register. */
enum {
	OPTIONS_OF_CARRY = OPTION_CARRY | OPTION_REGISTERS | OPTION_FLAGS | OPTION_STACK |
		OPTION_INTERRUPTS | OPTION_LINEAR | OPTION_PROTECTION,
};

/* Plain instructions have a translation of their own, and what is inlined is far away. */
enum {
	OPTIONS_OF_INLINE = OPTION_INLINE | OPTION_REGISTERS | OPTION_FLAGS | OPTION_STACK | OPTION_INTERRUPTS |
		OPTION_LINEAR | OPTION_PROTECTION | OPTION_REGIONS | OPTION_CHAIN | OPTION_PAGES,
};

static void begin_region(struct translator *x, uint32_t guest)
{
	x->guest = guest;
	x->unit = guest & 1 ? 2 : 4;
	x->exclusives_interpreted = false;
	for (uint32_t i = 0; i < SET_WORDS; i++)
		x->label[i] = x->reached[i] = x->comeback[i] = 0;
	x->carries = delta(x) && (x->layout->options & OPTIONS_OF_CARRY) == OPTIONS_OF_CARRY;
	x->hosts = x->carries && may_host(x->layout);
	x->inlines = (x->layout->options & OPTIONS_OF_INLINE) == OPTIONS_OF_INLINE;
	x->hosted = 0;
	x->loops = 0;
	x->stack_copies = x->stack_copy = 0;
	x->kept_cond = COND_NEVER;
	x->code.at = 0;
	x->code.literals = 0;
	x->exits = 0;
	x->fixups = 0;
	x->constants = 0;
	x->code.overflow = false;
	x->holds = HOLDS_NOTHING;
	x->it_count = 0;
	x->pushed = 0;
	x->done = 0;
	x->alone = false;
}

/* Behind an instruction: which registers are the stack pointer plus an offset. */
static void keep_stack_copies(struct translator *x)
{
	if (x->stack_copies) {
		uint32_t writes = x->in.op == A32_UNDEFINED ? ~0u : instruction_writes(&x->in);

		x->stack_copies = bit(writes, SP) ? 0 : x->stack_copies & ~writes;
	}
	x->stack_copies |= x->stack_copy;
	x->stack_copy = 0;
}

/* Literals must be reachable from the first that needs one; arrays end. */
static bool is_full(const struct translator *x)
{
	return x->code.at + 4u * x->code.literals > 3300 || x->code.literals > LITERALS_MAX - 8 ||
		x->exits > EXITS_MAX - 8 || x->fixups > FIXUPS_MAX - 8;
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
	if (cache->regions == REGIONS_MAX || header + lengths + 64 > cache->size)
		return 0;
	region = (void *)(cache->bytes + header);
	x->code.out = cache->bytes + header + lengths;
	x->code.host = cache->address + header + lengths;
	x->code.room = cache->size - header - lengths;
	if (x->code.room > 0x8000)
		x->code.room = 0x8000;
	for (uint32_t i = 0; i < x->count; i++) {
		x->address = address_of(x, i);
		x->index = i;
		x->offset[i] = x->code.at;
		if (get(x->reached, i)) {
			bool entry = translator_is_label(x, i);

			x->in = x->list[i];
			if (entry) {
				x->stack_copies = 0;
				settle_label(x, i, i && falls_through(&x->list[last]),
					     !i || get(x->comeback, i));
			}
			last = i;
			if (!translator_option(x, OPTION_INTERRUPTS) && (entry || !i))
				translate_poll(x);
			translate_instruction(x, entry);
			keep_stack_copies(x);
			end_loop(x, i, falls_through(&x->list[i]));
			if (is_full(x) && i >= x->done && !x->it[index_behind(x, i)])
				x->count = index_behind(x, i);
		}
		region->lengths[i] = (x->code.at - x->offset[i]) / 2;
		if (guest & 1)
			region->lengths[total + i] = x->it[i];
	}
	/* Where the region was cut, it goes on elsewhere. */
	if (falls_through(&x->list[last]) && index_behind(x, last) == x->count) {
		x->exit[x->exits].held = held_now(x);
		x->exit[x->exits].index = REGION_MAX;
		x->exit[x->exits].target = address_of(x, x->count) | (guest & 1);
		x->exit[x->exits++].at = emit_branch(x);
	}
	region->guest = guest;
	region->states = total;
	region->count = x->count;
	region->own = own_units(x);
	region->code_offset = lengths;
	region->code_bytes = x->code.at;
	lay_out_literals(x);
	lay_out_entries(x);
	lay_out_exits(x);
	region->loops = x->loops;
	region->loops_offset = lengths + x->code.at;
	for (uint32_t i = 0; i < x->loops; i++) {
		emit32(&x->code, x->loop[i].first, x->loop[i].last);
		emit16(&x->code, x->loop[i].hosted);
	}
	region->fixups = x->fixups;
	for (uint32_t i = 0; i < x->fixups; i++) {
		emit32(&x->code, x->fixup[i].from, x->fixup[i].to);
		emit16(&x->code, x->fixup[i].number << 8 | x->fixup[i].kind);
	}
	region->constants = 0;
	for (uint32_t i = 0; i < x->constants; i++) {
		/* What lies in the region is of its own words. */
		if ((uint32_t)(4 * x->constant[i]) < x->unit * region->own)
			continue;
		emit16(&x->code, (uint16_t)x->constant[i]);
		region->constants++;
	}
	region->runs = 0;
	for (uint32_t i = 1; i < x->runs && x->run[i].first < x->count; i++) {
		emit32(&x->code, x->run[i].first, x->run[i].guest & 0xffff);
		emit16(&x->code, x->run[i].guest >> 16);
		region->runs++;
	}
	if (x->code.overflow)
		return 0;
	if (x->code.at & 2)
		emit16(&x->code, 0xbf00);
	region->bytes = lengths + x->code.at;
	cache->region[cache->regions++] = header;
	cache->used = header + region->bytes;
	cache->translated_regions++;
	cache->translated_instructions += x->count;
	cache->emitted_bytes += x->code.at;
	enter_labels(x);
	return x->code.host | 1;
}
