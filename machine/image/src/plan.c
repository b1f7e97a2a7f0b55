// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * The copy plan: pairs runs of DRAM pages to save with runs of free CXL pages, and
 * the bitmap walks that it and the checks are made of. A word at a time.
 *
 *   DRAM   ..AAAAA....BB..CCC...         A A A -> first free run
 *   CXL    ####...##......#.....         A A BB CC -> second, C -> third
 */
#include "internal.h"

/* First bit >= from that differs from `skip` (all zeros or all ones), or bits. */
static dm_u64 next_other(const dm_u64 *bitmap, dm_u64 from, dm_u64 bits, dm_u64 skip)
{
	dm_u64 word, index = from >> 6;
	dm_u64 words = (bits >> 6) + ((bits & 63) != 0);

	if (from >= bits)
		return bits;
	word = (bitmap[index] ^ skip) & (~0ULL << (from & 63));
	while (!word) {
		if (++index >= words)
			return bits;
		word = bitmap[index] ^ skip;
	}
	return dm_min(bits, (index << 6) + (dm_u64)__builtin_ctzll(word));
}

dm_u64 dormouse_bitmap_next_set(const dm_u64 *bitmap, dm_u64 from, dm_u64 bits)
{
	return next_other(bitmap, from, bits, 0);
}

dm_u64 dormouse_bitmap_next_clear(const dm_u64 *bitmap, dm_u64 from, dm_u64 bits)
{
	return next_other(bitmap, from, bits, ~0ULL);
}

/* In plain arithmetic: the compiler's own would call into a library without POPCNT. */
static dm_u64 count_ones(dm_u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

/* The bits of word `index` that lie in [first, end). */
static dm_u64 word_mask(dm_u64 index, dm_u64 first, dm_u64 end)
{
	dm_u64 mask = ~0ULL;

	if (index == first >> 6)
		mask &= ~0ULL << (first & 63);
	if (index == end >> 6)
		mask &= ~(~0ULL << (end & 63));
	return mask;
}

dm_u64 dormouse_bitmap_count(const dm_u64 *bitmap, dm_u64 first, dm_u64 bits)
{
	dm_u64 index, word, count = 0;

	if (first >= bits)
		return 0;
	for (index = first >> 6; index <= (bits - 1) >> 6; index++) {
		word = bitmap[index] & word_mask(index, first, bits);
		if (word)
			count += count_ones(word);
	}
	return count;
}

void dormouse_bitmap_set_range(dm_u64 *bitmap, dm_u64 first, dm_u64 count)
{
	dm_u64 index, end = first + count;

	if (!count)
		return;
	for (index = first >> 6; index <= (end - 1) >> 6; index++)
		bitmap[index] |= word_mask(index, first, end);
}

void dormouse_bitmap_clear_range(dm_u64 *bitmap, dm_u64 first, dm_u64 count)
{
	dm_u64 index, end = first + count;

	if (!count)
		return;
	for (index = first >> 6; index <= (end - 1) >> 6; index++)
		bitmap[index] &= ~word_mask(index, first, end);
}

void dormouse_plan_init(struct dormouse_plan *plan, const dm_u64 *dram_bitmap, dm_u64 dram_pages,
			const dm_u64 *cxl_bitmap, dm_u64 cxl_pages, dm_u64 first_cxl_page)
{
	plan->dram_bitmap = dram_bitmap;
	plan->cxl_bitmap = cxl_bitmap;
	plan->dram_pages = dram_pages;
	plan->cxl_pages = cxl_pages;
	plan->dram_next = 0;
	plan->dram_end = 0;
	plan->cxl_next = first_cxl_page;
	plan->cxl_end = first_cxl_page;
}

int dormouse_plan_next(struct dormouse_plan *plan, struct dormouse_copy *copy)
{
	dm_u64 next;

	if (plan->dram_next == plan->dram_end) {
		next = dormouse_bitmap_next_set(plan->dram_bitmap, plan->dram_end,
						plan->dram_pages);
		if (next >= plan->dram_pages)
			return 0;
		plan->dram_next = next;
		plan->dram_end = dormouse_bitmap_next_clear(plan->dram_bitmap, next,
							    plan->dram_pages);
	}
	if (plan->cxl_next == plan->cxl_end) {
		next = dormouse_bitmap_next_clear(plan->cxl_bitmap, plan->cxl_end,
						  plan->cxl_pages);
		if (next >= plan->cxl_pages)
			return -1;
		plan->cxl_next = next;
		plan->cxl_end = dormouse_bitmap_next_set(plan->cxl_bitmap, next, plan->cxl_pages);
	}

	copy->dram_page = plan->dram_next;
	copy->cxl_page = plan->cxl_next;
	copy->pages = dm_min(plan->dram_end - plan->dram_next, plan->cxl_end - plan->cxl_next);
	plan->dram_next += copy->pages;
	plan->cxl_next += copy->pages;
	return 1;
}
