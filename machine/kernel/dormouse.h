/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the Dormouse module share: the one device and its steps. */
#ifndef DORMOUSE_H
#define DORMOUSE_H

#include <linux/acpi.h>
#include <linux/device.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include <dormouse_image.h>

/* Where a saved page comes from, as far as its struct page shows. */
enum dormouse_class {
	DORMOUSE_CLASS_RESERVED,	/* kernel image, boot-time allocations */
	DORMOUSE_CLASS_MEMMAP,		/* struct page of all memory */
	DORMOUSE_CLASS_SWIOTLB,
	DORMOUSE_CLASS_SLAB,
	DORMOUSE_CLASS_PAGE_TABLES,
	DORMOUSE_CLASS_ANONYMOUS,	/* user memory that did not migrate */
	DORMOUSE_CLASS_PAGE_CACHE,
	DORMOUSE_CLASS_HUGETLB,
	DORMOUSE_CLASS_OTHER,		/* stacks, vmalloc, modules, buffers, … */
	DORMOUSE_CLASS_COUNT
};

/* One walk over all memory; the bitmaps lie in CXL memory, or elsewhere for a dry run. */
struct dormouse_marks {
	u64 *dram;
	u64 dram_bitmap_bytes;
	u64 dram_pages;
	u64 *cxl;
	u64 cxl_bitmap_bytes;
	u64 cxl_pages;

	u64 dram_used_pages;		/* not free, before anything was filtered */
	u64 save_pages;
	u64 cxl_online_pages;
	u64 cxl_used_pages;		/* online and not free */
	u64 cxl_free_pages;		/* room for saved pages */
	u64 skipped_swiotlb_pages;
	u64 skipped_unreadable_pages;	/* poisoned or ballooned */
	u64 skipped_offline_pages;	/* in memory blocks that are offline */
	u64 class_pages[DORMOUSE_CLASS_COUNT];
};

/* How the firmware wants to be asked. */
enum dormouse_trigger {
	DORMOUSE_TRIGGER_APM,		/* write the command to the SMI port */
	DORMOUSE_TRIGGER_SLP_EN,	/* let ACPI write SLP_EN */
};

struct dormouse_device {
	struct device *dev;

	/* From firmware's ACPI device, never from CXL memory. */
	u64 cxl_base;
	u64 cxl_bytes;
	u64 reserved_bytes;
	enum dormouse_trigger trigger;
	u16 smi_port;
	u8 smi_command;
	const char *flush;		/* its statement on Global Persistent Flush */
	bool counts_dirty_shutdowns;

	void *window;			/* the reserved part, write-back */
	struct dormouse_header *header;	/* our own copy of the newest header */

	/*
	 * Against concurrent sysfs users. The last step of S3 takes no lock: it
	 * runs alone, with user space frozen and the other CPUs off.
	 */
	struct mutex lock;
	bool enabled;
	/* For the next sleep; user space decides. */
	enum dormouse_persistence persistence;
	enum dormouse_user_check user_check;
	bool asked;			/* firmware was asked and did not say no yet */

	u32 last_outcome;
	u32 last_reason;
	u64 last_detail;
	u64 needed_bytes;		/* both with DORMOUSE_E_NO_SPACE */
	u64 available_bytes;
	struct dormouse_marks marks;	/* of the last sleep */
};

extern struct dormouse_device dormouse;

/* Firmware states that flushing on power loss is known good. */
static inline bool dormouse_firmware_vouches(const struct dormouse_device *d)
{
	return !strcmp(d->flush, "armed") && d->counts_dirty_shutdowns;
}

/* Nanoseconds since this power cycle's reset, as firmware counts them. */
static inline u64 dormouse_now_ns(void)
{
	return mul_u64_u64_div_u64(rdtsc_ordered(), NSEC_PER_MSEC, tsc_khz ?: 1);
}

static inline struct dormouse_header *dormouse_copies(const struct dormouse_device *d)
{
	return d->window;
}

/* --- symbols.c --- */
/* Finds what the kernel does not export: 0, or -ENOENT and the name in the log. */
int dormouse_symbols_find(void);
void dormouse_set_prepare_sleep(int (*prepare)(u8 state, u32 pm1a, u32 pm1b));
/* /sys/power; NULL if it cannot be found. Drop it with kobject_put(). */
struct kobject *dormouse_power_kobject(void);

/* --- window.c --- */
int dormouse_window_map(struct dormouse_device *d);
void dormouse_window_unmap(struct dormouse_device *d);
/* Reads the newest header into d->header and compares it with ACPI. */
enum dormouse_reason dormouse_header_load(struct dormouse_device *d, u64 *detail);
void dormouse_outcome_from_header(struct dormouse_device *d);
/* Remembers a refusal here and, where that destroys no image, in the header. */
void dormouse_refused(struct dormouse_device *d, enum dormouse_reason reason, u64 detail);

/* --- mark.c --- */
void dormouse_marks_init(struct dormouse_marks *m, const struct dormouse_header *h, u64 *dram,
			 u64 *cxl);
/* Fills the bitmaps and the counts of @m. */
enum dormouse_reason dormouse_mark(const struct dormouse_device *d, struct dormouse_marks *m,
				   u64 data_offset, u64 *detail);

/* --- filter.c --- */
/* Poisoned, or without memory behind it. */
bool dormouse_page_is_unreadable(const struct page *page);
/* Clears pages that are in use and whose contents are not needed; counts the rest. */
void dormouse_filter(const struct dormouse_device *d, struct dormouse_marks *m);

/* --- classify.c --- */
enum dormouse_class dormouse_page_class(const struct page *page);
/* Moves pages that hold struct pages from the class they were counted in to their own. */
void dormouse_classify_memmap(const struct dormouse_device *d, struct dormouse_marks *m);
const char *dormouse_class_name(enum dormouse_class class);

/* --- user_pages.c: digests of the pages that stay on the device --- */
/* While memory can still be allocated, and when it is no longer needed. */
void dormouse_user_begin(struct dormouse_device *d);
void dormouse_user_end(struct dormouse_device *d);
/* User space and devices stand still, all CPUs run: takes most of them if all are wanted. */
void dormouse_user_digest_early(struct dormouse_device *d);
/* The last step: the rest, into the table and the header. */
void dormouse_user_digest(struct dormouse_device *d);

/* --- handover.c --- */
/* Requests a dry run from firmware: 0 if it answers at all, or -ETIMEDOUT. */
int dormouse_firmware_answers(struct dormouse_device *d);
int dormouse_handover_register(void);
void dormouse_handover_unregister(void);

/* --- sysfs.c --- */
int dormouse_sysfs_create(void);
void dormouse_sysfs_remove(void);

#endif /* DORMOUSE_H */
