// SPDX-License-Identifier: GPL-2.0-only
/*
 * Made-up devices: how long the phases of the last transition took, and the wakeup that ends a
 * transition, on kernels whose configuration has neither pm_test nor the times in the log.
 *
 *	phases   read PHASE MICROSECONDS, a line for each phase that ran; write anything: forget it
 *	wake     Y: the system wakes as soon as all devices are suspended
 */
#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/suspend.h>
#include <linux/uaccess.h>
#include <trace/events/power.h>

#include "graph_test.h"

static struct {
	ktime_t begin;
	/* 0: it did not run. */
	u64 us;
} phases[DPM_GRAPH_PHASES];

static bool wakes;
static struct device *waker;

/* The kernel calls the phases dpm_suspend, dpm_suspend_late and so on. */
static int find_phase(const char *action)
{
	return str_has_prefix(action, "dpm_") ? test_phase_find(action + strlen("dpm_")) : -1;
}

static void hear(void *unused, const char *action, int value, bool begins)
{
	int phase = find_phase(action);

	if (phase < 0)
		return;
	if (begins)
		phases[phase].begin = ktime_get();
	else
		phases[phase].us = ktime_us_delta(ktime_get(), phases[phase].begin) ?: 1;
}

static int phases_show(struct seq_file *file, void *unused)
{
	int phase;

	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++)
		if (phases[phase].us)
			seq_printf(file, "%s %llu\n", test_phase_names[phase], phases[phase].us);
	return 0;
}

static ssize_t phases_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	memset(phases, 0, sizeof(phases));
	return count;
}
DEFINE_SHOW_STORE_ATTRIBUTE(phases);

/* In this phase nothing looks for wakeups any more: the system goes to sleep, and wakes at once. */
static int waker_suspend_noirq(struct device *dev)
{
	if (READ_ONCE(wakes))
		pm_system_wakeup();
	return 0;
}

static const struct dev_pm_ops waker_ops = {
	.suspend_noirq = waker_suspend_noirq,
};

static const struct device_type waker_type = {
	.name = "pm_graph_test_waker",
	.pm = &waker_ops,
};

static void waker_release(struct device *dev)
{
	kfree(dev);
}

static int waker_add(void)
{
	int error;

	waker = kzalloc(sizeof(*waker), GFP_KERNEL);
	if (!waker)
		return -ENOMEM;
	waker->release = waker_release;
	waker->type = &waker_type;
	device_initialize(waker);
	error = dev_set_name(waker, "pm_graph_test_waker") ?: device_add(waker);
	if (error)
		put_device(waker);
	return error;
}

int test_phases_add(struct dentry *folder)
{
	int error = waker_add();

	if (error)
		return error;
	error = register_trace_suspend_resume(hear, NULL);
	if (error) {
		device_unregister(waker);
		return error;
	}
	debugfs_create_file("phases", 0600, folder, NULL, &phases_fops);
	debugfs_create_bool("wake", 0600, folder, &wakes);
	return 0;
}

void test_phases_remove(void)
{
	unregister_trace_suspend_resume(hear, NULL);
	tracepoint_synchronize_unregister();
	device_unregister(waker);
}
