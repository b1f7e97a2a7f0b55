/* SPDX-License-Identifier: GPL-2.0-only */
/* SMM: copies the marked pages into CXL memory, commits the image, powers off. */

#include <types.h>

#include "dormouse.h"

enum dormouse_reason dormouse_save(struct dormouse_header *header,
				   struct dormouse_header *copies,
				   const struct dormouse_geometry *geometry,
				   uint64_t *detail)
{
	struct dormouse_copied copied;
	enum dormouse_reason reason;

	header->state = DORMOUSE_STATE_SAVING;
	header->saved_pages = 0;
	header->saved_digest = 0;
	header->restored_pages = 0;
	header->restore_attempts = 0;
	dormouse_header_commit(copies, header);

	reason = dormouse_copy_pages(DORMOUSE_SAVE, header, geometry, &copied, detail);
	if (reason != DORMOUSE_OK) {
		/* The bitmaps changed after the check. The OS continues to run. */
		header->state = DORMOUSE_STATE_PREPARED;
		dormouse_header_commit(copies, header);
		return reason;
	}
	dormouse_fault_point("before-commit");

	header->state = DORMOUSE_STATE_SUSPENDED;
	header->saved_pages = copied.pages;
	header->saved_digest = copied.digest;
	header->sleep_count++;
	dormouse_event(dormouse_now_ns(), "suspend", "commit", "begin", NULL, 0);
	dormouse_header_commit(copies, header);
	dormouse_event(dormouse_now_ns(), "suspend", "commit", "end", NULL, 0);
	dormouse_fault_point("after-commit");

	dormouse_event(dormouse_now_ns(), "suspend", "power-off", "mark", NULL, 0);
	dormouse_board_power_off();
}
