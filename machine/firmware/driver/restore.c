/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ramstage: copies the saved pages back. Repeatable until the header says CONSUMED:
 * the saved pages are only read, and nothing that runs here lies in what is written.
 */

#include <types.h>

#include "dormouse.h"

static void consume(struct dormouse_header *header, struct dormouse_header *copies,
		    const struct dormouse_copied *copied)
{
	header->state = DORMOUSE_STATE_CONSUMED;
	header->restored_pages = copied->pages;
	header->resume_count++;
	header->last_outcome = DORMOUSE_OUTCOME_RESUMED;
	header->last_reason = DORMOUSE_OK;
	header->last_detail = 0;
	dormouse_header_commit(copies, header);
}

enum dormouse_reason dormouse_restore(struct dormouse_header *header,
				      struct dormouse_header *copies,
				      const struct dormouse_geometry *geometry,
				      uint64_t *detail)
{
	struct dormouse_copied copied;
	enum dormouse_reason reason;

	header->state = DORMOUSE_STATE_RESTORING;
	header->restore_attempts++;
	dormouse_header_commit(copies, header);

	reason = dormouse_copy_pages(DORMOUSE_RESTORE, header, geometry, &copied, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	if (copied.digest != header->saved_digest) {
		*detail = copied.digest;
		return DORMOUSE_E_SAVED_DIGEST;
	}
	dormouse_fault_point("before-consume");
	consume(header, copies, &copied);
	dormouse_fault_point("after-consume");
	return DORMOUSE_OK;
}
