// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The code cache and its indexes: guest address to host address and back. */
#include "cache/cache.h"

/* The table may well be at address 0, so there is no null pointer for what it has not. */
static bool has_entry(const struct code_cache *cache, uint32_t guest, uint32_t *index)
{
	*index = (guest - cache->table_guest) / ((guest & 1) ? 2 : 4);
	return *index < cache->table_words[guest & 1];
}

static uint32_t unit_of(const struct region *region)
{
	return (region->guest & 1) ? 2 : 4;
}

/* Where an address is, or is put: the first of a few slots that has it or is free, or else the last. */
static uint32_t outside_slot(const struct code_cache *cache, uint32_t guest)
{
	uint32_t slot = guest >> 1 ^ guest >> 8, last = slot + OUTSIDE_PROBES;

	for (; slot != last; slot++)
		if (cache->outside[slot % OUTSIDE_MAX].guest == guest || !cache->outside[slot % OUTSIDE_MAX].host)
			break;
	return slot % OUTSIDE_MAX;
}

static void forget_outside(struct code_cache *cache)
{
	for (uint32_t i = 0; i < OUTSIDE_MAX; i++)
		cache->outside[i].host = 0;
}

void cache_count(struct code_cache *cache)
{
	cache->flushes = 0;
	cache->translated_regions = 0;
	cache->translated_instructions = 0;
	cache->emitted_bytes = 0;
}

void cache_init(struct code_cache *cache)
{
	cache->used = 0;
	cache->regions = 0;
	cache_count(cache);
	forget_outside(cache);
}

void cache_flush(struct code_cache *cache)
{
	for (uint32_t i = 0; i < cache->regions; i++) {
		const struct region *region = (void *)(cache->bytes + cache->region[i]);

		for (uint32_t j = 0; j < region->own; j++) {
			uint32_t index;

			uint32_t guest = region->guest + unit_of(region) * j;

			if (has_entry(cache, guest, &index))
				cache->table[guest & 1][index] = 0;
		}
	}
	forget_outside(cache);
	cache->used = 0;
	cache->regions = 0;
	cache->flushes++;
}

uint32_t cache_find(const struct code_cache *cache, uint32_t guest)
{
	uint32_t slot, index;

	if (has_entry(cache, guest, &index))
		return cache->table[guest & 1][index];
	slot = outside_slot(cache, guest);
	return cache->outside[slot].guest == guest ? cache->outside[slot].host : 0;
}

void cache_enter(struct code_cache *cache, uint32_t guest, uint32_t host)
{
	uint32_t slot, index;

	if (has_entry(cache, guest, &index)) {
		cache->table[guest & 1][index] = host;
		return;
	}
	slot = outside_slot(cache, guest);
	cache->outside[slot].guest = guest;
	cache->outside[slot].host = host;
}

struct region *cache_region_at(const struct code_cache *cache, uint32_t host)
{
	uint32_t offset = host - cache->address, low = 0, high = cache->regions;

	if (offset >= cache->used)
		return NULL;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (cache->region[middle] <= offset)
			low = middle;
		else
			high = middle;
	}
	return (void *)(cache->bytes + cache->region[low]);
}

uint32_t region_index_of(const struct code_cache *cache, const struct region *region,
			 uint32_t host, uint32_t *offset)
{
	uint32_t code = cache->address + (uint32_t)((const uint8_t *)region - cache->bytes) +
		region->code_offset;
	uint32_t left = (host - code) / 2, index = 0;

	while (index + 1 < region->count && left >= region->lengths[index]) {
		/* What takes no host code belongs to what follows. */
		left -= region->lengths[index];
		index++;
	}
	*offset = 2 * left;
	return index;
}

uint32_t region_hosted(const struct region *region, uint32_t index, uint32_t offset)
{
	const struct loop *loop = (const void *)((const uint8_t *)region + region->loops_offset);

	for (uint32_t i = 0; i < region->loops; i++, loop++)
		if (index >= loop->first && index <= loop->last && (index > loop->first || offset))
			return loop->hosted;
	return 0;
}

uint32_t region_host_of(const struct code_cache *cache, const struct region *region)
{
	return cache->address + (uint32_t)((const uint8_t *)region - cache->bytes) +
		region->code_offset;
}

uint32_t region_it(const struct region *region, uint32_t index)
{
	return (region->guest & 1) ? region->lengths[region->states + index] : 0;
}

static const struct fixup *fixups_of(const struct region *region)
{
	const struct loop *loop = (const void *)((const uint8_t *)region + region->loops_offset);

	return (const void *)(loop + region->loops);
}

static const int16_t *constants_of(const struct region *region)
{
	return (const void *)(fixups_of(region) + region->fixups);
}

static const struct run *runs_of(const struct region *region)
{
	return (const void *)(constants_of(region) + region->constants);
}

static uint32_t run_guest(const struct run *run)
{
	return run->guest[0] | (uint32_t)run->guest[1] << 16;
}

uint32_t region_guest_at(const struct region *region, uint32_t index)
{
	const struct run *run = runs_of(region);
	uint32_t guest = region->guest, first = 0;

	for (uint32_t i = 0; i < region->runs && run->first <= index; i++, run++) {
		first = run->first;
		guest = run_guest(run) | (guest & 1);
	}
	return guest + unit_of(region) * (index - first);
}

/* Of a run: where the next one begins. */
static uint32_t end_of_run(const struct region *region, uint32_t run)
{
	return run + 1 < region->runs ? runs_of(region)[run + 1].first : region->count;
}

bool region_covers(const struct region *region, uint32_t guest)
{
	const struct run *run = runs_of(region);

	guest &= ~1u;
	if (guest - (region->guest & ~1u) < unit_of(region) * region->own)
		return true;
	for (uint32_t i = 0; i < region->runs; i += 2)
		if (guest - run_guest(run + i) < unit_of(region) * (end_of_run(region, i) - run[i].first))
			return true;
	return false;
}

/* Any odd number: sum and word are then bijections of the result. FNV's prime. */
#define SUM_FACTOR 0x01000193u

static uint32_t add_word(uint32_t sum, const uint8_t *at)
{
	uint32_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return sum * SUM_FACTOR + word;
}

/* Of words, from the one at or before an address to the one with the last byte. */
static uint32_t add_words(uint32_t sum, const uint8_t *at, uint32_t bytes)
{
	const uint8_t *end = at + bytes;

	/* Eight at a time: most of what a phase takes whose code is all translated. */
	for (; end - at >= 32; at += 32) {
		sum = add_word(add_word(add_word(add_word(sum, at), at + 4), at + 8), at + 12);
		sum = add_word(add_word(add_word(add_word(sum, at + 16), at + 20), at + 24), at + 28);
	}
	for (; at < end; at += 4)
		sum = add_word(sum, at);
	return sum;
}

uint32_t region_sum(const struct region *region, const uint8_t *first)
{
	const int16_t *constant = constants_of(region);
	const struct run *run = runs_of(region);
	uint32_t unit = unit_of(region), sum = add_words(region->guest, first, (region->guest & 2) + unit * region->own);

	for (uint32_t i = 0; i < region->runs; i += 2) {
		uint32_t guest = run_guest(run + i);

		sum = add_words(sum, first + ((guest & ~3u) - (region->guest & ~3u)),
				(guest & 2) + unit * (end_of_run(region, i) - run[i].first));
	}
	for (uint32_t i = 0; i < region->constants; i++)
		sum = add_word(sum, first + 4 * constant[i]);
	return sum;
}

const struct fixup *region_fixup(const struct region *region, uint32_t offset)
{
	const struct fixup *fixup = fixups_of(region);

	for (uint32_t i = 0; i < region->fixups; i++, fixup++)
		if (offset >= fixup->from && offset < fixup->to)
			return fixup;
	return NULL;
}
