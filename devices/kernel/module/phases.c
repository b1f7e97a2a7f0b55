// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: how the phases of the stock kernel come to run in
 * graph order, without a change to their code.
 *
 *	the PM core's list:   first   0   1   2   ...   n   last
 *
 * Two devices of ours stand at both ends of the list. The stock kernel suspends devices from the
 * end of its list, so the first callback of each phase on the way down is that of "last": it runs
 * the whole phase for all devices, and moves them to where the stock kernel expects them. The stock
 * kernel then finds nothing left to do, and ends the phase with its own book-keeping. On the way up
 * the same happens in the callback of "first".
 *
 * Meanwhile pm_async_enabled is 0, so that the stock kernel starts no device by itself and a device
 * that the workers run waits for no neighbour: the graph has waited for it. The user's value comes
 * back when the transition ends.
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/list.h>
#include <linux/pm_runtime.h>
#include <linux/slab.h>
#include <linux/suspend.h>

#include "graph_internal.h"
#include "host.h"

static struct device *first, *last;

/* /sys/power/pm_async, while a transition of ours has set it to 0. */
static struct {
	bool held;
	int value;
} user_async;

bool dpm_graph_user_async(void)
{
	return user_async.held ? user_async.value : READ_ONCE(*dpm_host.pm_async);
}

static void hold_async(void)
{
	if (user_async.held)
		return;
	user_async.value = READ_ONCE(*dpm_host.pm_async);
	user_async.held = true;
	WRITE_ONCE(*dpm_host.pm_async, 0);
}

static void release_async(void)
{
	if (!user_async.held)
		return;
	WRITE_ONCE(*dpm_host.pm_async, user_async.value);
	user_async.held = false;
}

/* The last device that is prepared: the list is complete. */
static int last_prepare(struct device *dev)
{
	enum dpm_graph_mode mode;

	device_pm_lock();
	dpm_graph_choose(dpm_host.prepared);
	device_pm_unlock();
	mode = READ_ONCE(dpm_graph.mode);
	dpm_graph_set_phase(DPM_GRAPH_SUSPEND, mode != DPM_GRAPH_OFF);
	if (mode == DPM_GRAPH_GRAPH || mode == DPM_GRAPH_LIST || dpm_graph_stuck_device())
		hold_async();
	return 0;
}

/* The last one that is completed: the transition is over, however it went. */
static void first_complete(struct device *dev)
{
	/*
	 * Since Linux 6.16 a device that has suspended starts its superiors, unless the phase has
	 * failed. One that comes back after the transition must not.
	 */
	if (dpm_graph_stuck_device())
		WRITE_ONCE(*dpm_host.async_error, -EBUSY);
	release_async();
	dpm_graph_set_phase(DPM_GRAPH_SUSPEND, false);
	dpm_graph_end();
}

/* Whether this transition has a graph. */
static bool has_graph(void)
{
	return dpm_graph.mode == DPM_GRAPH_GRAPH && dpm_graph.device;
}

/*
 * Where a phase ends by graph order, "first" has been through it, also after a failure: on the way
 * up it is the one that resumes the others.
 */
static void take_first_along(enum dpm_graph_phase phase)
{
	switch (phase) {
	case DPM_GRAPH_SUSPEND:
		first->power.must_resume = true;
		first->power.is_suspended = true;
		break;
	case DPM_GRAPH_SUSPEND_LATE:
		__pm_runtime_disable(first, false);
		first->power.is_late_suspended = true;
		break;
	default:
		first->power.is_noirq_suspended = true;
		break;
	}
}

static int go_down(enum dpm_graph_phase phase, void (*run)(struct device *, pm_message_t),
		   struct list_head *from, struct list_head *to)
{
	device_pm_lock();
	dpm_graph_down(phase, *dpm_host.transition, run, from, to, dpm_host.async_error);
	if (has_graph()) {
		take_first_along(phase);
		dpm_graph_end_phase();
	}
	device_pm_unlock();
	/* An error of a device is in async_error already, under the device's name. */
	return 0;
}

static bool in_graph(const struct device *dev)
{
	return dpm_graph_of(dev)->generation == dpm_graph.generation;
}

/*
 * Devices that are in no graph: "last", what was prepared after it, and what the driver core has
 * moved meanwhile, which may stand anywhere in the list.
 */
static void take_strangers(struct list_head *from, struct list_head *strangers)
{
	const struct dpm_graph *graph = &dpm_graph;
	struct device *dev, *next;
	/* The device of the graph that stands here if nothing has moved: no need to look it up. */
	u32 expected = 0;

	list_for_each_entry_safe(dev, next, from, power.entry) {
		if (expected < graph->core.devices && graph->device[expected] == dev)
			expected++;
		else if (in_graph(dev))
			expected = dpm_graph_of(dev)->index + 1;
		else
			list_move_tail(&dev->power.entry, strangers);
	}
}

/* One after the other, as the stock kernel does it. */
static void run_strangers(struct list_head *strangers, struct list_head *to,
			  void (*run)(struct device *, pm_message_t))
{
	while (!list_empty(strangers)) {
		struct device *dev = list_first_entry(strangers, struct device, power.entry);

		get_device(dev);
		list_move_tail(&dev->power.entry, to);
		device_pm_unlock();
		run(dev, *dpm_host.transition);
		put_device(dev);
		device_pm_lock();
	}
}

static int go_up(enum dpm_graph_phase phase, void (*run)(struct device *, pm_message_t),
		 struct list_head *from, struct list_head *to)
{
	LIST_HEAD(strangers);
	bool in_graph_order;

	device_pm_lock();
	in_graph_order = has_graph();
	if (in_graph_order)
		take_strangers(from, &strangers);
	dpm_graph_up(phase, *dpm_host.transition, run, from, to);
	run_strangers(&strangers, to, run);
	if (in_graph_order)
		dpm_graph_end_phase();
	device_pm_unlock();
	return 0;
}

/* The last callback of a phase that the stock kernel has run, one device after the other. */
static int end_stock_phase(struct device *dev)
{
	device_pm_lock();
	if (dpm_graph.mode == DPM_GRAPH_LIST)
		dpm_graph_end_phase();
	device_pm_unlock();
	return 0;
}

#define LAST_GOES_DOWN(step, phase, from, to)					\
static int last_##step(struct device *dev)					\
{										\
	return go_down(phase, dpm_host_##step, dpm_host.from, dpm_host.to);	\
}

#define FIRST_GOES_UP(step, phase, from, to)					\
static int first_##step(struct device *dev)					\
{										\
	return go_up(phase, dpm_host_##step, dpm_host.from, dpm_host.to);	\
}

LAST_GOES_DOWN(suspend, DPM_GRAPH_SUSPEND, prepared, suspended)
LAST_GOES_DOWN(suspend_late, DPM_GRAPH_SUSPEND_LATE, suspended, late_early)
LAST_GOES_DOWN(suspend_noirq, DPM_GRAPH_SUSPEND_NOIRQ, late_early, noirq)
FIRST_GOES_UP(resume_noirq, DPM_GRAPH_RESUME_NOIRQ, noirq, late_early)
FIRST_GOES_UP(resume_early, DPM_GRAPH_RESUME_EARLY, late_early, suspended)
FIRST_GOES_UP(resume, DPM_GRAPH_RESUME, suspended, prepared)

static const struct dev_pm_ops last_ops = {
	.prepare = last_prepare,
	SYSTEM_SLEEP_PM_OPS(last_suspend, end_stock_phase)
	LATE_SYSTEM_SLEEP_PM_OPS(last_suspend_late, end_stock_phase)
	NOIRQ_SYSTEM_SLEEP_PM_OPS(last_suspend_noirq, end_stock_phase)
};

static const struct dev_pm_ops first_ops = {
	SYSTEM_SLEEP_PM_OPS(end_stock_phase, first_resume)
	LATE_SYSTEM_SLEEP_PM_OPS(end_stock_phase, first_resume_early)
	NOIRQ_SYSTEM_SLEEP_PM_OPS(end_stock_phase, first_resume_noirq)
	.complete = first_complete,
};

static const struct device_type last_type = {
	.name = dpm_conductor,
	.pm = &last_ops,
};

static const struct device_type first_type = {
	.name = dpm_conductor,
	.pm = &first_ops,
};

/* Devices come and go between transitions. */
static int goes_to_sleep(struct notifier_block *block, unsigned long event, void *unused)
{
	if (event != PM_SUSPEND_PREPARE && event != PM_HIBERNATION_PREPARE &&
	    event != PM_RESTORE_PREPARE)
		return NOTIFY_DONE;
	device_pm_lock();
	list_move(&first->power.entry, dpm_host.list);
	list_move_tail(&last->power.entry, dpm_host.list);
	device_pm_unlock();
	return NOTIFY_OK;
}

static struct notifier_block notifier = {
	.notifier_call = goes_to_sleep,
	/* After all others, which may add devices. */
	.priority = INT_MIN,
};

static void release(struct device *dev)
{
	kfree(dev);
}

static struct device *add(const char *name, const struct device_type *type)
{
	struct device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int error;

	if (!dev)
		return ERR_PTR(-ENOMEM);
	dev->release = release;
	dev->type = type;
	device_initialize(dev);
	error = dev_set_name(dev, "%s", name) ?: device_add(dev);
	if (!error)
		return dev;
	put_device(dev);
	return ERR_PTR(error);
}

int dpm_phases_add(void)
{
	int error;

	first = add("dormouse-dpm-first", &first_type);
	if (IS_ERR(first)) {
		error = PTR_ERR(first);
		goto failed;
	}
	last = add("dormouse-dpm-last", &last_type);
	if (IS_ERR(last)) {
		error = PTR_ERR(last);
		goto remove_first;
	}
	error = register_pm_notifier(&notifier);
	if (!error)
		return 0;
	device_unregister(last);
remove_first:
	device_unregister(first);
failed:
	pr_err("not loaded: cannot add a device (error %d)\n", error);
	return error;
}

void dpm_phases_remove(void)
{
	unregister_pm_notifier(&notifier);
	device_unregister(last);
	device_unregister(first);
	dpm_graph_end();
}
