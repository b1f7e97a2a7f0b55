// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Images that hold the kernel's own snapshot: what is in them, where it goes, and whether
 * one may be given back. The head is a device of its own, and so is the node with the
 * user pages, so bitmap and table describe the node.
 */
#include "internal.h"

/* The smallest part that Linux maps of a device; less is no head. */
#define MIN_HEAD_BYTES (2ULL << 20)

static enum dormouse_reason check_facts(const struct dormouse_snapshot_facts *facts)
{
	const struct dormouse_geometry *geometry = &facts->geometry;
	const dm_u64 base = facts->snapshot.node_base, bytes = facts->snapshot.node_bytes;
	const dm_u64 head_end = geometry->cxl_base + geometry->cxl_bytes;
	enum dormouse_reason reason = dm_ranges_check(geometry);

	if (reason != DORMOUSE_OK)
		return reason;
	if (geometry->cxl_bytes < MIN_HEAD_BYTES ||
	    geometry->reserved_bytes != geometry->cxl_bytes)
		return DORMOUSE_E_CXL_SIZE;
	if (!bytes || (base | bytes) & DM_PAGE_MASK || base >= DM_PHYSICAL_LIMIT ||
	    bytes > DM_PHYSICAL_LIMIT - base)
		return DORMOUSE_E_CXL_SIZE;
	if (base < head_end && base + bytes > geometry->cxl_base)
		return DORMOUSE_E_CXL_SIZE;
	return DORMOUSE_OK;
}

/* The one layout that there is for these facts. */
struct layout {
	dm_u64 bitmap_offset;
	dm_u64 bitmap_bytes;		/* of the table, too */
	dm_u64 table_offset;
	dm_u64 data_offset;
};

static enum dormouse_reason lay_out(const struct dormouse_snapshot_facts *facts,
				    struct layout *layout)
{
	const dm_u64 pages = facts->snapshot.node_bytes >> DORMOUSE_PAGE_SHIFT;

	layout->bitmap_offset = DORMOUSE_BITMAPS_OFFSET;
	layout->bitmap_bytes = dm_bitmap_bytes(pages);
	layout->table_offset = dm_page_align_up(layout->bitmap_offset + layout->bitmap_bytes);
	layout->data_offset = dm_page_align_up(layout->table_offset + layout->bitmap_bytes);
	return layout->data_offset < facts->geometry.cxl_bytes ? DORMOUSE_OK : DORMOUSE_E_LAYOUT;
}

dm_u64 dormouse_tag_table_bytes(dm_u64 bytes)
{
	const dm_u64 whole = bytes / DORMOUSE_SEAL_CHUNK_BYTES;
	const dm_u64 chunks = whole + (bytes % DORMOUSE_SEAL_CHUNK_BYTES != 0);

	/* Nothing is one empty chunk: its tag is what authenticates that. */
	return (chunks ? chunks : 1) * DORMOUSE_SEAL_TAG_BYTES;
}

enum dormouse_reason dormouse_snapshot_init(struct dormouse_header *header,
					    const struct dormouse_snapshot_facts *facts,
					    const struct dormouse_header *previous)
{
	enum dormouse_reason reason = check_facts(facts);
	struct layout layout;

	dm_header_fill(header, &facts->geometry, previous);
	header->kind = DORMOUSE_KIND_SNAPSHOT;
	header->snapshot = facts->snapshot;
	header->snapshot.node_present_pages = 0;
	dm_zero(header->snapshot.room, sizeof(header->snapshot.room));
	if (reason == DORMOUSE_OK)
		reason = lay_out(facts, &layout);
	/* Facts that have no layout leave zeros, which no check lets pass. */
	if (reason != DORMOUSE_OK)
		return reason;
	header->cxl_bitmap_offset = layout.bitmap_offset;
	header->cxl_bitmap_bytes = layout.bitmap_bytes;
	header->user_table_offset = layout.table_offset;
	header->user_table_bytes = layout.bitmap_bytes;
	header->data_offset = layout.data_offset;
	return DORMOUSE_OK;
}

/* The table of tags follows the snapshot, which was found to lie inside. */
static enum dormouse_reason check_tag_table(const struct dormouse_header *header, dm_u64 *detail)
{
	const struct dormouse_encryption *record = &header->encryption;
	const dm_u64 bytes = header->saved_pages << DORMOUSE_PAGE_SHIFT;
	const dm_u64 offset = header->data_offset + bytes;

	if (!(header->flags & DORMOUSE_FLAG_ENCRYPTED))
		return DORMOUSE_OK;
	*detail = record->tag_table_offset;
	if (record->tag_table_offset != offset ||
	    record->tag_table_bytes != dormouse_tag_table_bytes(bytes))
		return DORMOUSE_E_LAYOUT;
	if (record->tag_table_bytes > header->cxl_bytes - offset)
		return DORMOUSE_E_NO_SPACE;
	return DORMOUSE_OK;
}

static enum dormouse_reason check_layout(const struct dormouse_header *header,
					 const struct dormouse_snapshot_facts *facts,
					 dm_u64 *detail)
{
	enum dormouse_reason reason;
	struct layout own;

	if (lay_out(facts, &own) != DORMOUSE_OK)
		return DORMOUSE_E_LAYOUT;
	*detail = header->cxl_bitmap_offset;
	if (header->cxl_bitmap_offset != own.bitmap_offset ||
	    header->cxl_bitmap_bytes != own.bitmap_bytes)
		return DORMOUSE_E_LAYOUT;
	*detail = header->user_table_offset;
	if (header->user_table_offset != own.table_offset ||
	    header->user_table_bytes != own.bitmap_bytes)
		return DORMOUSE_E_LAYOUT;
	*detail = header->data_offset;
	if (header->data_offset != own.data_offset)
		return DORMOUSE_E_LAYOUT;
	*detail = header->saved_pages;
	if (header->saved_pages >
	    (header->cxl_bytes - header->data_offset) >> DORMOUSE_PAGE_SHIFT)
		return DORMOUSE_E_NO_SPACE;
	reason = check_tag_table(header, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	*detail = 0;
	return DORMOUSE_OK;
}

static enum dormouse_reason check_machine(const struct dormouse_header *header,
					  const struct dormouse_snapshot_facts *facts,
					  dm_u64 *detail)
{
	const struct dormouse_snapshot *image = &header->snapshot, *own = &facts->snapshot;
	enum dormouse_reason reason = dm_check_geometry(header, &facts->geometry, detail);

	if (reason != DORMOUSE_OK)
		return reason;
	*detail = image->node_base;
	if (image->node_base != own->node_base || image->node_bytes != own->node_bytes)
		return DORMOUSE_E_CXL_SIZE;
	*detail = image->kernel_digest;
	if (image->kernel_digest != own->kernel_digest)
		return DORMOUSE_E_KERNEL;
	*detail = image->firmware_map_digest;
	if (image->firmware_map_digest != own->firmware_map_digest)
		return DORMOUSE_E_MEMORY_MAP;
	*detail = 0;
	return DORMOUSE_OK;
}

/* What only a complete image has. */
static enum dormouse_reason check_result(const struct dormouse_header *header,
					 const struct dormouse_snapshot_facts *facts,
					 const void *window, dm_u64 *detail)
{
	const struct dormouse_snapshot *image = &header->snapshot;
	const dm_u8 *bytes = window;

	*detail = header->restore_attempts;
	if (header->restore_attempts >= DORMOUSE_MAX_RESTORE_ATTEMPTS)
		return DORMOUSE_E_ATTEMPTS;
	*detail = header->saved_pages;
	if (!header->saved_pages || header->saved_pages != header->request_pages)
		return DORMOUSE_E_SAVED_COUNT;
	*detail = image->present_pages;
	if (image->present_pages < image->node_present_pages ||
	    image->present_pages - image->node_present_pages != facts->snapshot.present_pages)
		return DORMOUSE_E_DRAM_SIZE;
	*detail = header->cxl_bitmap_offset;
	if (dormouse_xxh64(bytes + header->cxl_bitmap_offset, header->cxl_bitmap_bytes) !=
	    header->cxl_bitmap_digest)
		return DORMOUSE_E_BITMAP_DIGEST;
	*detail = header->user_table_offset;
	if (header->user_check != DORMOUSE_USER_CHECK_NONE &&
	    dormouse_xxh64(bytes + header->user_table_offset, header->user_table_bytes) !=
	    header->user_table_digest)
		return DORMOUSE_E_BITMAP_DIGEST;
	*detail = 0;
	return DORMOUSE_OK;
}

static enum dormouse_reason check_all(const struct dormouse_header *header,
				      const struct dormouse_snapshot_facts *facts,
				      const void *window, dm_u32 allowed, dm_u64 *detail)
{
	enum dormouse_reason reason = check_facts(facts);

	if (reason != DORMOUSE_OK)
		return DORMOUSE_E_NOT_READY;
	reason = dm_header_usable(header, DORMOUSE_KIND_SNAPSHOT, allowed, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	reason = check_machine(header, facts, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	reason = check_layout(header, facts, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	if (header->state == DORMOUSE_STATE_SUSPENDED || header->state == DORMOUSE_STATE_RESTORING)
		return check_result(header, facts, window, detail);
	return DORMOUSE_OK;
}

enum dormouse_reason dormouse_snapshot_check(const struct dormouse_header *header,
					     const struct dormouse_snapshot_facts *facts,
					     const void *window, dm_u32 allowed, dm_u64 *detail)
{
	dm_u64 found = 0;
	enum dormouse_reason reason = check_all(header, facts, window, allowed, &found);

	if (detail)
		*detail = found;
	return reason;
}

dm_u64 dormouse_snapshot_compare(const struct dormouse_header *header, const void *window,
				 const void *node, dm_u64 first, dm_u64 end)
{
	return dm_compare_groups(header, window, node,
				 header->snapshot.node_bytes >> DORMOUSE_PAGE_SHIFT, first, end);
}
