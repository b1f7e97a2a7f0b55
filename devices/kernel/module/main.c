// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module for stock kernels: loading and leaving.
 *
 * Everything that can fail comes before the first change, and everything that was done is taken
 * back if a later step fails. It leaves only when the livepatch has been disabled, which switches
 * the stock order on:
 *
 *	echo 0 > /sys/kernel/livepatch/dormouse_dpm/enabled
 *	rmmod dormouse_dpm
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/module.h>
#include <linux/rcupdate.h>

#include "graph_internal.h"
#include "host.h"

#if !IS_ENABLED(CONFIG_LIVEPATCH) || !IS_ENABLED(CONFIG_KALLSYMS_ALL) || \
	!IS_ENABLED(CONFIG_KPROBES) || !IS_ENABLED(CONFIG_PM_SLEEP) || \
	!IS_ENABLED(CONFIG_TRACEPOINTS)
#error "needs CONFIG_LIVEPATCH, KALLSYMS_ALL, KPROBES, PM_SLEEP and TRACEPOINTS"
#endif

static struct kobject *power;

static int __init dormouse_dpm_init(void)
{
	int error = dpm_find_begin() ?: dpm_check_kernel() ?: dpm_find_all() ?: dpm_measure_find();

	if (error)
		return error;
	power = dpm_find_power();
	if (IS_ERR(power))
		return PTR_ERR(power);
	error = dpm_phases_add();
	if (error)
		return error;
	error = dpm_graph_sysfs_add(power);
	if (error) {
		pr_err("not loaded: cannot add /sys/power/pm_graph (error %d)\n", error);
		goto remove_phases;
	}
	dpm_graph_debugfs_add();
	error = dpm_patch_enable();
	if (error)
		goto remove_files;
	pr_info("loaded; /sys/power/pm_graph switches graph order on\n");
	return 0;

remove_files:
	dpm_graph_debugfs_remove();
	dpm_graph_sysfs_remove(power);
remove_phases:
	dpm_phases_remove();
	return error;
}
module_init(dormouse_dpm_init);

/*
 * The program that removes the module is frozen during a transition, so none is under way; and a
 * callback that was given up holds a reference until it comes back.
 */
static void __exit dormouse_dpm_exit(void)
{
	dpm_graph_sysfs_remove(power);
	dpm_graph_switch_off();
	dpm_phases_remove();
	dpm_graph_stop_workers();
	dpm_graph_debugfs_remove();
	dpm_table_free();
	/* Entries are freed after all that may still read them. */
	rcu_barrier();
	pr_info("unloaded\n");
}
module_exit(dormouse_dpm_exit);

MODULE_DESCRIPTION("Graph-ordered suspend and resume of devices for stock kernels");
MODULE_LICENSE("GPL");
