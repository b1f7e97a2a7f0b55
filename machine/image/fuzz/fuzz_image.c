// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * libFuzzer target for everything that reads an image: header copies, checks, layout,
 * bitmaps and the copy plan. What the checks let pass must then keep every promise that
 * firmware relies on; a broken promise aborts.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz_image.h"

/* Larger claims are folded into this, so that one run stays short. */
#define MAX_WINDOW_BYTES	(256ULL << 10)
#define MAX_CXL_PAGES		(1ULL << 24)

#define BLOCK			DORMOUSE_BLOCK_BYTES
#define MUST(condition)		do { if (!(condition)) abort(); } while (0)

static const struct dormouse_geometry machines[] = {
	{ .cxl_base = 4ULL << 30, .cxl_bytes = BLOCK, .reserved_bytes = BLOCK, .range_count = 2,
	  .range = { { 0, 0xa0000 }, { 0x100000, 15 << 20 } } },
	{ .cxl_base = 4ULL << 30, .cxl_bytes = 2 * BLOCK + 4096, .reserved_bytes = BLOCK,
	  .range_count = 3,
	  .range = { { 0, 0x9f000 }, { 0x100000, 1 << 20 }, { 0x200000, 1 << 20 } } },
	/* DRAM on both sides of the window. */
	{ .cxl_base = BLOCK, .cxl_bytes = BLOCK, .reserved_bytes = BLOCK, .range_count = 2,
	  .range = { { 0, 0xa0000 }, { 2 * BLOCK, 0x1000 } } },
};

static int is_set(const dm_u64 *bitmap, dm_u64 bit)
{
	return bitmap[bit >> 6] >> (bit & 63) & 1;
}

static void check_plan(const struct dormouse_geometry *geometry, const dm_u64 *dram,
		       dm_u64 dram_pages, const dm_u64 *cxl, dm_u64 cxl_pages, dm_u64 first,
		       int was_checked, dm_u64 request_pages)
{
	dm_u64 pages = 0, next_dram = 0, next_cxl = first, i;
	struct dormouse_plan plan;
	struct dormouse_copy copy;
	int more;

	dormouse_plan_init(&plan, dram, dram_pages, cxl, cxl_pages, first);
	while ((more = dormouse_plan_next(&plan, &copy)) == 1) {
		MUST(copy.pages > 0);
		MUST(copy.dram_page >= next_dram && copy.cxl_page >= next_cxl);
		next_dram = copy.dram_page + copy.pages;
		next_cxl = copy.cxl_page + copy.pages;
		MUST(next_dram <= dram_pages && next_cxl <= cxl_pages);
		for (i = 0; i < copy.pages; i++) {
			MUST(is_set(dram, copy.dram_page + i));
			MUST(!is_set(cxl, copy.cxl_page + i));
		}
		if (was_checked)
			MUST(dormouse_geometry_contains(geometry,
							copy.dram_page << DORMOUSE_PAGE_SHIFT,
							copy.pages << DORMOUSE_PAGE_SHIFT));
		pages += copy.pages;
	}
	if (!more)
		MUST(pages == dormouse_bitmap_count(dram, 0, dram_pages));
	if (was_checked)
		MUST(!more && pages == request_pages);
}

static void check_copies(struct dormouse_header *header, const dm_u8 *data, size_t size)
{
	static struct dormouse_header copies[DORMOUSE_HEADER_COPIES];
	static struct dormouse_header mine;
	enum dormouse_reason why;
	int newest;

	copies[0] = *header;
	memset(&copies[1], 0, sizeof(copies[1]));
	memcpy(&copies[1], data, size < sizeof(copies[1]) ? size : sizeof(copies[1]));
	newest = dormouse_header_select(copies, &why);
	MUST(newest >= -1 && newest <= 1);
	MUST((newest >= 0) == (why == DORMOUSE_OK));
	if (newest >= 0)
		MUST(dormouse_header_check(&copies[newest]) == DORMOUSE_OK);

	/* Whatever was there: what is committed counts. */
	dormouse_header_init(&mine, &machines[0], newest >= 0 ? &copies[newest] : NULL);
	mine.state = DORMOUSE_STATE_SAVING;
	dormouse_header_commit(copies, &mine);
	newest = dormouse_header_select(copies, &why);
	MUST(newest >= 0 && !memcmp(&copies[newest], &mine, sizeof(mine)));
}

static void use_own_geometry(struct dormouse_geometry *geometry, const struct fuzz_input *input)
{
	memset(geometry, 0, sizeof(*geometry));
	geometry->cxl_base = input->cxl_base;
	geometry->cxl_bytes = input->cxl_bytes;
	geometry->reserved_bytes = input->reserved_bytes;
	geometry->range_count = input->range_count;
	memcpy(geometry->range, input->range, sizeof(input->range));
}

/* Puts what is left of the input into a bitmap of the window, and says how much that was. */
static size_t fill(dm_u8 *window, dm_u64 window_bytes, dm_u64 offset, dm_u64 bytes,
		   const dm_u8 *data, size_t size, dm_u8 flip)
{
	size_t i;

	if (offset > window_bytes || bytes > window_bytes - offset)
		return 0;
	for (i = 0; i < bytes; i++)
		window[offset + i] = (i < size ? data[i] : 0) ^ flip;
	return bytes < size ? bytes : size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct dormouse_geometry geometry;
	static struct dormouse_header header;
	dm_u64 window_bytes, detail, needed, available, cxl_pages, dram_pages, i;
	enum dormouse_reason reason, layout;
	struct fuzz_input input;
	const dm_u64 *dram, *cxl;
	size_t used;
	dm_u8 *window;

	if (size < sizeof(input))
		return 0;
	memcpy(&input, data, sizeof(input));
	data += sizeof(input);
	size -= sizeof(input);

	geometry = machines[input.machine % (sizeof(machines) / sizeof(machines[0]))];
	if (input.control & FUZZ_OWN_GEOMETRY) {
		use_own_geometry(&geometry, &input);
		dormouse_geometry_contains(&geometry, input.range[0].base, input.range[1].bytes);
		if (dormouse_geometry_check(&geometry) == DORMOUSE_OK &&
		    geometry.cxl_bytes >> DORMOUSE_PAGE_SHIFT > MAX_CXL_PAGES)
			return 0;
	}

	dormouse_header_init(&header, &geometry, NULL);
	header.state = input.state % DORMOUSE_STATE_COUNT;
	header.wake_vector = 0x99200;
	header.persistence = DORMOUSE_PERSISTENCE_DEVICE;
	header.user_check = DORMOUSE_USER_CHECK_ALL;
	for (i = 0; i < FUZZ_HEADER_BYTES; i++)
		((dm_u8 *)&header)[i] ^= input.header_mask[i];
	if (header.data_offset > MAX_WINDOW_BYTES && header.data_offset <= geometry.reserved_bytes)
		header.data_offset %= MAX_WINDOW_BYTES;

	/* Exactly as large as the checks may read: the sanitizer sees one byte more. */
	window_bytes = header.data_offset <= geometry.reserved_bytes ? header.data_offset : 0;
	window = calloc(1, window_bytes ? window_bytes : 1);
	MUST(window);
	used = fill(window, window_bytes, header.dram_bitmap_offset, header.dram_bitmap_bytes,
		    data, size, 0);
	used += fill(window, window_bytes, header.cxl_bitmap_offset, header.cxl_bitmap_bytes,
		     data + used, size - used, input.control & FUZZ_FLIP_CXL ? 0xff : 0);
	fill(window, window_bytes, header.user_table_offset, header.user_table_bytes, data + used,
	     size - used, 0);

	layout = dormouse_image_space(&header, &geometry, window, &needed, &available);
	if (layout == DORMOUSE_OK || layout == DORMOUSE_E_NO_SPACE) {
		if (input.control & FUZZ_SEAL_BITMAPS) {
			header.dram_bitmap_digest =
				dormouse_xxh64(window + header.dram_bitmap_offset,
					       header.dram_bitmap_bytes);
			header.cxl_bitmap_digest =
				dormouse_xxh64(window + header.cxl_bitmap_offset,
					       header.cxl_bitmap_bytes);
			header.user_table_digest =
				dormouse_xxh64(window + header.user_table_offset,
					       header.user_table_bytes);
		}
		if (input.control & FUZZ_SEAL_COUNTS) {
			header.request_pages = needed >> DORMOUSE_PAGE_SHIFT;
			header.saved_pages = header.request_pages;
		}
	}
	if (input.control & FUZZ_SEAL_HEADER)
		header.header_digest = dormouse_xxh64(&header, DORMOUSE_HEADER_BYTES - 8);

	check_copies(&header, data, size);
	reason = dormouse_image_check(&header, &geometry, window, input.allowed, &detail);
	MUST(reason < DORMOUSE_REASON_COUNT);
	MUST(dormouse_reason_name(reason) && dormouse_state_name(header.state));
	if (reason == DORMOUSE_OK) {
		MUST(layout == DORMOUSE_OK && input.allowed >> header.state & 1);
		MUST(header.state < DORMOUSE_STATE_COUNT && !header.flags && !detail);
		MUST(needed == header.request_pages << DORMOUSE_PAGE_SHIFT);
		MUST(header.persistence != DORMOUSE_PERSISTENCE_UNKNOWN);
		MUST(!header.encryption.algorithm && !header.encryption.tag_table_bytes);
		/* What a comparison of user pages reads before it reads those. */
		MUST(header.user_table_offset % 8 == 0 &&
		     header.user_table_offset + 8 * dormouse_groups(geometry.cxl_bytes) <=
			     window_bytes);
	}

	if (layout == DORMOUSE_OK || layout == DORMOUSE_E_NO_SPACE) {
		dram = (const dm_u64 *)(window + header.dram_bitmap_offset);
		cxl = (const dm_u64 *)(window + header.cxl_bitmap_offset);
		dram_pages = dormouse_geometry_dram_pages(&geometry);
		cxl_pages = geometry.cxl_bytes >> DORMOUSE_PAGE_SHIFT;
		check_plan(&geometry, dram, dram_pages, cxl, cxl_pages,
			   header.data_offset >> DORMOUSE_PAGE_SHIFT, reason == DORMOUSE_OK,
			   header.request_pages);
	}
	free(window);
	return 0;
}
