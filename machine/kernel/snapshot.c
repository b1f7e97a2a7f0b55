// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dormouse on stock firmware: keeps a range of physical memory out of the kernel's snapshot.
 *
 * The pages of programs lie in persistent memory when the machine sleeps, and stay there.
 * The kernel knows ranges that no snapshot may hold (nosave regions), but lets nobody add
 * one after boot. This module adds one for as long as it is asked to:
 *
 *   /sys/module/dormouse_snapshot/parameters/nosave   "BASE BYTES", or "none"
 *
 * It is mechanism only, and a module of its own: it needs no firmware. Where the list does
 * not look as it must, it does not load, and hibernation is unchanged.
 */
#define pr_fmt(fmt) "dormouse_snapshot: " fmt

#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/notifier.h>
#include <linux/overflow.h>
#include <linux/pfn.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/static_call.h>
#include <linux/suspend.h>

/* As kernel/power/snapshot.c has it; not in any header. */
struct nosave_region {
	struct list_head list;
	unsigned long start_pfn;
	unsigned long end_pfn;
};

/* More than any firmware's map has holes. */
#define MAX_REGIONS 4096

static char *list_symbol = "nosave_regions";
module_param(list_symbol, charp, 0444);
MODULE_PARM_DESC(list_symbol, "for tests: look for this name instead of nosave_regions");

/* All below: under lock_system_sleep(), which every reader of the list holds, too. */
static struct list_head *regions;
static struct nosave_region ours;
static bool added;
/* The process that requested it: a hibernation by another one must not lose those pages. */
static struct pid *owner;

DEFINE_STATIC_CALL_NULL(dormouse_lookup, kallsyms_lookup_name);

static int __init find_regions(void)
{
	/* Never armed: it only looks up the name. */
	struct kprobe probe = {
		.symbol_name = "kallsyms_lookup_name",
		.flags = KPROBE_FLAG_DISABLED,
	};
	int error = register_kprobe(&probe);

	if (error) {
		pr_err("this kernel lacks kallsyms_lookup_name (error %d): not loaded\n", error);
		return error == -EINVAL ? -ENOENT : error;
	}
	unregister_kprobe(&probe);
	/* A direct call: an indirect one faults on CPUs with IBT. */
	static_call_update(dormouse_lookup, (void *)probe.addr);
	regions = (struct list_head *)static_call(dormouse_lookup)(list_symbol);
	if (!regions) {
		pr_err("this kernel lacks %s (no hibernation, or no CONFIG_KALLSYMS_ALL): not loaded\n",
		       list_symbol);
		return -ENOENT;
	}
	return 0;
}

/* Whether it is a list of regions as above: both links agree, each has pages. */
static bool __init regions_make_sense(void)
{
	const struct list_head *at = regions;
	const struct nosave_region *region;
	unsigned int count;

	for (count = 0; count < MAX_REGIONS; count++) {
		struct list_head *next = READ_ONCE(at->next);

		if (next == regions)
			return next->prev == at;
		/* All others were allocated at boot. */
		if (!virt_addr_valid(next) || READ_ONCE(next->prev) != at)
			return false;
		region = list_entry(next, struct nosave_region, list);
		if (region->start_pfn >= region->end_pfn)
			return false;
		at = next;
	}
	return false;
}

static void drop(void)
{
	if (!added)
		return;
	list_del(&ours.list);
	added = false;
	put_pid(owner);
	owner = NULL;
	pr_info("no range is kept out of snapshots any more\n");
}

static int add(u64 base, u64 bytes)
{
	u64 end;

	if (!bytes || !PAGE_ALIGNED(base) || !PAGE_ALIGNED(bytes) ||
	    check_add_overflow(base, bytes, &end) || end >> boot_cpu_data.x86_phys_bits)
		return -EINVAL;
	drop();
	ours.start_pfn = PHYS_PFN(base);
	ours.end_pfn = PHYS_PFN(end);
	list_add_tail(&ours.list, regions);
	owner = get_pid(task_tgid(current));
	added = true;
	pr_info("[mem 0x%llx-0x%llx] is kept out of snapshots\n", base, end - 1);
	return 0;
}

static int nosave_set(const char *text, const struct kernel_param *parameter)
{
	unsigned int flags;
	u64 base, bytes;
	int error = 0;
	char rest;

	if (!regions)
		return -EBUSY;		/* on insmod's line: nothing is known yet */
	flags = lock_system_sleep();
	if (sysfs_streq(text, "none"))
		drop();
	else if (sscanf(text, "%llx %llx%1[^\n]", &base, &bytes, &rest) == 2)
		error = add(base, bytes);
	else
		error = -EINVAL;
	unlock_system_sleep(flags);
	return error;
}

static int nosave_get(char *buffer, const struct kernel_param *parameter)
{
	unsigned int flags = lock_system_sleep();
	int bytes;

	if (added)
		bytes = sysfs_emit(buffer, "%#llx %#llx\n", PFN_PHYS((u64)ours.start_pfn),
				   PFN_PHYS((u64)(ours.end_pfn - ours.start_pfn)));
	else
		bytes = sysfs_emit(buffer, "none\n");
	unlock_system_sleep(flags);
	return bytes;
}

static const struct kernel_param_ops nosave_ops = {
	.set = nosave_set,
	.get = nosave_get,
};
module_param_cb(nosave, &nosave_ops, NULL, 0600);
MODULE_PARM_DESC(nosave, "range that no snapshot holds: BASE BYTES in hexadecimal, or none");

/*
 * A command that died left its range behind, and now somebody else hibernates: those pages
 * must be in the image. The notifier runs before any page is looked at, with the lock held.
 */
static int prepare(struct notifier_block *block, unsigned long event, void *unused)
{
	if (event == PM_HIBERNATION_PREPARE && added && owner != task_tgid(current)) {
		pr_warn("another program hibernates: the range is dropped\n");
		drop();
	}
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = prepare };

static int __init dormouse_snapshot_init(void)
{
	unsigned int flags;
	bool sane;
	int error = find_regions();

	if (error)
		return error;
	flags = lock_system_sleep();
	sane = regions_make_sense();
	unlock_system_sleep(flags);
	if (!sane) {
		regions = NULL;
		pr_err("%s is no list of regions in this kernel: not loaded\n", list_symbol);
		return -EINVAL;
	}
	return register_pm_notifier(&notifier);
}
module_init(dormouse_snapshot_init);

static void __exit dormouse_snapshot_exit(void)
{
	unsigned int flags;

	unregister_pm_notifier(&notifier);
	flags = lock_system_sleep();
	drop();
	unlock_system_sleep(flags);
}
module_exit(dormouse_snapshot_exit);

MODULE_DESCRIPTION("Keeps persistent memory out of the kernel's snapshot");
MODULE_LICENSE("GPL");
