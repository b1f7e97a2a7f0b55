// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * What a checker knows by itself: the RAM that firmware gives to the OS and the CXL
 * window. Its plausibility, its digest, and where bitmaps and digests go for it.
 */
#include "internal.h"

dm_u64 dormouse_geometry_digest(const struct dormouse_geometry *geometry)
{
	return dormouse_xxh64(geometry->range, dm_range_count(geometry) *
					       sizeof(struct dormouse_range));
}

dm_u64 dormouse_geometry_dram_bytes(const struct dormouse_geometry *geometry)
{
	dm_u32 i, count = dm_range_count(geometry);
	dm_u64 bytes = 0;

	for (i = 0; i < count; i++)
		bytes += geometry->range[i].bytes;
	return bytes;
}

dm_u64 dormouse_geometry_dram_pages(const struct dormouse_geometry *geometry)
{
	dm_u32 i, count = dm_range_count(geometry);
	dm_u64 end = 0;

	for (i = 0; i < count; i++)
		end = dm_max(end, geometry->range[i].base + geometry->range[i].bytes);
	return end >> DORMOUSE_PAGE_SHIFT;
}

int dormouse_geometry_contains(const struct dormouse_geometry *geometry, dm_u64 base, dm_u64 bytes)
{
	dm_u32 i, count = dm_range_count(geometry);
	dm_u64 end = base + bytes;

	if (!bytes || end < base)
		return 0;
	/* Ascending: a range that goes on where the last one ended prolongs the run. */
	for (i = 0; i < count; i++) {
		const struct dormouse_range *range = &geometry->range[i];

		if (base < range->base)
			return 0;
		if (base - range->base >= range->bytes)
			continue;
		if (end - range->base <= range->bytes)
			return 1;
		base = range->base + range->bytes;
	}
	return 0;
}

static int range_is_plausible(dm_u64 base, dm_u64 bytes)
{
	return bytes && !((base | bytes) & DM_PAGE_MASK) && base < DM_PHYSICAL_LIMIT &&
	       bytes <= DM_PHYSICAL_LIMIT - base;
}

enum dormouse_reason dm_ranges_check(const struct dormouse_geometry *geometry)
{
	dm_u64 cxl_end, end = 0;
	dm_u32 i;

	if (!geometry->range_count || !geometry->cxl_bytes)
		return DORMOUSE_E_NOT_READY;
	if (!range_is_plausible(geometry->cxl_base, geometry->cxl_bytes))
		return DORMOUSE_E_CXL_SIZE;
	cxl_end = geometry->cxl_base + geometry->cxl_bytes;

	if (geometry->range_count > DORMOUSE_MAX_RANGES)
		return DORMOUSE_E_MEMORY_MAP;
	for (i = 0; i < geometry->range_count; i++) {
		const struct dormouse_range *range = &geometry->range[i];

		if (!range_is_plausible(range->base, range->bytes) || range->base < end)
			return DORMOUSE_E_MEMORY_MAP;
		end = range->base + range->bytes;
		if (range->base < cxl_end && end > geometry->cxl_base)
			return DORMOUSE_E_MEMORY_MAP;
	}
	return DORMOUSE_OK;
}

enum dormouse_reason dormouse_geometry_check(const struct dormouse_geometry *geometry)
{
	if (!geometry->range_count || !geometry->cxl_bytes)
		return DORMOUSE_E_NOT_READY;
	if (geometry->cxl_base & (DORMOUSE_BLOCK_BYTES - 1) || !geometry->reserved_bytes ||
	    geometry->reserved_bytes & (DORMOUSE_BLOCK_BYTES - 1) ||
	    geometry->reserved_bytes > geometry->cxl_bytes)
		return DORMOUSE_E_CXL_SIZE;
	return dm_ranges_check(geometry);
}

enum dormouse_reason dormouse_layout(const struct dormouse_geometry *geometry,
				     struct dormouse_header *header)
{
	enum dormouse_reason reason = dormouse_geometry_check(geometry);
	dm_u64 dram_bytes, cxl_bytes, cxl_offset, table_offset, data_offset;

	if (reason != DORMOUSE_OK)
		return reason;

	dram_bytes = dm_bitmap_bytes(dormouse_geometry_dram_pages(geometry));
	cxl_bytes = dm_bitmap_bytes(geometry->cxl_bytes >> DORMOUSE_PAGE_SHIFT);
	cxl_offset = dm_page_align_up(DORMOUSE_BITMAPS_OFFSET + dram_bytes);
	/* A digest has as many bits as a group has pages: the table is as large as the bitmap. */
	table_offset = dm_page_align_up(cxl_offset + cxl_bytes);
	data_offset = dm_page_align_up(table_offset + cxl_bytes);
	if (data_offset > geometry->reserved_bytes)
		return DORMOUSE_E_LAYOUT;

	header->dram_bitmap_offset = DORMOUSE_BITMAPS_OFFSET;
	header->dram_bitmap_bytes = dram_bytes;
	header->cxl_bitmap_offset = cxl_offset;
	header->cxl_bitmap_bytes = cxl_bytes;
	header->user_table_offset = table_offset;
	header->user_table_bytes = cxl_bytes;
	header->data_offset = data_offset;
	return DORMOUSE_OK;
}
