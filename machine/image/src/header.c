// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * The two header copies: which one counts, and how to replace it so that a write
 * torn by a power loss is never taken for valid.
 *
 * A commit writes over the copy that does not count, so the one that does stays
 * whole until the new one is. EMPTY and CONSUMED say "there is no image to resume":
 * they go into both copies, or one bad bit in the newest would bring back the older
 * header, and with it an image that ran before.
 */
#include "internal.h"

#define DIGESTED_BYTES (DORMOUSE_HEADER_BYTES - sizeof(dm_u64))

enum dormouse_reason dm_header_identity(const struct dormouse_header *header)
{
	if (header->magic != DORMOUSE_MAGIC)
		return DORMOUSE_E_MAGIC;
	if (header->version != DORMOUSE_VERSION)
		return DORMOUSE_E_VERSION;
	if (header->header_bytes != DORMOUSE_HEADER_BYTES)
		return DORMOUSE_E_HEADER_SIZE;
	return DORMOUSE_OK;
}

/* Whole words only. */
static int is_zero(const void *room, dm_u64 bytes)
{
	const dm_u8 *in = room;
	dm_u64 i, any = 0;

	for (i = 0; i < bytes; i += 8)
		any |= dm_load64(in + i);
	return !any;
}

#define USED_TAG_BYTES 32

/* Bytes of the record that this version does not use are 0. */
static int is_known_encryption(const struct dormouse_header *header)
{
	const struct dormouse_encryption *record = &header->encryption;

	if (header->flags == 0)
		return is_zero(record, sizeof(*record));
	return header->flags == DORMOUSE_FLAG_ENCRYPTED &&
	       header->kind == DORMOUSE_KIND_SNAPSHOT &&
	       record->algorithm == DORMOUSE_ALGORITHM_AES_256_GCM &&
	       is_zero(record->tag + USED_TAG_BYTES, sizeof(record->tag) - USED_TAG_BYTES);
}

enum dormouse_reason dm_header_features(const struct dormouse_header *header)
{
	if (header->user_check >= DORMOUSE_USER_CHECK_COUNT ||
	    header->kind >= DORMOUSE_KIND_COUNT)
		return DORMOUSE_E_FLAGS;
	if (!is_known_encryption(header))
		return DORMOUSE_E_FLAGS;
	if (header->kind == DORMOUSE_KIND_SNAPSHOT ?
	    !is_zero(header->snapshot.room, sizeof(header->snapshot.room)) :
	    !is_zero(&header->snapshot, sizeof(header->snapshot)))
		return DORMOUSE_E_FLAGS;
	return DORMOUSE_OK;
}

enum dormouse_reason dormouse_header_check(const struct dormouse_header *header)
{
	enum dormouse_reason reason = dm_header_identity(header);

	if (reason != DORMOUSE_OK)
		return reason;
	if (dormouse_xxh64(header, DIGESTED_BYTES) != header->header_digest)
		return DORMOUSE_E_HEADER_DIGEST;
	reason = dm_header_features(header);
	if (reason != DORMOUSE_OK)
		return reason;
	if (header->state >= DORMOUSE_STATE_COUNT)
		return DORMOUSE_E_STATE;
	return DORMOUSE_OK;
}

int dormouse_header_select(const struct dormouse_header copies[DORMOUSE_HEADER_COPIES],
			   enum dormouse_reason *why)
{
	enum dormouse_reason reason[DORMOUSE_HEADER_COPIES];
	int i;

	for (i = 0; i < DORMOUSE_HEADER_COPIES; i++) {
		reason[i] = dormouse_header_check(&copies[i]);
		if (reason[i] == DORMOUSE_E_MAGIC && is_zero(&copies[i], DORMOUSE_HEADER_BYTES))
			reason[i] = DORMOUSE_E_NO_IMAGE;
	}

	if (reason[0] == DORMOUSE_OK || reason[1] == DORMOUSE_OK) {
		*why = DORMOUSE_OK;
		if (reason[0] != DORMOUSE_OK)
			return 1;
		if (reason[1] != DORMOUSE_OK)
			return 0;
		/* As serial numbers, so that the order outlives a wrapped counter. */
		return (long long)(copies[1].generation - copies[0].generation) > 0;
	}

	/* The reasons are numbered in the order of the checks: larger came further. */
	*why = reason[0] > reason[1] ? reason[0] : reason[1];
	return -1;
}

static void write_copy(struct dormouse_header *to, struct dormouse_header *header)
{
	volatile dm_u64 *out = (volatile dm_u64 *)to;
	const dm_u8 *in = (const dm_u8 *)header;
	dm_u64 i;

	header->generation++;
	header->header_digest = dormouse_xxh64(header, DIGESTED_BYTES);
	for (i = 0; i < DORMOUSE_HEADER_BYTES / 8; i++)
		out[i] = dm_load64(in + i * 8);
	dormouse_flush(to, DORMOUSE_HEADER_BYTES);
}

void dormouse_header_commit(struct dormouse_header copies[DORMOUSE_HEADER_COPIES],
			    struct dormouse_header *header)
{
	enum dormouse_reason why;
	int newest = dormouse_header_select(copies, &why);
	int target = newest == 0 ? 1 : 0;

	if (newest >= 0)
		header->generation = copies[newest].generation;
	write_copy(&copies[target], header);
	if (header->state == DORMOUSE_STATE_EMPTY || header->state == DORMOUSE_STATE_CONSUMED)
		write_copy(&copies[!target], header);
}

void dormouse_header_request(struct dormouse_header *header, const void *dram_bitmap,
			     const void *cxl_bitmap, dm_u64 pages,
			     enum dormouse_persistence persistence)
{
	header->dram_bitmap_digest = dormouse_xxh64(dram_bitmap, header->dram_bitmap_bytes);
	header->cxl_bitmap_digest = dormouse_xxh64(cxl_bitmap, header->cxl_bitmap_bytes);
	header->request_pages = pages;
	header->saved_pages = 0;
	header->saved_digest = 0;
	header->restored_pages = 0;
	header->wake_vector = 0;
	header->restore_attempts = 0;
	header->persistence = persistence;
	header->state = DORMOUSE_STATE_PREPARED;
	dm_zero(header->phase, sizeof(header->phase));
}

void dm_header_fill(struct dormouse_header *header, const struct dormouse_geometry *geometry,
		    const struct dormouse_header *previous)
{
	dm_u64 generation = 0, sleep_count = 0, resume_count = 0, last_detail = 0;
	dm_u32 last_outcome = DORMOUSE_OUTCOME_NONE, last_reason = DORMOUSE_OK;

	/* Read before anything is written: both may be the same header. */
	if (previous) {
		generation = previous->generation;
		sleep_count = previous->sleep_count;
		resume_count = previous->resume_count;
		last_outcome = previous->last_outcome;
		last_reason = previous->last_reason;
		last_detail = previous->last_detail;
	}

	dm_zero(header, sizeof(*header));
	header->magic = DORMOUSE_MAGIC;
	header->version = DORMOUSE_VERSION;
	header->header_bytes = DORMOUSE_HEADER_BYTES;
	header->generation = generation;
	header->state = DORMOUSE_STATE_EMPTY;

	header->cxl_base = geometry->cxl_base;
	header->cxl_bytes = geometry->cxl_bytes;
	header->reserved_bytes = geometry->reserved_bytes;
	header->dram_bytes = dormouse_geometry_dram_bytes(geometry);
	header->dram_pages = dormouse_geometry_dram_pages(geometry);
	header->memory_map_digest = dormouse_geometry_digest(geometry);
	header->device_serial = geometry->device_serial;
	header->dirty_shutdown_count = geometry->dirty_shutdown_count;

	header->sleep_count = sleep_count;
	header->resume_count = resume_count;
	header->last_outcome = last_outcome;
	header->last_reason = last_reason;
	header->last_detail = last_detail;
}

void dormouse_header_init(struct dormouse_header *header, const struct dormouse_geometry *geometry,
			  const struct dormouse_header *previous)
{
	dm_header_fill(header, geometry, previous);
	/* A geometry that has no layout leaves zeros, which no check lets pass. */
	dormouse_layout(geometry, header);
}
