// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Digests of the pages that stay where they are on the device: one for each group of 64
 * pages, which are the pages of one word of the CXL bitmap. So the table is as large as
 * the bitmap, 1/32768 of the window, and a group is a piece of work for one CPU.
 */
#include "internal.h"

dm_u64 dormouse_groups(dm_u64 cxl_bytes)
{
	return dm_bitmap_bytes(cxl_bytes >> DORMOUSE_PAGE_SHIFT) / 8;
}

dm_u64 dormouse_user_pages(dm_u32 user_check, dm_u64 word)
{
	switch (user_check) {
	case DORMOUSE_USER_CHECK_SAMPLE:
		return word & (~word + 1);	/* the lowest bit */
	case DORMOUSE_USER_CHECK_ALL:
		return word;
	default:
		return 0;
	}
}

dm_u64 dormouse_group_digest(const void *group, dm_u64 pages)
{
	const dm_u8 *page = group;
	struct dormouse_xxh64 hash;
	dm_u64 digest;

	dormouse_xxh64_init(&hash);
	for (; pages; pages >>= 1, page += DORMOUSE_PAGE_BYTES)
		if (pages & 1)
			dormouse_xxh64_update(&hash, page, DORMOUSE_PAGE_BYTES);
	digest = dormouse_xxh64_final(&hash);
	/* 0 means that there is no digest. */
	return digest ? digest : 1;
}

dm_u64 dm_compare_groups(const struct dormouse_header *header, const void *window,
			 const void *data, dm_u64 data_pages, dm_u64 first, dm_u64 end)
{
	const dm_u8 *bytes = window, *group_bytes = data;
	const dm_u64 *bitmap = (const dm_u64 *)(bytes + header->cxl_bitmap_offset);
	const dm_u64 *table = (const dm_u64 *)(bytes + header->user_table_offset);
	dm_u64 group, pages, left;

	if (header->user_check == DORMOUSE_USER_CHECK_NONE)
		return end;
	for (group = first; group < end; group++) {
		if (!table[group])
			continue;
		pages = bitmap[group];
		/* Bits behind the end of the data stand for no pages. */
		left = data_pages - group * DORMOUSE_GROUP_PAGES;
		if (left < DORMOUSE_GROUP_PAGES)
			pages &= (1ULL << left) - 1;
		if (dormouse_group_digest(group_bytes + group * DORMOUSE_GROUP_BYTES,
					  dormouse_user_pages(header->user_check, pages)) !=
		    table[group])
			return group;
	}
	return end;
}

dm_u64 dormouse_user_compare(const struct dormouse_header *header, const void *window,
			     dm_u64 first, dm_u64 end)
{
	return dm_compare_groups(header, window, window,
				 header->cxl_bytes >> DORMOUSE_PAGE_SHIFT, first, end);
}
