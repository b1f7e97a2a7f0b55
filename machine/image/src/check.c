// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Decides whether an image may be saved into or restored from: everything that it
 * claims is compared with what the checker knows by itself, before a byte is copied.
 *
 * The caller passes its own copy of the header, in memory without another writer.
 */
#include "internal.h"

static const dm_u64 *bitmap_at(const void *window, dm_u64 offset)
{
	return (const dm_u64 *)((const dm_u8 *)window + offset);
}

/* Whether the state is one of `allowed`, or why not. */
static enum dormouse_reason check_state(dm_u32 state, dm_u32 allowed)
{
	const dm_u32 image = 1U << DORMOUSE_STATE_SUSPENDED | 1U << DORMOUSE_STATE_RESTORING;

	if (state >= DORMOUSE_STATE_COUNT)
		return DORMOUSE_E_STATE;
	if (allowed & (1U << state))
		return DORMOUSE_OK;
	if (!(allowed & image))
		return image & (1U << state) ? DORMOUSE_E_IMAGE_EXISTS : DORMOUSE_E_STATE;

	/* The caller wants to restore: say why there is nothing to restore. */
	switch (state) {
	case DORMOUSE_STATE_EMPTY:
		return DORMOUSE_E_NO_IMAGE;
	case DORMOUSE_STATE_PREPARED:
	case DORMOUSE_STATE_SAVING:
		return DORMOUSE_E_INCOMPLETE;
	case DORMOUSE_STATE_CONSUMED:
		return DORMOUSE_E_CONSUMED;
	default:
		return DORMOUSE_E_STATE;
	}
}

enum dormouse_reason dm_check_geometry(const struct dormouse_header *header,
				       const struct dormouse_geometry *geometry, dm_u64 *detail)
{
	const struct {
		dm_u64 image;
		dm_u64 own;
		enum dormouse_reason reason;
	} fields[] = {
		{ header->dram_bytes, dormouse_geometry_dram_bytes(geometry),
		  DORMOUSE_E_DRAM_SIZE },
		{ header->dram_pages, dormouse_geometry_dram_pages(geometry),
		  DORMOUSE_E_DRAM_SIZE },
		{ header->memory_map_digest, dormouse_geometry_digest(geometry),
		  DORMOUSE_E_MEMORY_MAP },
		{ header->cxl_base, geometry->cxl_base, DORMOUSE_E_CXL_SIZE },
		{ header->cxl_bytes, geometry->cxl_bytes, DORMOUSE_E_CXL_SIZE },
		{ header->reserved_bytes, geometry->reserved_bytes, DORMOUSE_E_CXL_SIZE },
		{ header->device_serial, geometry->device_serial, DORMOUSE_E_DEVICE },
		{ header->dirty_shutdown_count, geometry->dirty_shutdown_count,
		  DORMOUSE_E_DIRTY_SHUTDOWN },
	};
	dm_u32 i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].image != fields[i].own) {
			*detail = fields[i].image;
			return fields[i].reason;
		}
	}
	return DORMOUSE_OK;
}

/* A source vouches for the device, or a person took the risk. */
static enum dormouse_reason check_persistence(dm_u32 persistence)
{
	return persistence == DORMOUSE_PERSISTENCE_UNKNOWN ||
	       persistence >= DORMOUSE_PERSISTENCE_COUNT ? DORMOUSE_E_VOLATILE : DORMOUSE_OK;
}

/* [offset, offset + bytes) lies between the fixed parts and the saved pages. */
static int bitmap_is_placed(const struct dormouse_header *header, dm_u64 offset, dm_u64 bytes,
			    dm_u64 bits)
{
	return !((offset | bytes) & 7) && offset >= DORMOUSE_BITMAPS_OFFSET &&
	       offset <= header->data_offset && bytes <= header->data_offset - offset &&
	       bytes >= dm_bitmap_bytes(bits);
}

/* For parts that lie inside the window: no sum wraps. */
static int overlap(dm_u64 a, dm_u64 a_bytes, dm_u64 b, dm_u64 b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

/* Trusts the geometry only. Everything that reads the bitmaps calls this before. */
static enum dormouse_reason check_layout(const struct dormouse_header *header,
					 const struct dormouse_geometry *geometry, dm_u64 *detail)
{
	const dm_u64 dram = header->dram_bitmap_offset;
	const dm_u64 cxl = header->cxl_bitmap_offset;
	const dm_u64 table = header->user_table_offset;

	*detail = header->data_offset;
	if (header->data_offset & DM_PAGE_MASK || header->data_offset > geometry->reserved_bytes)
		return DORMOUSE_E_LAYOUT;

	*detail = dram;
	if (!bitmap_is_placed(header, dram, header->dram_bitmap_bytes,
			      dormouse_geometry_dram_pages(geometry)))
		return DORMOUSE_E_LAYOUT;

	*detail = cxl;
	if (!bitmap_is_placed(header, cxl, header->cxl_bitmap_bytes,
			      geometry->cxl_bytes >> DORMOUSE_PAGE_SHIFT))
		return DORMOUSE_E_LAYOUT;
	if (overlap(dram, header->dram_bitmap_bytes, cxl, header->cxl_bitmap_bytes))
		return DORMOUSE_E_LAYOUT;

	/* A word for each group is as much as a bit for each page. */
	*detail = table;
	if (!bitmap_is_placed(header, table, header->user_table_bytes,
			      geometry->cxl_bytes >> DORMOUSE_PAGE_SHIFT) ||
	    overlap(table, header->user_table_bytes, dram, header->dram_bitmap_bytes) ||
	    overlap(table, header->user_table_bytes, cxl, header->cxl_bitmap_bytes))
		return DORMOUSE_E_LAYOUT;

	*detail = 0;
	return DORMOUSE_OK;
}

static enum dormouse_reason check_digests(const struct dormouse_header *header, const void *window,
					  dm_u64 *detail)
{
	*detail = header->dram_bitmap_offset;
	if (dormouse_xxh64(bitmap_at(window, header->dram_bitmap_offset),
			   header->dram_bitmap_bytes) != header->dram_bitmap_digest)
		return DORMOUSE_E_BITMAP_DIGEST;
	*detail = header->cxl_bitmap_offset;
	if (dormouse_xxh64(bitmap_at(window, header->cxl_bitmap_offset),
			   header->cxl_bitmap_bytes) != header->cxl_bitmap_digest)
		return DORMOUSE_E_BITMAP_DIGEST;
	*detail = header->user_table_offset;
	if (header->user_check != DORMOUSE_USER_CHECK_NONE &&
	    dormouse_xxh64(bitmap_at(window, header->user_table_offset),
			   header->user_table_bytes) != header->user_table_digest)
		return DORMOUSE_E_BITMAP_DIGEST;
	*detail = 0;
	return DORMOUSE_OK;
}

/*
 * Each run of set bits against the ranges, both ascending, so one pass over both.
 * The bits behind dram_pages belong to no range and are refused like any other.
 */
static enum dormouse_reason check_pages(const struct dormouse_header *header,
					const struct dormouse_geometry *geometry,
					const dm_u64 *bitmap, dm_u64 *pages, dm_u64 *detail)
{
	const struct dormouse_range *range = geometry->range;
	const struct dormouse_range *last = range + geometry->range_count - 1;
	const dm_u64 bits = header->dram_bitmap_bytes * 8;
	dm_u64 first, end, range_end;

	*pages = 0;
	for (first = dormouse_bitmap_next_set(bitmap, 0, bits); first < bits;
	     first = dormouse_bitmap_next_set(bitmap, end, bits)) {
		end = dormouse_bitmap_next_clear(bitmap, first, bits);
		*detail = first;
		for (;;) {
			range_end = (range->base + range->bytes) >> DORMOUSE_PAGE_SHIFT;
			if (range_end > *detail || range == last)
				break;
			range++;
		}
		/* Now *detail is the first page of the run that no range has covered yet. */
		while (*detail >= range->base >> DORMOUSE_PAGE_SHIFT && *detail < range_end) {
			*detail = dm_min(end, range_end);
			if (*detail == end || range == last)
				break;
			range++;
			range_end = (range->base + range->bytes) >> DORMOUSE_PAGE_SHIFT;
		}
		if (*detail != end)
			return DORMOUSE_E_OUTSIDE_RAM;
		*pages += end - first;
	}
	*detail = 0;
	return DORMOUSE_OK;
}

static dm_u64 free_cxl_pages(const struct dormouse_header *header,
			     const struct dormouse_geometry *geometry, const void *window)
{
	const dm_u64 first = header->data_offset >> DORMOUSE_PAGE_SHIFT;
	const dm_u64 end = geometry->cxl_bytes >> DORMOUSE_PAGE_SHIFT;

	return end - first - dormouse_bitmap_count(bitmap_at(window, header->cxl_bitmap_offset),
						   first, end);
}

enum dormouse_reason dormouse_image_space(const struct dormouse_header *header,
					  const struct dormouse_geometry *geometry,
					  const void *window, dm_u64 *needed_bytes,
					  dm_u64 *available_bytes)
{
	enum dormouse_reason reason = dormouse_geometry_check(geometry);
	dm_u64 detail;

	*needed_bytes = 0;
	*available_bytes = 0;
	if (reason == DORMOUSE_OK)
		reason = check_layout(header, geometry, &detail);
	if (reason != DORMOUSE_OK)
		return reason;

	*needed_bytes = dormouse_bitmap_count(bitmap_at(window, header->dram_bitmap_offset), 0,
					      dormouse_geometry_dram_pages(geometry))
			<< DORMOUSE_PAGE_SHIFT;
	*available_bytes = free_cxl_pages(header, geometry, window) << DORMOUSE_PAGE_SHIFT;
	return *needed_bytes > *available_bytes ? DORMOUSE_E_NO_SPACE : DORMOUSE_OK;
}

enum dormouse_reason dormouse_wake_vector_check(dm_u64 wake_vector,
						const struct dormouse_geometry *geometry,
						const dm_u64 *dram_bitmap)
{
	const dm_u64 page = wake_vector >> DORMOUSE_PAGE_SHIFT;

	/* Linux's trampoline is entered in real mode; 0 means that no OS wrote one. */
	if (!wake_vector || wake_vector >= 1ULL << 20)
		return DORMOUSE_E_WAKE_VECTOR;
	if (!dormouse_geometry_contains(geometry, page << DORMOUSE_PAGE_SHIFT,
					DORMOUSE_PAGE_BYTES))
		return DORMOUSE_E_WAKE_VECTOR;
	if (!(dram_bitmap[page >> 6] >> (page & 63) & 1))
		return DORMOUSE_E_WAKE_VECTOR;
	return DORMOUSE_OK;
}

static enum dormouse_reason check_result(const struct dormouse_header *header,
					 const struct dormouse_geometry *geometry,
					 const dm_u64 *bitmap, dm_u64 *detail)
{
	*detail = header->restore_attempts;
	if (header->restore_attempts >= DORMOUSE_MAX_RESTORE_ATTEMPTS)
		return DORMOUSE_E_ATTEMPTS;
	*detail = header->saved_pages;
	if (header->saved_pages != header->request_pages)
		return DORMOUSE_E_SAVED_COUNT;
	*detail = header->wake_vector;
	if (dormouse_wake_vector_check(header->wake_vector, geometry, bitmap) != DORMOUSE_OK)
		return DORMOUSE_E_WAKE_VECTOR;
	*detail = 0;
	return DORMOUSE_OK;
}

enum dormouse_reason dm_header_usable(const struct dormouse_header *header, dm_u32 kind,
				      dm_u32 allowed, dm_u64 *detail)
{
	enum dormouse_reason reason = dm_header_identity(header);

	if (reason != DORMOUSE_OK)
		return reason;
	*detail = header->flags;
	reason = dm_header_features(header);
	if (reason != DORMOUSE_OK)
		return reason;
	*detail = header->kind;
	if (header->kind != kind)
		return DORMOUSE_E_KIND;
	*detail = header->state;
	reason = check_state(header->state, allowed);
	if (reason != DORMOUSE_OK)
		return reason;
	*detail = header->persistence;
	reason = check_persistence(header->persistence);
	if (reason == DORMOUSE_OK)
		*detail = 0;
	return reason;
}

static enum dormouse_reason check_all(const struct dormouse_header *header,
				      const struct dormouse_geometry *geometry, const void *window,
				      dm_u32 allowed, dm_u64 *detail)
{
	enum dormouse_reason reason;
	const dm_u64 *bitmap;
	dm_u64 pages;

	reason = dormouse_geometry_check(geometry);
	if (reason != DORMOUSE_OK)
		return DORMOUSE_E_NOT_READY;
	reason = dm_header_usable(header, DORMOUSE_KIND_FIRMWARE, allowed, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	reason = dm_check_geometry(header, geometry, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	reason = check_layout(header, geometry, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	reason = check_digests(header, window, detail);
	if (reason != DORMOUSE_OK)
		return reason;

	bitmap = bitmap_at(window, header->dram_bitmap_offset);
	reason = check_pages(header, geometry, bitmap, &pages, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	*detail = pages;
	if (pages != header->request_pages)
		return DORMOUSE_E_SAVED_COUNT;
	*detail = pages << DORMOUSE_PAGE_SHIFT;
	if (pages > free_cxl_pages(header, geometry, window))
		return DORMOUSE_E_NO_SPACE;
	*detail = 0;

	if (header->state == DORMOUSE_STATE_SUSPENDED || header->state == DORMOUSE_STATE_RESTORING)
		return check_result(header, geometry, bitmap, detail);
	return DORMOUSE_OK;
}

enum dormouse_reason dormouse_image_check(const struct dormouse_header *header,
					  const struct dormouse_geometry *geometry,
					  const void *window, dm_u32 allowed, dm_u64 *detail)
{
	dm_u64 found = 0;
	enum dormouse_reason reason = check_all(header, geometry, window, allowed, &found);

	if (detail)
		*detail = found;
	return reason;
}
