// SPDX-License-Identifier: GPL-2.0-only
/*
 * What saved pages consist of, as far as their struct pages show: statistics only,
 * nothing decides by it.
 */
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/page-flags.h>
#include <linux/pgtable.h>

#include "dormouse.h"

static const char * const class_names[DORMOUSE_CLASS_COUNT] = {
	[DORMOUSE_CLASS_RESERVED] = "reserved",
	[DORMOUSE_CLASS_MEMMAP] = "memmap",
	[DORMOUSE_CLASS_SWIOTLB] = "swiotlb",
	[DORMOUSE_CLASS_SLAB] = "slab",
	[DORMOUSE_CLASS_PAGE_TABLES] = "page_tables",
	[DORMOUSE_CLASS_ANONYMOUS] = "anonymous",
	[DORMOUSE_CLASS_PAGE_CACHE] = "page_cache",
	[DORMOUSE_CLASS_HUGETLB] = "hugetlb",
	[DORMOUSE_CLASS_OTHER] = "other",
};

const char *dormouse_class_name(enum dormouse_class class)
{
	return class_names[class];
}

enum dormouse_class dormouse_page_class(const struct page *page)
{
	const struct folio *folio;

	if (PageReserved(page))
		return DORMOUSE_CLASS_RESERVED;
	if (PageTable(page))
		return DORMOUSE_CLASS_PAGE_TABLES;
	folio = page_folio(page);
	if (folio_test_slab(folio))
		return DORMOUSE_CLASS_SLAB;
	if (folio_test_hugetlb(folio))
		return DORMOUSE_CLASS_HUGETLB;
	/* Without one of these two the mapping field is anything. */
	if (!folio_test_lru(folio) && !folio_mapped(folio))
		return DORMOUSE_CLASS_OTHER;
	if (folio_test_anon(folio))
		return DORMOUSE_CLASS_ANONYMOUS;
	return folio->mapping ? DORMOUSE_CLASS_PAGE_CACHE : DORMOUSE_CLASS_OTHER;
}

/* One section's struct pages are one huge page of the memory map's virtual range. */
static void classify_section(struct dormouse_marks *m, u64 pfn)
{
	const u64 map_bytes = PAGES_PER_SECTION * sizeof(struct page);
	unsigned int level;
	u64 first, pages;
	pte_t *entry;

	if (!pfn_valid(pfn))
		return;
	entry = lookup_address((unsigned long)pfn_to_page(pfn), &level);
	if (!entry || level != PG_LEVEL_2M)
		return;
	first = pmd_pfn(*(pmd_t *)entry);
	pages = map_bytes >> PAGE_SHIFT;
	if (first + pages > m->dram_pages)
		return;

	/* None where the struct pages of an offline block lie in that block itself. */
	pages = dormouse_bitmap_count(m->dram, first, first + pages);
	if (!pages)
		return;
	m->class_pages[DORMOUSE_CLASS_MEMMAP] += pages;
	m->class_pages[dormouse_page_class(pfn_to_page(first))] -= pages;
}

void dormouse_classify_memmap(const struct dormouse_device *d, struct dormouse_marks *m)
{
	const u64 cxl_first = d->cxl_base >> PAGE_SHIFT;
	u64 pfn;

	for (pfn = 0; pfn < m->dram_pages; pfn += PAGES_PER_SECTION)
		classify_section(m, pfn);
	for (pfn = max(pfn, cxl_first); pfn < cxl_first + m->cxl_pages; pfn += PAGES_PER_SECTION)
		classify_section(m, pfn);
}
