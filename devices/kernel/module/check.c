// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: whether the running kernel is one that the module
 * knows. All of it is looked at before anything is changed:
 *
 *  - its version is in the table, because its source was read;
 *  - each function that is called or replaced is there exactly once, and is declared as expected,
 *    by the kernel's own type information;
 *  - the code of each phase refers to the variables that the module reads and writes: the lists
 *    from which and to which it takes devices, the error that it leaves, the lock.
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/utsname.h>
#include <linux/version.h>

#include "host.h"
#include "types.h"

static char *expect = "";
module_param(expect, charp, 0444);
MODULE_PARM_DESC(expect,
		 "for tests: a declaration instead of the known one of that function; refused unless the kernel has it");

static char *release = "";
module_param(release, charp, 0444);
MODULE_PARM_DESC(release,
		 "for tests: another release of the kernel, such as 6.13.1; refused unless that is known, too");

/* Versions whose drivers/base/power/main.c this module was written for, and on which it has run. */
static const struct {
	u32 from;
	u32 below;
} version[] = {
	{ KERNEL_VERSION(6, 12, 0), KERNEL_VERSION(6, 13, 0) },
	{ KERNEL_VERSION(7, 2, 0), KERNEL_VERSION(7, 4, 0) },
};

#if KERNEL_VERSION(6, 17, 0) <= LINUX_VERSION_CODE
#define DOWN	"void"
#else
#define DOWN	"int"
#endif
#define DEVICE	"(struct device *, pm_message_t, bool)"

static const struct {
	const char *name;
	const char *declaration;
} functions[] = {
	{ "device_suspend", DOWN " device_suspend" DEVICE },
	{ "device_suspend_late", DOWN " device_suspend_late" DEVICE },
	{ "device_suspend_noirq", DOWN " device_suspend_noirq" DEVICE },
	{ "device_resume_noirq", "void device_resume_noirq" DEVICE },
	{ "device_resume_early", "void device_resume_early" DEVICE },
	{ "device_resume", "void device_resume" DEVICE },
	{ "dpm_suspend", "int dpm_suspend(pm_message_t)" },
	{ "dpm_suspend_late", "int dpm_suspend_late(pm_message_t)" },
	{ "dpm_resume_early", "void dpm_resume_early(pm_message_t)" },
	{ "dpm_resume", "void dpm_resume(pm_message_t)" },
	{ "device_pm_wait_for_dev",
	  "int device_pm_wait_for_dev(struct device *, struct device *)" },
	{ "device_links_read_lock", "int device_links_read_lock(void)" },
	{ "device_links_read_unlock", "void device_links_read_unlock(int)" },
	{ "dpm_save_failed_dev", "void dpm_save_failed_dev(const char *)" },
	{ "task_sched_runtime", "long long unsigned int task_sched_runtime(struct task_struct *)" },
	{ "complete_on_current_cpu", "void complete_on_current_cpu(struct completion *)" },
};

/* One of two names: the compiler may have put the one into the other. */
static const struct {
	const char *function;
	const char *or;
	const char *variable[4];
} reference[] = {
	{ "device_suspend", NULL, { "async_error" } },
	{ "device_suspend_late", NULL, { "async_error" } },
	{ "device_suspend_noirq", NULL, { "async_error" } },
	{ "device_resume_noirq", NULL, { "async_error" } },
	{ "device_resume_early", NULL, { "async_error" } },
	{ "device_resume", NULL, { "async_error" } },
	{ "dpm_suspend", NULL,
	  { "dpm_prepared_list", "dpm_suspended_list", "dpm_list_mtx", "async_error" } },
	{ "dpm_suspend_late", NULL,
	  { "dpm_suspended_list", "dpm_late_early_list", "dpm_list_mtx", "async_error" } },
	{ "dpm_noirq_suspend_devices", "dpm_suspend_noirq",
	  { "dpm_late_early_list", "dpm_noirq_list", "dpm_list_mtx", "async_error" } },
	{ "dpm_noirq_resume_devices", "dpm_resume_noirq",
	  { "dpm_noirq_list", "dpm_late_early_list", "dpm_list_mtx", "pm_transition" } },
	{ "dpm_resume_early", NULL,
	  { "dpm_late_early_list", "dpm_suspended_list", "dpm_list_mtx", "pm_transition" } },
	{ "dpm_resume", NULL,
	  { "dpm_suspended_list", "dpm_prepared_list", "dpm_list_mtx", "pm_transition" } },
	{ "device_pm_wait_for_dev", NULL, { "async_error", "pm_async_enabled" } },
};

static bool is_known(u32 code)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(version); i++)
		if (version[i].from <= code && code < version[i].below)
			return true;
	return false;
}

static int check_version(void)
{
	const char *name = utsname()->release;
	u32 code = LINUX_VERSION_CODE;
	u32 major, minor;

	if (is_known(code) && *release) {
		name = release;
		code = 0;
		if (sscanf(release, "%u.%u", &major, &minor) == 2)
			code = KERNEL_VERSION(major, minor, 0);
	}
	if (is_known(code))
		return 0;
	pr_err("not loaded: Linux %s is not among the versions that this module knows\n", name);
	return -EOPNOTSUPP;
}

/* The declaration that a test wants of this function instead of the known one. */
static const char *expected(int i)
{
	const char *name = strstr(expect, functions[i].name);

	if (name && name[strlen(functions[i].name)] == '(')
		return expect;
	return functions[i].declaration;
}

static int check_declarations(void)
{
	struct dpm_types types;
	int error = dpm_types_open(&types);
	int i;

	if (error)
		return error;
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		struct dpm_text found;

		if (!dpm_find(functions[i].name)) {
			error = -ENOENT;
		} else if (!dpm_types_declare(&types, functions[i].name, &found)) {
			pr_err("not loaded: the kernel's types do not have %s\n",
			       functions[i].name);
			error = -ENOENT;
		} else if (strcmp(found.text, expected(i))) {
			pr_err("not loaded: this kernel has \"%s\", expected \"%s\"\n",
			       found.text, expected(i));
			error = -EOPNOTSUPP;
		}
	}
	dpm_types_close(&types);
	return error;
}

/* Whether an operand of an instruction in the code may be an address from @from to @to. */
static bool refers(const u8 *code, unsigned long bytes, unsigned long from, unsigned long to)
{
	/* An immediate operand may follow the displacement. */
	static const u8 behind[] = { 0, 1, 2, 4 };
	unsigned long at;
	int i;

	for (at = 0; at + sizeof(s32) <= bytes; at++) {
		s32 operand;
		unsigned long next = (unsigned long)code + at + sizeof(operand);

		memcpy(&operand, code + at, sizeof(operand));
		if ((unsigned long)(long)operand - from < to - from)
			return true;
		for (i = 0; i < ARRAY_SIZE(behind); i++)
			if (next + behind[i] + operand - from < to - from)
				return true;
	}
	return false;
}

static int check_references(void)
{
	int i, j;

	for (i = 0; i < ARRAY_SIZE(reference); i++) {
		unsigned long code = dpm_find_optional(reference[i].function);
		unsigned long bytes;

		if (!code && reference[i].or)
			code = dpm_find(reference[i].or);
		bytes = code ? dpm_find_size(code) : 0;
		if (!bytes) {
			pr_err("not loaded: this kernel does not have the code of %s\n",
			       reference[i].function);
			return -ENOENT;
		}
		for (j = 0; j < ARRAY_SIZE(reference[i].variable); j++) {
			const char *name = reference[i].variable[j];
			unsigned long address = name ? dpm_find(name) : 0;

			if (!name)
				break;
			if (!address)
				return -ENOENT;
			if (refers((const u8 *)code, bytes, address, address + 16))
				continue;
			pr_err("not loaded: %s of this kernel does not use %s\n",
			       reference[i].function, name);
			return -EOPNOTSUPP;
		}
	}
	return 0;
}

int dpm_check_kernel(void)
{
	return check_version() ?: check_declarations() ?: check_references();
}
