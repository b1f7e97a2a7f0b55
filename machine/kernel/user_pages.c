// SPDX-License-Identifier: GPL-2.0-only
/*
 * Digests of the pages of the CXL node that are in use, for firmware to compare before
 * it wakes the system.
 *
 *	sample	the first page of some groups, all taken in the last step
 *	all	every page; taken by all CPUs when user space and devices stand still
 *		(suspend_noirq), and what may have changed since again in the last step
 *
 * What may have changed: groups in which pages came or went, and groups with pages that
 * are not plainly a program's, such as the node's own struct pages.
 */
#include <linux/atomic.h>
#include <linux/hash.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "dormouse.h"

/* What a CPU takes at a time: 4 MiB of window. */
#define GROUPS_AT_A_TIME	16

static struct {
	const struct dormouse_device *d;
	u64 *dram;		/* for marking only */
	u64 *words;		/* the CXL bitmap as it was then */
	u64 *table;		/* digests; 0: take it in the last step */
	u64 groups;
	atomic64_t next;
	bool taken;
	struct dormouse_interval phase;
} early;

static DEFINE_PER_CPU(struct work_struct, digest_work);

static u64 group_pfn(const struct dormouse_device *d, u64 group)
{
	return (d->cxl_base >> PAGE_SHIFT) + group * DORMOUSE_GROUP_PAGES;
}

/* A group never spans two memory blocks. */
static bool group_is_in_use(const struct dormouse_device *d, u64 group, u64 word)
{
	return word && pfn_to_online_page(group_pfn(d, group));
}

static bool group_is_readable(const struct dormouse_device *d, u64 group, u64 word)
{
	const u64 first = group_pfn(d, group);
	unsigned int i;

	if (!group_is_in_use(d, group, word))
		return false;
	for (i = 0; i < DORMOUSE_GROUP_PAGES; i++) {
		if (word >> i & 1 && dormouse_page_is_unreadable(pfn_to_page(first + i)))
			return false;
	}
	return true;
}

/* Pages of frozen programs do not change; all other pages may. */
static bool group_is_user(const struct dormouse_device *d, u64 group, u64 word)
{
	const u64 first = group_pfn(d, group);
	unsigned int i;

	for (i = 0; i < DORMOUSE_GROUP_PAGES; i++) {
		const struct folio *folio;

		if (!(word >> i & 1))
			continue;
		folio = page_folio(pfn_to_page(first + i));
		if (!folio_test_lru(folio) && !folio_test_hugetlb(folio))
			return false;
	}
	return true;
}

static u64 group_digest(const struct dormouse_device *d, u64 group, u64 pages)
{
	return dormouse_group_digest(__va(PFN_PHYS(group_pfn(d, group))), pages);
}

static void digest_pieces(struct work_struct *unused)
{
	const struct dormouse_device *d = early.d;
	u64 first, group;

	for (;;) {
		first = atomic64_fetch_add(GROUPS_AT_A_TIME, &early.next);
		if (first >= early.groups)
			return;
		for (group = first; group < min(first + GROUPS_AT_A_TIME, early.groups);
		     group++) {
			const u64 word = early.words[group];

			if (group_is_readable(d, group, word) && group_is_user(d, group, word))
				early.table[group] = group_digest(d, group, word);
			cond_resched();
		}
	}
}

/* As schedule_on_each_cpu(), which modules cannot call. The set of CPUs stands still here. */
static void digest_on_each_cpu(void)
{
	int cpu;

	for_each_online_cpu(cpu) {
		struct work_struct *work = per_cpu_ptr(&digest_work, cpu);

		INIT_WORK(work, digest_pieces);
		queue_work_on(cpu, system_wq, work);
	}
	for_each_online_cpu(cpu)
		flush_work(per_cpu_ptr(&digest_work, cpu));
}

void dormouse_user_begin(struct dormouse_device *d)
{
	const struct dormouse_header *h = d->header;
	u64 detail;

	dormouse_user_end(d);
	if (d->user_check != DORMOUSE_USER_CHECK_ALL ||
	    dormouse_header_load(d, &detail) != DORMOUSE_OK)
		return;
	early.dram = kvmalloc(h->dram_bitmap_bytes, GFP_KERNEL);
	early.words = kvmalloc(h->cxl_bitmap_bytes, GFP_KERNEL);
	early.table = kvzalloc(h->cxl_bitmap_bytes, GFP_KERNEL);
	/* Without: all in the last step, which only takes longer. */
	if (!early.dram || !early.words || !early.table)
		dormouse_user_end(d);
}

void dormouse_user_end(struct dormouse_device *d)
{
	kvfree(early.dram);
	kvfree(early.words);
	kvfree(early.table);
	early.dram = NULL;
	early.words = NULL;
	early.table = NULL;
	early.taken = false;
}

void dormouse_user_digest_early(struct dormouse_device *d)
{
	const struct dormouse_header *h = d->header;
	struct dormouse_marks m;
	u64 detail;

	if (!early.table || dormouse_header_load(d, &detail) != DORMOUSE_OK)
		return;
	early.phase.begin_ns = dormouse_now_ns();
	dormouse_marks_init(&m, h, early.dram, early.words);
	if (dormouse_mark(d, &m, h->data_offset, &detail) != DORMOUSE_OK)
		return;
	early.d = d;
	early.groups = h->cxl_bytes / DORMOUSE_GROUP_BYTES;
	atomic64_set(&early.next, d->reserved_bytes / DORMOUSE_GROUP_BYTES);
	digest_on_each_cpu();
	early.taken = true;
	early.phase.end_ns = dormouse_now_ns();
}

static u64 *table_of(const struct dormouse_device *d)
{
	return d->window + d->header->user_table_offset;
}

static void add_group(struct dormouse_device *d, u64 group, u64 pages, u64 digest)
{
	table_of(d)[group] = digest;
	d->header->user_groups++;
	d->header->user_pages += hweight64(pages);
}

static void digest_all(struct dormouse_device *d, u64 first, u64 groups)
{
	const u64 *words = d->marks.cxl;
	u64 group;

	for (group = first; group < groups; group++) {
		const u64 word = words[group];

		if (!group_is_readable(d, group, word))
			continue;
		if (early.taken && early.table[group] && early.words[group] == word)
			add_group(d, group, word, early.table[group]);
		else
			add_group(d, group, word, group_digest(d, group, word));
	}
	if (early.taken)
		d->header->phase[DORMOUSE_PHASE_USER_DIGEST] = early.phase;
}

/* Evenly over the groups in use, from another one in each sleep on. */
static void digest_sample(struct dormouse_device *d, u64 first, u64 groups)
{
	const u64 *words = d->marks.cxl;
	u64 group, found = 0, step, next;

	for (group = first; group < groups; group++)
		found += group_is_in_use(d, group, words[group]);
	step = max(1, DIV_ROUND_UP_ULL(found, DORMOUSE_SAMPLE_PAGES));
	next = hash_64(d->header->generation, 32) % step;
	for (group = first; group < groups; group++) {
		const u64 pages = dormouse_user_pages(d->user_check, words[group]);

		if (!group_is_in_use(d, group, words[group]) || next--)
			continue;
		next = step - 1;
		if (group_is_readable(d, group, pages))
			add_group(d, group, pages, group_digest(d, group, pages));
	}
}

void dormouse_user_digest(struct dormouse_device *d)
{
	struct dormouse_header *h = d->header;
	const u64 first = d->reserved_bytes / DORMOUSE_GROUP_BYTES;
	/* A group that the end of the window cuts is no memory block of Linux's. */
	const u64 groups = h->cxl_bytes / DORMOUSE_GROUP_BYTES;

	h->user_check = d->user_check;
	h->user_groups = 0;
	h->user_pages = 0;
	h->user_table_digest = 0;
	if (d->user_check == DORMOUSE_USER_CHECK_NONE)
		return;
	memset(table_of(d), 0, h->user_table_bytes);
	if (d->user_check == DORMOUSE_USER_CHECK_ALL)
		digest_all(d, first, groups);
	else
		digest_sample(d, first, groups);
	dormouse_flush(table_of(d), h->user_table_bytes);
	h->user_table_digest = dormouse_xxh64(table_of(d), h->user_table_bytes);
}
