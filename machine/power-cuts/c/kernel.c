// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated machine's kernel: the module's part of a sleep, in the order of
 * machine/kernel/handover.c (prepare_image, write_mailbox, dormouse_refused), which needs a
 * kernel to compile. Which pages are in use is the test's to say.
 */
#include <string.h>

#include "dormouse_image.h"
#include "hooks.h"

static struct {
	uint64_t cxl_base;
	const uint64_t *dram;		/* the marks that the test wants */
	const uint64_t *cxl;
	uint32_t user_check;
} request;

static struct dormouse_header own;

static uint8_t *window(void)
{
	return (uint8_t *)(uintptr_t)request.cxl_base;
}

static struct dormouse_header *copies(void)
{
	return (struct dormouse_header *)window();
}

static struct dormouse_mailbox *mailbox(void)
{
	return (struct dormouse_mailbox *)(window() + DORMOUSE_MAILBOX_OFFSET);
}

static void mark(const struct dormouse_header *h)
{
	uint8_t *dram = window() + h->dram_bitmap_offset;
	uint8_t *cxl = window() + h->cxl_bitmap_offset;

	/* As dormouse_mark(): everything else first, so each word is seen with two values. */
	memset(dram, 0, h->dram_bitmap_bytes);
	memset(cxl, 0xff, h->cxl_bitmap_bytes);
	sim_observe();
	memcpy(dram, request.dram, h->dram_bitmap_bytes);
	memcpy(cxl, request.cxl, h->cxl_bitmap_bytes);
	dormouse_flush(dram, h->dram_bitmap_bytes);
	dormouse_flush(cxl, h->cxl_bitmap_bytes);
}

static void digest_user_pages(struct dormouse_header *h)
{
	uint64_t *table = (uint64_t *)(window() + h->user_table_offset);
	const uint64_t *words = (const uint64_t *)(window() + h->cxl_bitmap_offset);
	uint64_t group, pages;

	h->user_check = request.user_check;
	h->user_groups = 0;
	h->user_pages = 0;
	h->user_table_digest = 0;
	if (h->user_check == DORMOUSE_USER_CHECK_NONE)
		return;
	memset(table, 0, h->user_table_bytes);
	sim_observe();
	for (group = h->reserved_bytes / DORMOUSE_GROUP_BYTES;
	     group < h->cxl_bytes / DORMOUSE_GROUP_BYTES; group++) {
		pages = dormouse_user_pages(h->user_check, words[group]);
		if (!pages)
			continue;
		table[group] = dormouse_group_digest(window() + group * DORMOUSE_GROUP_BYTES,
						     pages);
		h->user_groups++;
	}
	dormouse_flush(table, h->user_table_bytes);
	h->user_table_digest = dormouse_xxh64(table, h->user_table_bytes);
}

static int load(void)
{
	enum dormouse_reason why;
	int newest = dormouse_header_select(copies(), &why);

	if (newest >= 0)
		own = copies()[newest];
	return newest >= 0;
}

static int prepare_image(void)
{
	struct dormouse_header *h = &own;
	const void *dram;

	if (!load() || h->state == DORMOUSE_STATE_SUSPENDED ||
	    h->state == DORMOUSE_STATE_RESTORING)
		return 0;
	mark(h);
	dram = window() + h->dram_bitmap_offset;
	dormouse_header_request(h, dram, window() + h->cxl_bitmap_offset,
				dormouse_bitmap_count((uint64_t *)dram, 0, h->dram_pages),
				DORMOUSE_PERSISTENCE_FIRMWARE);
	digest_user_pages(h);
	dormouse_header_commit(copies(), h);
	return 1;
}

static void write_mailbox(void)
{
	struct dormouse_mailbox *m = mailbox();

	*m = (struct dormouse_mailbox){
		.magic = DORMOUSE_MAILBOX_MAGIC,
		.command = DORMOUSE_CMD_SLEEP,
		.status = DORMOUSE_STATUS_PENDING,
	};
	dormouse_flush(m, sizeof(*m));
}

static void refused(void)
{
	if (!load() || own.state != DORMOUSE_STATE_PREPARED)
		return;
	own.state = DORMOUSE_STATE_EMPTY;
	own.last_outcome = DORMOUSE_OUTCOME_REFUSED;
	own.last_reason = mailbox()->status;
	own.last_detail = mailbox()->detail;
	dormouse_header_commit(copies(), &own);
}

void sim_request(uint64_t cxl_base, const uint64_t *dram, const uint64_t *cxl, uint32_t user_check)
{
	request.cxl_base = cxl_base;
	request.dram = dram;
	request.cxl = cxl;
	request.user_check = user_check;
}

/* Linux writes all caches back before it calls the module (acpi_hw_legacy_sleep). */
void sim_sleep(void)
{
	sim_write_back_all();
	if (prepare_image()) {
		write_mailbox();
		sim_smi();
	}
	refused();
}
