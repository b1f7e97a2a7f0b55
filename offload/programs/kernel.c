// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of what is faked of the kernel that needs its structures: pages, work, timers, names.
 * There is one thread; what another one would do is done where a thread would wait (settle() in fakes.h).
 *
 * Compiled with the kernel's headers and options.
 */
#include <linux/bug.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/notifier.h>
#include <linux/random.h>
#include <linux/sched/debug.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/stacktrace.h>
#include <linux/stringhash.h>
#include <linux/timekeeping.h>
#include <linux/timer.h>
#include <linux/trace_events.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <trace/events/mmflags.h>

#include "fakes.h"

/* Of a task only what is set below. */
struct task_struct init_task;
#ifdef CONFIG_OFFLOAD_M3
struct task_struct *__current;
#endif
struct cpumask __cpu_possible_mask = { CPU_BITS_CPU0 }, __cpu_online_mask = { CPU_BITS_CPU0 };
struct cpumask __cpu_present_mask = { CPU_BITS_CPU0 }, __cpu_active_mask = { CPU_BITS_CPU0 };
u32 complaints;
static LIST_HEAD(works);
static HLIST_HEAD(timers);

/* --- pages: those of the heap, whose blocks of whole pages are aligned to their size --- */

KEPT static struct page pages[HEAP_BYTES >> PAGE_SHIFT];
struct page *mem_map;
unsigned long __pv_phys_pfn_offset;

void kernel_begin(void)
{
	INIT_LIST_HEAD(&works);
	INIT_HLIST_HEAD(&timers);
	__pv_phys_pfn_offset = __pa(PAGE_OFFSET) >> PAGE_SHIFT;
	mem_map = pages - (((unsigned long)heap - PAGE_OFFSET) >> PAGE_SHIFT);
	refcount_set(&init_task.usage, 2);
#ifdef CONFIG_OFFLOAD_M3
	__current = &init_task;
#else
	__asm__ volatile ("mcr p15, 0, %0, c13, c0, 3" : : "r" (&init_task));
#endif
}

struct page *__alloc_pages_noprof(gfp_t gfp, unsigned int order, int node, nodemask_t *mask)
{
	void *block = allocate(PAGE_SIZE << order, gfp);
	struct page *page = block ? virt_to_page(block) : NULL;

	if (!page)
		return NULL;
	memset(page, 0, sizeof(*page) << order);
	init_page_count(page);
	return page;
}

unsigned long get_free_pages_noprof(gfp_t gfp, unsigned int order)
{
	struct page *page = __alloc_pages_noprof(gfp, order, 0, NULL);

	return page ? (unsigned long)page_address(page) : 0;
}

void __free_pages(struct page *page, unsigned int order)
{
	if (put_page_testzero(page))
		release(page_address(page));
}

void free_pages(unsigned long address, unsigned int order)
{
	if (address)
		__free_pages(virt_to_page((void *)address), order);
}

/* A block is released as a whole, with the last reference to its first page. */
void __folio_put(struct folio *folio)
{
	release(folio_address(folio));
}

unsigned long nr_free_buffer_pages(void)
{
	return ARRAY_SIZE(pages);
}

/* --- work, timers --- */

struct workqueue_struct *system_percpu_wq, *system_wq, *system_unbound_wq;

bool queue_work_on(int cpu, struct workqueue_struct *queue, struct work_struct *work)
{
	if (test_and_set_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(work)))
		return false;
	list_add_tail(&work->entry, &works);
	return true;
}

bool cancel_work_sync(struct work_struct *work)
{
	if (!test_and_clear_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(work)))
		return false;
	list_del_init(&work->entry);
	return true;
}

void init_timer_key(struct timer_list *timer, void (*function)(struct timer_list *), unsigned int flags,
		    const char *name, struct lock_class_key *key)
{
	timer->entry.pprev = NULL;
	timer->function = function;
	timer->flags = flags;
}

int timer_delete(struct timer_list *timer)
{
	bool pending = timer_pending(timer);

	if (pending)
		hlist_del_init(&timer->entry);
	return pending;
}

int mod_timer(struct timer_list *timer, unsigned long expires)
{
	int pending = timer_delete(timer);

	timer->expires = expires;
	hlist_add_head(&timer->entry, &timers);
	return pending;
}

void settle(void)
{
	struct hlist_node *next;
	struct timer_list *timer;

	hlist_for_each_entry_safe(timer, next, &timers, entry)
		if (time_after_eq(jiffies, timer->expires)) {
			hlist_del_init(&timer->entry);
			timer->function(timer);
		}
	do {
		while (!list_empty(&works)) {
			struct work_struct *work = list_first_entry(&works, struct work_struct, entry);

			list_del_init(&work->entry);
			clear_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(work));
			work->func(work);
		}
		rcu_barrier();
	} while (!list_empty(&works));
}

void msleep(unsigned int ms)
{
	pass_time(ms);
	settle();
}

/* --- objects have no files --- */

struct kobject *kernel_kobj;

int sysfs_create_dir_ns(struct kobject *object, const void *namespace) { return 0; }
void sysfs_remove_dir(struct kobject *object) { }
int sysfs_create_groups(struct kobject *object, const struct attribute_group **groups) { return 0; }
void sysfs_remove_groups(struct kobject *object, const struct attribute_group **groups) { }
void kernfs_get(struct kernfs_node *node) { }
void kernfs_put(struct kernfs_node *node) { }
int kobject_uevent(struct kobject *object, enum kobject_action action) { return 0; }

/* --- time, names, processors --- */

void ktime_get_ts64(struct timespec64 *time)
{
	*time = ns_to_timespec64(ktime_get());
}

/* As fs/namei.c does it byte by byte. */
unsigned int full_name_hash(const void *salt, const char *name, unsigned int bytes)
{
	unsigned long hash = init_name_hash(salt);

	while (bytes--)
		hash = partial_name_hash((unsigned char)*name++, hash);
	return end_name_hash(hash);
}

u64 hashlen_string(const void *salt, const char *name)
{
	unsigned long hash = init_name_hash(salt), bytes;

	for (bytes = 0; name[bytes]; bytes++)
		hash = partial_name_hash((unsigned char)name[bytes], hash);
	return hashlen_create(end_name_hash(hash), bytes);
}

/* As fs/libfs.c. */
ssize_t memory_read_from_buffer(void *to, size_t bytes, loff_t *position, const void *from, size_t available)
{
	loff_t at = *position;

	if (at < 0)
		return -EINVAL;
	if (at >= available)
		return 0;
	bytes = min_t(size_t, bytes, available - at);
	memcpy(to, from + at, bytes);
	*position = at + bytes;
	return bytes;
}

const struct trace_print_flags pageflag_names[] = { __def_pageflag_names, { 0, NULL } };
const struct trace_print_flags gfpflag_names[] = { __def_gfpflag_names, { 0, NULL } };
const struct trace_print_flags vmaflag_names[] = { __def_vmaflag_names, { 0, NULL } };

int __cpuhp_setup_state(enum cpuhp_state state, const char *name, bool invoke, int (*startup)(unsigned int cpu),
			int (*teardown)(unsigned int cpu), bool several)
{
	return 0;
}

int execute_with_initialized_rng(struct notifier_block *block)
{
	return block->notifier_call(block, 0, NULL);
}

/* --- the log, which is shown natively where build.sh's LOG asks for it --- */

#if defined(PROGRAM_LOG) && defined(CONFIG_OFFLOAD_M3)
static void show(const char *format, va_list arguments)
{
	static char line[512];

	vscnprintf(line, sizeof(line), format, arguments);
	/* Semihosting: writes a text. */
	__asm__ volatile ("mov r0, #4\n\tmov r1, %0\n\tbkpt 0xab" : : "r"(line) : "r0", "r1", "memory");
}
#else
static void show(const char *format, va_list arguments) { }
#endif

/* What a module returns is no verdict, as some return an error to be unloaded; what they log is. */
static void judge(const char *format, va_list arguments)
{
	static const char * const words[] = { "fail", "FAIL", "ERROR", "BUG" };

	if (strstr(format, "%u of %u tests passed")) {
		if (va_arg(arguments, unsigned int) != va_arg(arguments, unsigned int))
			complaints++;
	} else if (!strstr(format, "passed")) {
		for (size_t i = 0; i < ARRAY_SIZE(words); i++)
			complaints += !!strstr(format, words[i]);
	}
}

int _printk(const char *format, ...)
{
	va_list arguments, again;

	va_start(arguments, format);
	va_copy(again, arguments);
	show(format, again);
	va_end(again);
	judge(format, arguments);
	va_end(arguments);
	return 0;
}

void warn_slowpath_fmt(const char *file, int line, unsigned int taint, const char *format, ...)
{
	warnings++;
	printk("warning at %s:%d\n", file, line);
}

/* --- where a warning comes from: the log that it is for has no reader --- */

void show_stack(struct task_struct *task, unsigned long *stack, const char *level) { }
void dump_stack(void) { }
void dump_stack_lvl(const char *level) { }

unsigned int stack_trace_save(unsigned long *entries, unsigned int max, unsigned int skip)
{
	if (max)
		entries[0] = (unsigned long)__builtin_return_address(0);
	return max ? 1 : 0;
}

unsigned int filter_irq_stacks(unsigned long *entries, unsigned int count)
{
	return count;
}

void stack_trace_print(const unsigned long *entries, unsigned int count, int spaces) { }

int stack_trace_snprint(char *buffer, size_t bytes, const unsigned long *entries, unsigned int count, int spaces)
{
	if (bytes)
		*buffer = 0;
	return 0;
}

void __printk_deferred_enter(void) { }
void __printk_deferred_exit(void) { }

/* Every grace period is over at once, for whoever asks. */
unsigned long get_state_synchronize_rcu(void) { return 0; }
bool poll_state_synchronize_rcu(unsigned long state) { return true; }
