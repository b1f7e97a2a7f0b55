// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages are in use: all of System RAM minus the free lists of the page
 * allocator, once for DRAM (what firmware saves) and once for the CXL window
 * (what it keeps off).
 */
#include <linux/ioport.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/percpu.h>

#include "dormouse.h"

struct dormouse_ram_walk {
	const struct dormouse_device *d;
	struct dormouse_marks *m;
	enum dormouse_reason reason;
	u64 detail;
};

static u64 cxl_first_pfn(const struct dormouse_device *d)
{
	return d->cxl_base >> PAGE_SHIFT;
}

static u64 cxl_end_pfn(const struct dormouse_device *d)
{
	return (d->cxl_base + d->cxl_bytes) >> PAGE_SHIFT;
}

static void mark_ram(struct dormouse_ram_walk *walk, u64 first, u64 end)
{
	if (first >= end)
		return;
	/* Firmware did not give us this memory, so it will not save it either. */
	if (end > walk->m->dram_pages) {
		walk->reason = DORMOUSE_E_OUTSIDE_RAM;
		walk->detail = max(first, walk->m->dram_pages);
		return;
	}
	dormouse_bitmap_set_range(walk->m->dram, first, end - first);
}

static int mark_ram_resource(struct resource *resource, void *data)
{
	struct dormouse_ram_walk *walk = data;
	u64 first = PFN_UP(resource->start);
	u64 end = PFN_DOWN(resource->end + 1);

	mark_ram(walk, first, min(end, cxl_first_pfn(walk->d)));
	mark_ram(walk, max(first, cxl_end_pfn(walk->d)), end);
	return walk->reason != DORMOUSE_OK;
}

static void clear_free_block(const struct dormouse_device *d, struct dormouse_marks *m,
			     u64 first, u64 end)
{
	const u64 cxl_first = cxl_first_pfn(d), cxl_end = cxl_end_pfn(d);
	u64 from = max(first, cxl_first), to = min(end, cxl_end);

	if (from < to) {
		dormouse_bitmap_clear_range(m->cxl, from - cxl_first, to - from);
		m->cxl_used_pages -= to - from;
		end = min(end, from);
	}
	/* Blocks are aligned and so is the window: a block never spans it on both sides. */
	if (first < end && end <= m->dram_pages)
		dormouse_bitmap_clear_range(m->dram, first, end - first);
}

static void clear_free_lists(const struct dormouse_device *d, struct dormouse_marks *m,
			     struct zone *zone)
{
	unsigned int order, type;
	struct page *page;

	for (order = 0; order < NR_PAGE_ORDERS; order++) {
		for (type = 0; type < MIGRATE_TYPES; type++) {
			list_for_each_entry(page, &zone->free_area[order].free_list[type],
					    buddy_list) {
				u64 first = page_to_pfn(page);

				clear_free_block(d, m, first, first + (1ULL << order));
			}
		}
	}
}

static unsigned int pcp_list_order(unsigned int list)
{
	return list < NR_LOWORDER_PCP_LISTS ? list / MIGRATE_PCPTYPES : HPAGE_PMD_ORDER;
}

/*
 * Free pages that wait on a CPU's own lists: up to an eighth of a zone, and all of
 * them the last CPU's, because those of a CPU that goes off are drained. If their
 * number is not the allocator's own (another kernel, other lists), they count as used.
 */
static void clear_cpu_lists(const struct dormouse_device *d, struct dormouse_marks *m,
			    struct per_cpu_pages *pcp)
{
	struct page *page;
	unsigned int list;
	u64 pages = 0;

	for (list = 0; list < NR_PCP_LISTS; list++) {
		list_for_each_entry(page, &pcp->lists[list], pcp_list)
			pages += 1ULL << pcp_list_order(list);
	}
	if (pages != pcp->count)
		return;

	for (list = 0; list < NR_PCP_LISTS; list++) {
		list_for_each_entry(page, &pcp->lists[list], pcp_list) {
			u64 first = page_to_pfn(page);

			clear_free_block(d, m, first, first + (1ULL << pcp_list_order(list)));
		}
	}
}

static void clear_zone(const struct dormouse_device *d, struct dormouse_marks *m,
		       struct zone *zone)
{
	unsigned long flags;
	int cpu;

	for_each_online_cpu(cpu) {
		struct per_cpu_pages *pcp = per_cpu_ptr(zone->per_cpu_pageset, cpu);

		spin_lock_irqsave(&pcp->lock, flags);
		clear_cpu_lists(d, m, pcp);
		spin_unlock_irqrestore(&pcp->lock, flags);
	}

	spin_lock_irqsave(&zone->lock, flags);
	clear_free_lists(d, m, zone);
	spin_unlock_irqrestore(&zone->lock, flags);
}

static void clear_free_pages(const struct dormouse_device *d, struct dormouse_marks *m)
{
	int nid, i;

	for_each_online_node(nid) {
		for (i = 0; i < MAX_NR_ZONES; i++) {
			struct zone *zone = &NODE_DATA(nid)->node_zones[i];

			if (populated_zone(zone))
				clear_zone(d, m, zone);
		}
	}
}

/* Offline blocks of the window are not ours to write to: they stay marked as occupied. */
static u64 cxl_online_pages(const struct dormouse_device *d)
{
	u64 pfn, pages = 0;

	for (pfn = cxl_first_pfn(d); pfn < cxl_end_pfn(d); pfn += PAGES_PER_SECTION) {
		if (pfn_to_online_page(pfn))
			pages += min(cxl_end_pfn(d) - pfn, PAGES_PER_SECTION);
	}
	return pages;
}

void dormouse_marks_init(struct dormouse_marks *m, const struct dormouse_header *h, u64 *dram,
			 u64 *cxl)
{
	*m = (struct dormouse_marks) {
		.dram = dram,
		.dram_bitmap_bytes = h->dram_bitmap_bytes,
		.dram_pages = h->dram_pages,
		.cxl = cxl,
		.cxl_bitmap_bytes = h->cxl_bitmap_bytes,
		.cxl_pages = h->cxl_bytes >> PAGE_SHIFT,
	};
}

enum dormouse_reason dormouse_mark(const struct dormouse_device *d, struct dormouse_marks *m,
				   u64 data_offset, u64 *detail)
{
	struct dormouse_ram_walk walk = { .d = d, .m = m };
	const u64 data_first = data_offset >> PAGE_SHIFT;
	const u64 data_end = d->reserved_bytes >> PAGE_SHIFT;

	memset(m->dram, 0, m->dram_bitmap_bytes);
	memset(m->cxl, 0xff, m->cxl_bitmap_bytes);

	walk_iomem_res_desc(IORES_DESC_NONE, IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0, -1,
			    &walk, mark_ram_resource);
	*detail = walk.detail;
	if (walk.reason != DORMOUSE_OK)
		return walk.reason;

	m->cxl_online_pages = cxl_online_pages(d);
	m->cxl_used_pages = m->cxl_online_pages;
	clear_free_pages(d, m);
	m->dram_used_pages = dormouse_bitmap_count(m->dram, 0, m->dram_pages);

	/* Linux has no block in the reserved part; the space after the bitmaps is free. */
	if (data_first < data_end)
		dormouse_bitmap_clear_range(m->cxl, data_first, data_end - data_first);
	m->cxl_free_pages = m->cxl_pages - dormouse_bitmap_count(m->cxl, 0, m->cxl_pages);

	dormouse_filter(d, m);
	m->save_pages = dormouse_bitmap_count(m->dram, 0, m->dram_pages);
	return DORMOUSE_OK;
}
