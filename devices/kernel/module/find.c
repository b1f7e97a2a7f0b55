// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: finds what the kernel does not export.
 *
 * A kprobe that is never armed resolves the first name, kallsyms all others. Functions are called
 * through static calls, so the calls are direct: the kernel's local functions do not begin with an
 * instruction that an indirect call may reach on processors with IBT.
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/kallsyms.h>
#include <linux/kernfs.h>
#include <linux/kprobes.h>
#include <linux/version.h>

#include "graph_host.h"
#include "host.h"

struct dpm_host dpm_host;

/* Since Linux 6.17 the three on the way down return nothing. */
#if KERNEL_VERSION(6, 17, 0) <= LINUX_VERSION_CODE
typedef void down_t(struct device *dev, pm_message_t state, bool async);
#else
typedef int down_t(struct device *dev, pm_message_t state, bool async);
#endif
typedef void up_t(struct device *dev, pm_message_t state, bool async);
typedef unsigned long lookup_name_t(const char *name);
typedef int each_match_t(int (*each)(void *count, unsigned long address), const char *name,
			 void *count);
typedef int lookup_size_t(unsigned long address, unsigned long *size, unsigned long *offset);
typedef int links_lock_t(void);
typedef void links_unlock_t(int index);
typedef unsigned long long runtime_t(struct task_struct *task);
typedef void complete_t(struct completion *completion);
typedef void save_failed_t(const char *name);

DEFINE_STATIC_CALL_NULL(host_suspend, down_t);
DEFINE_STATIC_CALL_NULL(host_suspend_late, down_t);
DEFINE_STATIC_CALL_NULL(host_suspend_noirq, down_t);
DEFINE_STATIC_CALL_NULL(host_resume_noirq, up_t);
DEFINE_STATIC_CALL_NULL(host_resume_early, up_t);
DEFINE_STATIC_CALL_NULL(host_resume, up_t);
DEFINE_STATIC_CALL_NULL(host_lookup_name, lookup_name_t);
DEFINE_STATIC_CALL_NULL(host_each_match, each_match_t);
DEFINE_STATIC_CALL_NULL(host_lookup_size, lookup_size_t);
DEFINE_STATIC_CALL_NULL(host_links_lock, links_lock_t);
DEFINE_STATIC_CALL_NULL(host_links_unlock, links_unlock_t);
DEFINE_STATIC_CALL_NULL(host_runtime, runtime_t);
DEFINE_STATIC_CALL_NULL(host_complete_here, complete_t);
DEFINE_STATIC_CALL_NULL(host_save_failed, save_failed_t);

#define HOST_STEP(step)						\
void dpm_host_##step(struct device *dev, pm_message_t state)	\
{								\
	static_call(host_##step)(dev, state, false);		\
}

HOST_STEP(suspend)
HOST_STEP(suspend_late)
HOST_STEP(suspend_noirq)
HOST_STEP(resume_noirq)
HOST_STEP(resume_early)
HOST_STEP(resume)

int dpm_host_links_read_lock(void)
{
	return static_call(host_links_lock)();
}

void dpm_host_links_read_unlock(int index)
{
	static_call(host_links_unlock)(index);
}

unsigned long long dpm_host_task_runtime(struct task_struct *task)
{
	return static_call(host_runtime)(task);
}

void dpm_host_complete_here(struct completion *completion)
{
	static_call(host_complete_here)(completion);
}

void dpm_host_save_failed_dev(const char *name)
{
	static_call(host_save_failed)(name);
}

/* The first two names; all others come from them. */
int dpm_find_begin(void)
{
	struct kprobe probe = {
		.symbol_name = "kallsyms_lookup_name",
		.flags = KPROBE_FLAG_DISABLED,
	};
	unsigned long each_match, lookup_size;
	int error = register_kprobe(&probe);

	if (error) {
		pr_err("not loaded: this kernel lacks %s (error %d)\n", probe.symbol_name, error);
		return error == -EINVAL ? -ENOENT : error;
	}
	unregister_kprobe(&probe);
	static_call_update(host_lookup_name, (lookup_name_t *)probe.addr);

	each_match = static_call(host_lookup_name)("kallsyms_on_each_match_symbol");
	lookup_size = static_call(host_lookup_name)("kallsyms_lookup_size_offset");
	if (!each_match || !lookup_size) {
		pr_err("not loaded: this kernel lacks kallsyms_on_each_match_symbol or kallsyms_lookup_size_offset\n");
		return -ENOENT;
	}
	static_call_update(host_each_match, (each_match_t *)each_match);
	static_call_update(host_lookup_size, (lookup_size_t *)lookup_size);
	return 0;
}

static int count_match(void *count, unsigned long address)
{
	(*(u32 *)count)++;
	return 0;
}

unsigned long dpm_find_optional(const char *name)
{
	u32 count = 0;

	/* Of two with one name, no one knows which is meant. */
	static_call(host_each_match)(count_match, name, &count);
	return count == 1 ? static_call(host_lookup_name)(name) : 0;
}

unsigned long dpm_find(const char *name)
{
	unsigned long address = dpm_find_optional(name);

	if (!address)
		pr_err("not loaded: this kernel does not have %s exactly once\n", name);
	return address;
}

unsigned long dpm_find_size(unsigned long address)
{
	unsigned long size = 0, offset = 0;

	if (!static_call(host_lookup_size)(address, &size, &offset) || offset)
		return 0;
	return size;
}

static int find_variables(void)
{
	const struct {
		const char *name;
		void **to;
	} variable[] = {
		{ "dpm_list", (void **)&dpm_host.list },
		{ "dpm_prepared_list", (void **)&dpm_host.prepared },
		{ "dpm_suspended_list", (void **)&dpm_host.suspended },
		{ "dpm_late_early_list", (void **)&dpm_host.late_early },
		{ "dpm_noirq_list", (void **)&dpm_host.noirq },
		{ "dpm_list_mtx", (void **)&dpm_host.list_mutex },
		{ "pm_transition", (void **)&dpm_host.transition },
		{ "async_error", (void **)&dpm_host.async_error },
		{ "pm_async_enabled", (void **)&dpm_host.pm_async },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(variable); i++) {
		*variable[i].to = (void *)dpm_find(variable[i].name);
		if (!*variable[i].to)
			return -ENOENT;
	}
	dpm_host.pm_trace = (int *)dpm_find_optional("pm_trace_enabled");
	return 0;
}

#define FIND_FUNCTION(call, type, name) ({					\
	unsigned long address = dpm_find(name);					\
										\
	if (address)								\
		static_call_update(call, (type *)address);			\
	address;								\
})

static int find_functions(void)
{
	if (!FIND_FUNCTION(host_suspend, down_t, "device_suspend") ||
	    !FIND_FUNCTION(host_suspend_late, down_t, "device_suspend_late") ||
	    !FIND_FUNCTION(host_suspend_noirq, down_t, "device_suspend_noirq") ||
	    !FIND_FUNCTION(host_resume_noirq, up_t, "device_resume_noirq") ||
	    !FIND_FUNCTION(host_resume_early, up_t, "device_resume_early") ||
	    !FIND_FUNCTION(host_resume, up_t, "device_resume") ||
	    !FIND_FUNCTION(host_links_lock, links_lock_t, "device_links_read_lock") ||
	    !FIND_FUNCTION(host_links_unlock, links_unlock_t, "device_links_read_unlock") ||
	    !FIND_FUNCTION(host_runtime, runtime_t, "task_sched_runtime") ||
	    !FIND_FUNCTION(host_complete_here, complete_t, "complete_on_current_cpu") ||
	    !FIND_FUNCTION(host_save_failed, save_failed_t, "dpm_save_failed_dev"))
		return -ENOENT;
	return 0;
}

int dpm_find_all(void)
{
	return find_variables() ?: find_functions();
}

/* power_kobj is not exported. */
struct kobject *dpm_find_power(void)
{
	struct kobject **power = (struct kobject **)dpm_find("power_kobj");
	struct kernfs_node *own;

	if (!power || !*power)
		return ERR_PTR(-ENOENT);
	own = kernfs_find_and_get((*power)->sd, "pm_graph");
	if (own) {
		kernfs_put(own);
		pr_err("not loaded: this kernel has graph order built in: /sys/power/pm_graph\n");
		return ERR_PTR(-EEXIST);
	}
	return *power;
}
