// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reaches the one function that the kernel does not export, and /sys/power.
 *
 * acpi_os_set_prepare_sleep() is the only hook that runs after the CPU's state is
 * saved and before SLP_EN is written, which is where the set of pages in use stops
 * changing. A kprobe that is never armed resolves the name. The call goes through a
 * static call, so it is a direct one: indirect calls to functions whose address the
 * kernel itself never takes fault on CPUs with IBT.
 */
#define pr_fmt(fmt) "dormouse: " fmt

#include <linux/kobject.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/static_call.h>

#include "compat.h"
#include "dormouse.h"

#ifdef MODULE

#define DORMOUSE_HOOK "acpi_os_set_prepare_sleep"

static char *hook_symbol = DORMOUSE_HOOK;
module_param(hook_symbol, charp, 0444);
MODULE_PARM_DESC(hook_symbol,
		 "for tests: look for this name instead of " DORMOUSE_HOOK ", and do not load");

DEFINE_STATIC_CALL_NULL(dormouse_set_hook, acpi_os_set_prepare_sleep);

int dormouse_symbols_find(void)
{
	/* Never armed: it only looks up the name. */
	struct kprobe probe = { .symbol_name = hook_symbol, .flags = KPROBE_FLAG_DISABLED };
	int error = register_kprobe(&probe);

	if (error) {
		pr_err("this kernel lacks %s (error %d): not loaded\n", hook_symbol, error);
		return error == -EINVAL ? -ENOENT : error;
	}
	unregister_kprobe(&probe);

	/* Never call a function of another type. */
	if (strcmp(hook_symbol, DORMOUSE_HOOK)) {
		pr_err("hook_symbol is for tests: %s exists, not loaded\n", hook_symbol);
		return -EINVAL;
	}

	static_call_update(dormouse_set_hook, (void *)probe.addr);
	return 0;
}

void dormouse_set_prepare_sleep(int (*prepare)(u8 state, u32 pm1a, u32 pm1b))
{
	static_call_cond(dormouse_set_hook)(prepare);
}

/* power_kobj is not exported; its directory is the sibling of /sys/kernel. */
struct kobject *dormouse_power_kobject(void)
{
	struct kernfs_node *root = dormouse_kernfs_parent(kernel_kobj->sd);
	struct kernfs_node *node = root ? kernfs_find_and_get(root, "power") : NULL;
	struct kobject *power = NULL;

	if (!node)
		return NULL;
	power = node->priv;
	if (power && power->sd == node && !strcmp(kobject_name(power), "power"))
		kobject_get(power);
	else
		power = NULL;
	kernfs_put(node);
	return power;
}

#else /* built in: both are within reach */

int dormouse_symbols_find(void)
{
	return 0;
}

void dormouse_set_prepare_sleep(int (*prepare)(u8 state, u32 pm1a, u32 pm1b))
{
	acpi_os_set_prepare_sleep(prepare);
}

struct kobject *dormouse_power_kobject(void)
{
	return kobject_get(power_kobj);
}

#endif
