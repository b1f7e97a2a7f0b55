// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: the switches.
 *
 *	/sys/power/pm_graph               off, list, threshold or graph
 *	/sys/power/pm_graph_scope         async, declared or all
 *	/sys/power/pm_graph_threshold_us  a device that takes longer is slow
 *	/sys/power/pm_graph_sleepers      workers for devices that sleep, beside one per processor
 *	/sys/power/pm_graph_timeout_ms    a device that takes longer is given up; 0: never
 *
 * A change applies from the next transition on.
 */
#include <linux/init.h>
#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/suspend.h>
#include <linux/sysfs.h>

#include "graph_internal.h"

struct dpm_graph_switches dpm_graph_switches = {
	.mode = DPM_GRAPH_OFF,
	.scope = DPM_GRAPH_SCOPE_ASYNC,
	.threshold_us = 200,
	.sleepers = 32,
	.timeout_ms = 120 * 1000,
};

static DEFINE_MUTEX(switch_lock);

static const char * const mode_names[DPM_GRAPH_MODES] = {
	[DPM_GRAPH_OFF] = "off",
	[DPM_GRAPH_LIST] = "list",
	[DPM_GRAPH_THRESHOLD] = "threshold",
	[DPM_GRAPH_GRAPH] = "graph",
};

static const char * const scope_names[DPM_GRAPH_SCOPES] = {
	[DPM_GRAPH_SCOPE_ASYNC] = "async",
	[DPM_GRAPH_SCOPE_DECLARED] = "declared",
	[DPM_GRAPH_SCOPE_ALL] = "all",
};

/* What was measured under other switches says nothing about these. */
static void weigh_anew(void)
{
	device_pm_lock();
	dpm_graph_weigh_anew();
	device_pm_unlock();
}

/* All names, the current one in brackets, as elsewhere in /sys/power. */
static ssize_t show_choice(char *buf, const char * const *names, int count, int chosen)
{
	ssize_t bytes = 0;
	int i;

	for (i = 0; i < count; i++)
		bytes += sysfs_emit_at(buf, bytes, i == chosen ? "%s[%s]" : "%s%s",
				       i ? " " : "", names[i]);
	return bytes + sysfs_emit_at(buf, bytes, "\n");
}

static ssize_t pm_graph_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return show_choice(buf, mode_names, DPM_GRAPH_MODES, dpm_graph_switches.mode);
}

static int set_mode(enum dpm_graph_mode mode)
{
	int error = 0;

	if (mode != DPM_GRAPH_OFF && !dpm_graph_may_switch_on())
		return -EAGAIN;
	if (mode == DPM_GRAPH_GRAPH)
		error = dpm_graph_start_workers();
	if (!error)
		error = dpm_graph_measure_switch(mode != DPM_GRAPH_OFF);
	if (error)
		return error;
	if (mode != DPM_GRAPH_THRESHOLD)
		dpm_graph_take_back_async();
	WRITE_ONCE(dpm_graph_switches.mode, mode);
	return 0;
}

void dpm_graph_switch_off(void)
{
	mutex_lock(&switch_lock);
	set_mode(DPM_GRAPH_OFF);
	mutex_unlock(&switch_lock);
}

static ssize_t pm_graph_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
			      size_t count)
{
	int mode = sysfs_match_string(mode_names, buf);
	int error;

	if (mode < 0)
		return mode;
	mutex_lock(&switch_lock);
	error = set_mode(mode);
	mutex_unlock(&switch_lock);
	return error ?: count;
}

static struct kobj_attribute pm_graph_attribute = __ATTR_RW(pm_graph);

static ssize_t pm_graph_scope_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return show_choice(buf, scope_names, DPM_GRAPH_SCOPES, dpm_graph_switches.scope);
}

static ssize_t pm_graph_scope_store(struct kobject *kobj, struct kobj_attribute *attr,
				    const char *buf, size_t count)
{
	int scope = sysfs_match_string(scope_names, buf);

	if (scope < 0)
		return scope;
	WRITE_ONCE(dpm_graph_switches.scope, scope);
	weigh_anew();
	return count;
}

static struct kobj_attribute pm_graph_scope_attribute = __ATTR_RW(pm_graph_scope);

static ssize_t store_number(const char *buf, size_t count, u32 max, u32 *number)
{
	u32 value;
	int error = kstrtou32(buf, 0, &value);

	if (error)
		return error;
	if (value > max)
		return -EINVAL;
	WRITE_ONCE(*number, value);
	weigh_anew();
	return count;
}

#define NUMBER_ATTRIBUTE(name, most)							\
static ssize_t pm_graph_##name##_show(struct kobject *kobj, struct kobj_attribute *attr,	\
				      char *buf)					\
{											\
	return sysfs_emit(buf, "%u\n", dpm_graph_switches.name);			\
}											\
											\
static ssize_t pm_graph_##name##_store(struct kobject *kobj, struct kobj_attribute *attr,	\
				       const char *buf, size_t count)			\
{											\
	return store_number(buf, count, most, &dpm_graph_switches.name);		\
}											\
											\
static struct kobj_attribute pm_graph_##name##_attribute = __ATTR_RW(pm_graph_##name)

NUMBER_ATTRIBUTE(threshold_us, USEC_PER_SEC);
NUMBER_ATTRIBUTE(timeout_ms, 3600 * MSEC_PER_SEC);

static ssize_t pm_graph_sleepers_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", dpm_graph_switches.sleepers);
}

static ssize_t pm_graph_sleepers_store(struct kobject *kobj, struct kobj_attribute *attr,
				       const char *buf, size_t count)
{
	ssize_t result;
	int error = 0;

	mutex_lock(&switch_lock);
	result = store_number(buf, count, DPM_GRAPH_WORKERS, &dpm_graph_switches.sleepers);
	if (result > 0 && dpm_graph_switches.mode == DPM_GRAPH_GRAPH)
		error = dpm_graph_start_workers();
	mutex_unlock(&switch_lock);
	return error ?: result;
}

static struct kobj_attribute pm_graph_sleepers_attribute = __ATTR_RW(pm_graph_sleepers);

static struct attribute *pm_graph_attributes[] = {
	&pm_graph_attribute.attr,
	&pm_graph_scope_attribute.attr,
	&pm_graph_threshold_us_attribute.attr,
	&pm_graph_sleepers_attribute.attr,
	&pm_graph_timeout_ms_attribute.attr,
	NULL
};

static const struct attribute_group pm_graph_group = {
	.attrs = pm_graph_attributes,
};

int dpm_graph_sysfs_add(struct kobject *power)
{
	return sysfs_create_group(power, &pm_graph_group);
}

void dpm_graph_sysfs_remove(struct kobject *power)
{
	sysfs_remove_group(power, &pm_graph_group);
}

#ifndef MODULE
static int __init pm_graph_sysfs_init(void)
{
	return dpm_graph_sysfs_add(power_kobj);
}
late_initcall(pm_graph_sysfs_init);
#endif
