// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reserved part of the CXL window: mapping it, reading and writing its header.
 *
 * Everything in it is untrusted: bad sectors, other firmware, another machine's
 * device. What a header claims is used only where it agrees with firmware's ACPI
 * device.
 */
#define pr_fmt(fmt) "dormouse: " fmt

#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "dormouse.h"

int dormouse_window_map(struct dormouse_device *d)
{
	/* As System RAM it would come out of the direct map, and Linux would use it. */
	if (region_intersects(d->cxl_base, d->reserved_bytes, IORESOURCE_SYSTEM_RAM,
			      IORES_DESC_NONE) != REGION_DISJOINT) {
		pr_err("Linux uses the reserved part of the CXL window as memory\n");
		return -EBUSY;
	}

	d->header = kzalloc(sizeof(*d->header), GFP_KERNEL);
	if (!d->header)
		return -ENOMEM;
	d->window = memremap(d->cxl_base, d->reserved_bytes, MEMREMAP_WB);
	if (!d->window) {
		pr_err("cannot map the reserved part of the CXL window\n");
		kfree(d->header);
		d->header = NULL;
		return -ENOMEM;
	}
	return 0;
}

void dormouse_window_unmap(struct dormouse_device *d)
{
	memunmap(d->window);
	d->window = NULL;
	kfree(d->header);
	d->header = NULL;
}

/* [offset, offset + bytes) holds @bits bits, aligned, between the mailbox and the data. */
static bool bitmap_fits(const struct dormouse_header *h, u64 offset, u64 bytes, u64 bits)
{
	return IS_ALIGNED(offset | bytes, sizeof(u64)) && offset >= DORMOUSE_BITMAPS_OFFSET &&
	       offset <= h->data_offset && bytes <= h->data_offset - offset &&
	       bytes >= DIV_ROUND_UP_ULL(bits, 64) * sizeof(u64);
}

/* Of parts that fit: no sum wraps. */
static bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static enum dormouse_reason header_fits(const struct dormouse_device *d, u64 *detail)
{
	const struct dormouse_header *h = d->header;

	*detail = h->cxl_base;
	if (h->cxl_base != d->cxl_base)
		return DORMOUSE_E_CXL_SIZE;
	*detail = h->cxl_bytes;
	if (h->cxl_bytes != d->cxl_bytes || h->reserved_bytes != d->reserved_bytes)
		return DORMOUSE_E_CXL_SIZE;
	*detail = h->dram_pages;
	if (!h->dram_pages || h->dram_pages > 1ULL << (boot_cpu_data.x86_phys_bits - PAGE_SHIFT))
		return DORMOUSE_E_DRAM_SIZE;

	*detail = h->data_offset;
	if (!PAGE_ALIGNED(h->data_offset) || h->data_offset > d->reserved_bytes)
		return DORMOUSE_E_LAYOUT;
	*detail = h->dram_bitmap_offset;
	if (!bitmap_fits(h, h->dram_bitmap_offset, h->dram_bitmap_bytes, h->dram_pages))
		return DORMOUSE_E_LAYOUT;
	*detail = h->cxl_bitmap_offset;
	if (!bitmap_fits(h, h->cxl_bitmap_offset, h->cxl_bitmap_bytes,
			 h->cxl_bytes >> PAGE_SHIFT))
		return DORMOUSE_E_LAYOUT;
	if (overlap(h->dram_bitmap_offset, h->dram_bitmap_bytes, h->cxl_bitmap_offset,
		    h->cxl_bitmap_bytes))
		return DORMOUSE_E_LAYOUT;
	*detail = h->user_table_offset;
	if (!bitmap_fits(h, h->user_table_offset, h->user_table_bytes,
			 h->cxl_bytes >> PAGE_SHIFT) ||
	    overlap(h->user_table_offset, h->user_table_bytes, h->dram_bitmap_offset,
		    h->dram_bitmap_bytes) ||
	    overlap(h->user_table_offset, h->user_table_bytes, h->cxl_bitmap_offset,
		    h->cxl_bitmap_bytes))
		return DORMOUSE_E_LAYOUT;

	*detail = 0;
	return DORMOUSE_OK;
}

enum dormouse_reason dormouse_header_load(struct dormouse_device *d, u64 *detail)
{
	enum dormouse_reason why;
	int newest = dormouse_header_select(dormouse_copies(d), &why);

	*detail = 0;
	if (newest < 0)
		return why;
	memcpy(d->header, &dormouse_copies(d)[newest], sizeof(*d->header));
	/* The copy is what counts from here on: check that one. */
	why = dormouse_header_check(d->header);
	return why != DORMOUSE_OK ? why : header_fits(d, detail);
}

void dormouse_outcome_from_header(struct dormouse_device *d)
{
	d->last_outcome = d->header->last_outcome;
	d->last_reason = d->header->last_reason;
	d->last_detail = d->header->last_detail;
}

void dormouse_refused(struct dormouse_device *d, enum dormouse_reason reason, u64 detail)
{
	u64 unused;

	d->last_outcome = DORMOUSE_OUTCOME_REFUSED;
	d->last_reason = reason;
	d->last_detail = detail;
	if (reason == DORMOUSE_E_NO_SPACE)
		pr_err("suspend refused: %s: %s (detail 0x%llx needed %llu available %llu)\n",
		       dormouse_reason_name(reason), dormouse_reason_text(reason), detail,
		       d->needed_bytes, d->available_bytes);
	else
		pr_err("suspend refused: %s: %s (detail 0x%llx)\n", dormouse_reason_name(reason),
		       dormouse_reason_text(reason), detail);

	/* A request without an answer must not look like a lost image at the next power-on. */
	if (dormouse_header_load(d, &unused) != DORMOUSE_OK)
		return;
	if (d->header->state == DORMOUSE_STATE_PREPARED)
		d->header->state = DORMOUSE_STATE_EMPTY;
	else if (d->header->state != DORMOUSE_STATE_EMPTY &&
		 d->header->state != DORMOUSE_STATE_CONSUMED)
		return;
	d->header->last_outcome = d->last_outcome;
	d->header->last_reason = d->last_reason;
	d->header->last_detail = d->last_detail;
	dormouse_header_commit(dormouse_copies(d), d->header);
}
