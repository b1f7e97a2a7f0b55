// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dormouse on stock firmware: keeps a range of physical memory out of the kernel's snapshot.
 *
 * The pages of programs lie in persistent memory when the machine sleeps, and stay there.
 * The kernel knows ranges that no snapshot may hold (nosave regions), but lets nobody add
 * one after boot. This module adds one for as long as it is asked to:
 *
 *   /sys/module/dormouse_snapshot/parameters/nosave   "BASE BYTES", or "none"
 *   /dev/dormouse_range                               that range, to read its digests from
 *
 * The regions that the kernel knows are reserved memory, and it relies on that: a free page
 * of a region would be marked both as free and as not to be saved, which is how it marks
 * what it has allocated for the snapshot, and be freed a second time afterwards. So the
 * kernel must not mark free pages in zones that lie in the range; a kprobe skips that.
 *
 * It is mechanism only, and a module of its own: it needs no firmware. Where the list does
 * not look as it must, it does not load, and hibernation is unchanged.
 */
#define pr_fmt(fmt) "dormouse_snapshot: " fmt

#include <linux/kallsyms.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/memory_hotplug.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/notifier.h>
#include <linux/overflow.h>
#include <linux/pfn.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/static_call.h>
#include <linux/suspend.h>
#include <linux/uaccess.h>

#include <asm/smp.h>

#include "cxl_guard.h"

/* As kernel/power/snapshot.c has it; not in any header. */
struct nosave_region {
	struct list_head list;
	unsigned long start_pfn;
	unsigned long end_pfn;
};

/* More than any firmware's map has holes. */
#define MAX_REGIONS 4096
/* mark_free_pages(zone); compilers keep its check for an empty zone in its callers. */
static const char *const mark_free_names[] = { "mark_free_pages", "mark_free_pages.part.0" };
static const char *mark_free;

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
	const char *name;
	unsigned int i;

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
	for (i = 0; i < ARRAY_SIZE(mark_free_names) && !mark_free; i++) {
		name = mark_free_names[i];
		if (static_call(dormouse_lookup)(name))
			mark_free = name;
	}
	if (!mark_free) {
		pr_err("this kernel lacks %s: not loaded\n", mark_free_names[0]);
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

/* Whether it is what it must be, whatever a compiler did to the function's arguments. */
static bool is_zone(const struct zone *zone)
{
	int node;

	for_each_online_node(node) {
		const struct zone *first = NODE_DATA(node)->node_zones;

		if (zone >= first && zone < first + MAX_NR_ZONES)
			return true;
	}
	return false;
}

/* Returns to its caller, which is the caller of what it stands for. */
static noinline void nothing(void)
{
	barrier();
}

/* Instead of mark_free_pages(zone): returns at once for a zone in the range. */
static int skip_marking(struct kprobe *probe, struct pt_regs *regs)
{
	const struct zone *zone = (const struct zone *)regs->di;

	if (!is_zone(zone) || zone->zone_start_pfn < ours.start_pfn ||
	    zone_end_pfn(zone) > ours.end_pfn)
		return 0;
	regs->ip = (unsigned long)nothing;
	return 1;
}

/* There only so that the probe is not made a jump, which cannot change where it returns to. */
static void after_marking(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe marking;

static int arm(void)
{
	/* A kprobe that was registered before cannot be used again as it is. */
	memset(&marking, 0, sizeof(marking));
	marking.symbol_name = mark_free;
	marking.pre_handler = skip_marking;
	marking.post_handler = after_marking;
	return register_kprobe(&marking);
}

static void drop(void)
{
	if (!added)
		return;
	unregister_kprobe(&marking);
	list_del(&ours.list);
	added = false;
	put_pid(owner);
	owner = NULL;
	pr_info("no range is kept out of snapshots any more\n");
}

static int add(u64 base, u64 bytes)
{
	int error;
	u64 end;

	if (!bytes || !PAGE_ALIGNED(base) || !PAGE_ALIGNED(bytes) ||
	    check_add_overflow(base, bytes, &end) || end >> boot_cpu_data.x86_phys_bits)
		return -EINVAL;
	drop();
	ours.start_pfn = PHYS_PFN(base);
	ours.end_pfn = PHYS_PFN(end);
	error = arm();
	if (error) {
		pr_err("cannot hook %s (error %d)\n", mark_free, error);
		return error;
	}
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
 * User space wants digests of pages that no process of its own maps. One page a call, never
 * more than the range: no /dev/mem. Runs while all else stands still, so without the lock.
 */
static ssize_t range_read(struct file *file, char __user *buffer, size_t count, loff_t *offset)
{
	char *page = file->private_data;
	struct page *from;
	unsigned long pfn;
	size_t in_page;

	if (*offset < 0)
		return -EINVAL;
	if (!added || PHYS_PFN(*offset) >= ours.end_pfn - ours.start_pfn)
		return 0;
	pfn = ours.start_pfn + PHYS_PFN(*offset);
	from = pfn_to_online_page(pfn);
	if (!from || PageHWPoison(from) || PageOffline(from))
		return -EIO;
	if (copy_from_kernel_nofault(page, page_address(from), PAGE_SIZE))
		return -EIO;
	in_page = offset_in_page(*offset);
	count = min(count, PAGE_SIZE - in_page);
	if (copy_to_user(buffer, page + in_page, count))
		return -EFAULT;
	*offset += count;
	return count;
}

/*
 * What programs wrote last may be in the caches of any processor. Switching off writes back
 * those of one, so a sleep does this before it calls its image complete.
 */
static int range_write_back(struct file *file, loff_t from, loff_t to, int datasync)
{
	/* Newer kernels return nothing, older ones 0. */
	wbinvd_on_all_cpus();
	return 0;
}

static int range_open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	file->private_data = (void *)get_zeroed_page(GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static int range_release(struct inode *inode, struct file *file)
{
	free_page((unsigned long)file->private_data);
	return 0;
}

static const struct file_operations range_operations = {
	.owner = THIS_MODULE,
	.open = range_open,
	.release = range_release,
	.read = range_read,
	.fsync = range_write_back,
	.llseek = default_llseek,
};

static struct miscdevice range_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "dormouse_range",
	.fops = &range_operations,
	.mode = 0400,
};

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
	error = misc_register(&range_device);
	if (error)
		return error;
	error = register_pm_notifier(&notifier);
	if (error)
		misc_deregister(&range_device);
	else
		dormouse_cxl_guard_init();
	return error;
}
module_init(dormouse_snapshot_init);

static void __exit dormouse_snapshot_exit(void)
{
	unsigned int flags;

	dormouse_cxl_guard_exit();
	misc_deregister(&range_device);
	unregister_pm_notifier(&notifier);
	flags = lock_system_sleep();
	drop();
	unlock_system_sleep(flags);
}
module_exit(dormouse_snapshot_exit);

MODULE_DESCRIPTION("Keeps persistent memory out of the kernel's snapshot");
MODULE_LICENSE("GPL");
