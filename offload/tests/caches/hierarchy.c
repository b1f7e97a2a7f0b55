// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Caches of a big core: hierarchy.h. */
#include <string.h>

#include "../differential.h"
#include "hierarchy.h"

void hierarchy_choose(struct hierarchy *h, uint8_t *memory, uint32_t base, uint32_t size)
{
	memset(h, 0, sizeof(*h));
	h->levels = 1 + (below(4) != 0);
	h->line_bytes = below(2) ? 32 : 64;
	h->sharing = below(SHARINGS);
	h->level[0].sets = 1u << (1 + below(4));
	h->level[0].ways = 1 + below(4);
	h->level[1].sets = 1u << (2 + below(4));
	h->level[1].ways = 1 + below(WAYS_MAX);
	h->memory = memory;
	h->base = base;
	h->size = size;
}

static uint32_t log2_up(uint32_t value)
{
	return value > 1 ? 32 - __builtin_clz(value - 1) : 0;
}

uint32_t hierarchy_ctr(const struct hierarchy *h)
{
	/* The lines of data and of instructions. */
	return 4u << 29 | (log2_up(h->line_bytes) - 2) << 16 | (log2_up(h->line_bytes) - 2);
}

uint32_t hierarchy_clidr(const struct hierarchy *h)
{
	/* Separate caches, then a unified one; instructions are unified at the first level. */
	return 3 | (h->levels > 1 ? 4 << 3 : 0) | 1 << 21 | h->levels << 24 | 1 << 27;
}

uint32_t hierarchy_ccsidr(const struct hierarchy *h, uint32_t level)
{
	if (level >= h->levels)
		return 0;
	return (log2_up(h->line_bytes) - 4) | (h->level[level].ways - 1) << 3 | (h->level[level].sets - 1) << 13;
}

bool hierarchy_covers(const struct hierarchy *h, uint32_t address)
{
	return address - h->base < h->size;
}

static uint8_t *in_memory(const struct hierarchy *h, uint32_t address)
{
	return h->memory + (address - h->base);
}

static uint32_t set_of(const struct hierarchy *h, uint32_t level, uint32_t address)
{
	return address / h->line_bytes % h->level[level].sets;
}

static struct line *find(const struct hierarchy *h, uint32_t level, uint32_t address)
{
	struct line *set = (struct line *)h->level[level].lines[set_of(h, level, address)];

	address &= -h->line_bytes;
	for (uint32_t way = 0; level < h->levels && way < h->level[level].ways; way++)
		if (set[way].valid && set[way].address == address)
			return &set[way];
	return NULL;
}

static void leave(struct hierarchy *h, uint32_t level, struct line *line);

/* Room for a line that the level has not. */
static struct line *make_room(struct hierarchy *h, uint32_t level, uint32_t address)
{
	struct line *set = h->level[level].lines[set_of(h, level, address)], *line = NULL;

	for (uint32_t way = 0; way < h->level[level].ways; way++)
		if (!set[way].valid)
			line = &set[way];
	if (!line) {
		line = &set[below(h->level[level].ways)];
		leave(h, level, line);
	}
	line->address = address & -h->line_bytes;
	line->valid = true;
	line->dirty = false;
	return line;
}

/* A line's data goes to the level below, or to memory behind the last. */
static void write_back(struct hierarchy *h, uint32_t level, const struct line *line)
{
	struct line copy = *line, *lower;

	h->write_backs++;
	if (level + 1 == h->levels) {
		memcpy(in_memory(h, copy.address), copy.data, h->line_bytes);
		return;
	}
	lower = find(h, level + 1, copy.address);
	if (!lower)
		lower = make_room(h, level + 1, copy.address);
	memcpy(lower->data, copy.data, h->line_bytes);
	lower->dirty = true;
}

static void clean(struct hierarchy *h, uint32_t level, struct line *line)
{
	if (line->dirty)
		write_back(h, level, line);
	line->dirty = false;
}

static void leave(struct hierarchy *h, uint32_t level, struct line *line)
{
	struct line copy = *line, *upper = NULL;

	/* What the levels above have of it goes first. */
	if (level && h->sharing == INCLUSIVE)
		upper = find(h, level - 1, copy.address);
	if (upper && upper->dirty) {
		memcpy(copy.data, upper->data, h->line_bytes);
		copy.dirty = true;
	}
	if (upper)
		upper->valid = false;
	line->valid = false;
	if (copy.dirty) {
		write_back(h, level, &copy);
	} else if (level + 1 < h->levels && h->sharing == VICTIM && !find(h, level + 1, copy.address)) {
		struct line *lower = make_room(h, level + 1, copy.address);

		memcpy(lower->data, copy.data, h->line_bytes);
	}
}

void hierarchy_fetch(struct hierarchy *h, uint32_t address)
{
	struct line *line;

	if (h->levels < 2 || !hierarchy_covers(h, address) || find(h, 1, address))
		return;
	line = make_room(h, 1, address);
	memcpy(line->data, in_memory(h, line->address), h->line_bytes);
}

struct line *hierarchy_load(struct hierarchy *h, uint32_t address)
{
	struct line *line = find(h, 0, address), *lower, copy = { 0 };

	if (line)
		return line;
	lower = find(h, 1, address);
	if (!lower && h->levels > 1 && h->sharing != VICTIM) {
		hierarchy_fetch(h, address);
		lower = find(h, 1, address);
	}
	if (lower) {
		copy = *lower;
		/* It moves. */
		if (h->sharing == VICTIM)
			lower->valid = false;
		else
			copy.dirty = false;
	} else {
		memcpy(copy.data, in_memory(h, address & -h->line_bytes), h->line_bytes);
	}
	line = make_room(h, 0, address);
	memcpy(line->data, copy.data, h->line_bytes);
	line->dirty = copy.dirty;
	return line;
}

void hierarchy_evict_random(struct hierarchy *h)
{
	uint32_t level = below(h->levels);
	struct line *line = &h->level[level].lines[below(h->level[level].sets)][below(h->level[level].ways)];

	if (line->valid)
		leave(h, level, line);
}

void hierarchy_make_dirty(struct hierarchy *h, uint32_t address)
{
	struct line *line = hierarchy_load(h, address), *lower = find(h, 1, address);

	if (line->dirty || (lower && lower->dirty))
		return;
	line->dirty = true;
	for (uint32_t i = 0; i < h->line_bytes; i++) {
		uint8_t old = dice();

		in_memory(h, line->address)[i] = old;
		if (lower)
			lower->data[i] = old;
	}
}

uint8_t hierarchy_byte(const struct hierarchy *h, uint32_t address)
{
	for (uint32_t level = 0; level < h->levels; level++) {
		const struct line *line = find(h, level, address);

		if (line)
			return line->data[address % h->line_bytes];
	}
	return *in_memory(h, address);
}

static void maintain(struct hierarchy *h, uint32_t level, struct line *line, bool cleans, bool invalidates)
{
	if (!line || !line->valid)
		return;
	/* What an inclusive cache loses, the levels above lose, too. */
	if (cleans && invalidates && level && h->sharing == INCLUSIVE) {
		leave(h, level, line);
		return;
	}
	if (cleans)
		clean(h, level, line);
	if (invalidates)
		line->valid = false;
}

void hierarchy_by_set_way(struct hierarchy *h, uint32_t word, bool cleans, bool invalidates)
{
	uint32_t level = word >> 1 & 7, set, way, way_bits;

	if (level >= h->levels)
		return;
	way_bits = log2_up(h->level[level].ways);
	set = word >> log2_up(h->line_bytes) & (h->level[level].sets - 1);
	way = way_bits ? word >> (32 - way_bits) : 0;
	if (way < h->level[level].ways)
		maintain(h, level, &h->level[level].lines[set][way], cleans, invalidates);
}

void hierarchy_by_address(struct hierarchy *h, uint32_t address, bool cleans, bool invalidates)
{
	for (uint32_t level = 0; level < h->levels; level++)
		maintain(h, level, find(h, level, address), cleans, invalidates);
}
