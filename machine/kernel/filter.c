// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that are in use and need not, or must not, be saved; and what the rest is.
 */
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/swiotlb.h>

#include "dormouse.h"

#ifdef CONFIG_SWIOTLB
/* The default bounce buffers; every device that has no pool of its own points to them. */
static void swiotlb_range(const struct dormouse_device *d, u64 *first, u64 *end)
{
	const struct io_tlb_mem *mem = d->dev->dma_io_tlb_mem;

	*first = 0;
	*end = 0;
	if (!mem || !mem->nslabs)
		return;
	*first = PFN_UP(mem->defpool.start);
	*end = PFN_DOWN(mem->defpool.end);
}

/*
 * Slots are filled when a buffer is mapped, whatever the direction, so without a
 * mapping their contents are dead. Only kernels with debugfs keep the count.
 */
static bool swiotlb_is_unused(const struct dormouse_device *d)
{
#if defined(CONFIG_DEBUG_FS) && !defined(CONFIG_SWIOTLB_DYNAMIC)
	return !atomic_long_read(&d->dev->dma_io_tlb_mem->total_used);
#else
	return false;
#endif
}
#else
static void swiotlb_range(const struct dormouse_device *d, u64 *first, u64 *end)
{
	*first = 0;
	*end = 0;
}

static bool swiotlb_is_unused(const struct dormouse_device *d)
{
	return false;
}
#endif

static void filter_swiotlb(const struct dormouse_device *d, struct dormouse_marks *m)
{
	u64 first, end, pages;

	swiotlb_range(d, &first, &end);
	end = min(end, m->dram_pages);
	if (first >= end)
		return;
	pages = dormouse_bitmap_count(m->dram, first, end);
	if (swiotlb_is_unused(d)) {
		dormouse_bitmap_clear_range(m->dram, first, end - first);
		m->skipped_swiotlb_pages = pages;
	} else {
		m->class_pages[DORMOUSE_CLASS_SWIOTLB] = pages;
		m->class_pages[DORMOUSE_CLASS_RESERVED] -= pages;
	}
}

/*
 * Reading a poisoned page is a machine check; an offlined one (ballooning, virtio-mem)
 * may have no memory behind it. Hibernation leaves them out as well. A page of the
 * hugetlb pool carries the mark on its first page, whichever part of it is broken.
 */
bool dormouse_page_is_unreadable(const struct page *page)
{
	const struct folio *folio;

	if (PageHWPoison(page) || PageOffline(page))
		return true;
	folio = page_folio(page);
	return folio_test_hugetlb(folio) && folio_test_hwpoison(folio);
}

static void filter_page(struct dormouse_marks *m, u64 pfn)
{
	const struct page *page = pfn_to_online_page(pfn);

	if (!page) {
		/* A memory block that was taken offline is System RAM without contents. */
		dormouse_bitmap_clear_range(m->dram, pfn, 1);
		m->skipped_offline_pages++;
	} else if (dormouse_page_is_unreadable(page)) {
		dormouse_bitmap_clear_range(m->dram, pfn, 1);
		m->skipped_unreadable_pages++;
	} else {
		m->class_pages[dormouse_page_class(page)]++;
	}
}

void dormouse_filter(const struct dormouse_device *d, struct dormouse_marks *m)
{
	u64 first, pfn, end;

	filter_swiotlb(d, m);
	for (first = dormouse_bitmap_next_set(m->dram, 0, m->dram_pages); first < m->dram_pages;
	     first = dormouse_bitmap_next_set(m->dram, end, m->dram_pages)) {
		end = dormouse_bitmap_next_clear(m->dram, first, m->dram_pages);
		for (pfn = first; pfn < end; pfn++)
			filter_page(m, pfn);
	}
	dormouse_classify_memmap(d, m);
}
