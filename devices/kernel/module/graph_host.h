/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Graph-ordered suspend and resume: how it reaches the PM core. This is the file of the loadable
 * module, which finds by name what the series has at hand.
 */
#ifndef _DPM_GRAPH_HOST_H
#define _DPM_GRAPH_HOST_H

#include <linux/completion.h>
#include <linux/device.h>
#include <linux/mutex.h>
#include <linux/pm.h>
#include <linux/pm_graph.h>
#include <linux/sched/cputime.h>
#include <linux/srcu.h>
#include <linux/static_call.h>
#include <linux/suspend.h>

/* find.c: variables of drivers/base/power/main.c and kernel/power/main.c. */
struct dpm_host {
	struct list_head *list;
	struct list_head *prepared;
	struct list_head *suspended;
	struct list_head *late_early;
	struct list_head *noirq;
	/* Guards the lists. */
	struct mutex *list_mutex;
	pm_message_t *transition;
	int *async_error;
	int *pm_async;
	/* Only where the kernel has CONFIG_PM_TRACE. */
	int *pm_trace;
};

extern struct dpm_host dpm_host;

/* find.c: functions of the kernel that are not exported. */
int dpm_host_links_read_lock(void);
void dpm_host_links_read_unlock(int index);
unsigned long long dpm_host_task_runtime(struct task_struct *task);
void dpm_host_complete_here(struct completion *completion);
void dpm_host_save_failed_dev(const char *name);

#define dpm_list				(*dpm_host.list)
#define device_pm_lock()			mutex_lock(dpm_host.list_mutex)
#define device_pm_unlock()			mutex_unlock(dpm_host.list_mutex)
#define device_links_read_lock()		dpm_host_links_read_lock()
#define device_links_read_unlock(index)		dpm_host_links_read_unlock(index)
/* The lock is the driver core's own; lockdep cannot be asked from here. */
#define device_links_read_lock_held()		true
#define task_sched_runtime(task)		dpm_host_task_runtime(task)
#define complete_on_current_cpu(completion)	dpm_host_complete_here(completion)
#define dpm_save_failed_dev(name)		dpm_host_save_failed_dev(name)

static inline bool device_pm_initialized(struct device *dev)
{
	return dev->power.in_dpm_list;
}

static inline bool pm_trace_is_enabled(void)
{
	return dpm_host.pm_trace && READ_ONCE(*dpm_host.pm_trace);
}

/* table.c: the state of a device; one that is shared if it has none of its own. */
struct dpm_graph_device *dpm_graph_of(const struct device *dev);
extern struct dpm_graph_device dpm_graph_unknown;

static inline bool dpm_graph_is_known(const struct dpm_graph_device *gd)
{
	return gd != &dpm_graph_unknown;
}

int dpm_graph_know(struct list_head *list);

/* table.c: the type of the two devices that run the phases (phases.c). */
extern const char dpm_conductor[];

static inline bool dpm_graph_is_stranger(const struct device *dev)
{
	return dev->type && dev->type->name == dpm_conductor;
}

/* phases.c */
bool dpm_graph_user_async(void);

/* measure.c: whether callbacks are measured at all; no transition is under way. */
int dpm_graph_measure_switch(bool on);

/* patch.c: whether the kernel waits for devices as graph order needs it. */
bool dpm_graph_may_switch_on(void);

/* find.c: the stock kernel takes one device through one phase. */
#define DPM_GRAPH_CALL(function, dev, state)	((function)((dev), (state)))

/* Stock loops look at power/async before the first callback: latched when devices are prepared. */
#define DPM_GRAPH_CHOOSES_EARLY	true

#endif
