/* SPDX-License-Identifier: GPL-2.0-only */
/* Walks the copy plan in either direction, for the save (SMM) and the restore (ramstage). */

#include <types.h>

#include "dormouse.h"

/* Pieces no longer than this, so that the middle of a copy is a place to stop at. */
#define CHUNK_PAGES 1024

static enum dormouse_reason copy_piece(enum dormouse_direction direction,
				       const struct dormouse_copy *piece,
				       const struct dormouse_geometry *geometry,
				       enum dormouse_copy_method method,
				       struct dormouse_xxh64 *hash)
{
	const uint64_t dram = piece->dram_page << DORMOUSE_PAGE_SHIFT;
	const uint64_t cxl = geometry->cxl_base + (piece->cxl_page << DORMOUSE_PAGE_SHIFT);
	const uint64_t bytes = piece->pages << DORMOUSE_PAGE_SHIFT;

	if (!dormouse_geometry_contains(geometry, dram, bytes))
		return DORMOUSE_E_OUTSIDE_RAM;
	if (direction == DORMOUSE_SAVE)
		dormouse_copy_digest(method, (void *)(uintptr_t)cxl,
				     (const void *)(uintptr_t)dram, bytes, hash);
	else
		dormouse_copy_digest(method, (void *)(uintptr_t)dram,
				     (const void *)(uintptr_t)cxl, bytes, hash);
	return DORMOUSE_OK;
}

static enum dormouse_reason copy_all(enum dormouse_direction direction,
				     const struct dormouse_header *header,
				     const struct dormouse_geometry *geometry,
				     struct dormouse_copied *copied, uint64_t *detail)
{
	const uint8_t *window = (const void *)(uintptr_t)geometry->cxl_base;
	const char *half_way = direction == DORMOUSE_SAVE ? "saving" : "restoring";
	struct dormouse_xxh64 hash;
	struct dormouse_plan plan;
	struct dormouse_copy run;
	bool reported = false;
	int more;

	copied->pages = 0;
	copied->method = dormouse_copy_best(direction == DORMOUSE_SAVE);
	dormouse_xxh64_init(&hash);
	dormouse_plan_init(&plan, (const void *)(window + header->dram_bitmap_offset),
			   dormouse_geometry_dram_pages(geometry),
			   (const void *)(window + header->cxl_bitmap_offset),
			   geometry->cxl_bytes >> DORMOUSE_PAGE_SHIFT,
			   header->data_offset >> DORMOUSE_PAGE_SHIFT);

	while ((more = dormouse_plan_next(&plan, &run)) > 0) {
		while (run.pages) {
			struct dormouse_copy piece = run;

			if (piece.pages > CHUNK_PAGES)
				piece.pages = CHUNK_PAGES;
			*detail = piece.dram_page;
			if (copy_piece(direction, &piece, geometry, copied->method, &hash))
				return DORMOUSE_E_OUTSIDE_RAM;
			copied->pages += piece.pages;
			run.dram_page += piece.pages;
			run.cxl_page += piece.pages;
			run.pages -= piece.pages;
			if (!reported && copied->pages * 2 >= header->request_pages) {
				reported = true;
				dormouse_fault_point(half_way);
			}
		}
	}
	copied->digest = dormouse_xxh64_final(&hash);
	*detail = copied->pages;
	if (more < 0)
		return DORMOUSE_E_NO_SPACE;
	if (copied->pages != header->request_pages)
		return DORMOUSE_E_SAVED_COUNT;
	return DORMOUSE_OK;
}

enum dormouse_reason dormouse_copy_pages(enum dormouse_direction direction,
					 struct dormouse_header *header,
					 const struct dormouse_geometry *geometry,
					 struct dormouse_copied *copied, uint64_t *detail)
{
	const bool saves = direction == DORMOUSE_SAVE;
	struct dormouse_interval *const phase =
		&header->phase[saves ? DORMOUSE_PHASE_SAVE_COPY : DORMOUSE_PHASE_RESTORE_COPY];
	const char *const way = saves ? "suspend" : "resume";
	const char *const name = saves ? "save-copy" : "restore-copy";
	enum dormouse_reason reason;

	phase->begin_ns = dormouse_now_ns();
	dormouse_event(phase->begin_ns, way, name, "begin", "pages",
		       saves ? header->request_pages : header->saved_pages);
	reason = copy_all(direction, header, geometry, copied, detail);
	phase->end_ns = dormouse_now_ns();
	dormouse_event(phase->end_ns, way, name, "end", "pages", copied->pages);
	return reason;
}
