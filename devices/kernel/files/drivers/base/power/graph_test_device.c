// SPDX-License-Identifier: GPL-2.0-only
/* Made-up devices: their buses, drivers, links and callbacks. See graph_test.h. */
#include <linux/delay.h>
#include <linux/device/driver.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/pm_runtime.h>
#include <linux/processor.h>
#include <linux/slab.h>
#include <linux/suspend.h>

#include "graph_test.h"

static LIST_HEAD(devices);
static LIST_HEAD(links);
static u32 count;
/* Devices without a driver may bind now: they are about to be removed. */
static bool all_match;
static struct mutex slow_bus[TEST_BUSES];

static struct test_device *to_test_device(struct device *dev)
{
	return container_of(dev, struct test_device, dev);
}

/*
 * Keeps a processor busy for so long. Time in which another thread had the processor does not
 * count: two devices that compute on one processor take as long as both.
 */
static void compute(u32 us)
{
	ktime_t now = ktime_get();
	ktime_t end = ktime_add_us(now, us);

	while (ktime_before(now, end)) {
		unsigned long switches = current->nvcsw + current->nivcsw;
		ktime_t before = now;

		cpu_relax();
		/* As in any driver that computes for long: the kernel may not be preemptible. */
		cond_resched();
		now = ktime_get();
		if (current->nvcsw + current->nivcsw != switches)
			end = ktime_add(end, ktime_sub(now, before));
	}
}

static void spend(const struct test_phase *phase)
{
	if (!phase->us)
		return;
	if (phase->busy)
		compute(phase->us);
	else
		usleep_range(phase->us, phase->us + phase->us / 64 + 1);
}

static void remove(struct test_device *device)
{
	list_del(&device->entry);
	count--;
	if (!device->suspended)
		pm_runtime_put_noidle(&device->dev);
	pm_runtime_disable(&device->dev);
	device_unregister(&device->dev);
}

/*
 * Without the lock over all devices: tasks that write to our files are frozen in a transition, and
 * one injection is made at a time.
 */
static int remove_other(const char *name)
{
	struct test_device *other = test_device_find(name);

	if (!other)
		return -ENODEV;
	remove(other);
	return 0;
}

static int add_other(const char *name, bool async)
{
	struct test_device *other = test_device_new(name);

	if (!other)
		return -ENOMEM;
	other->async = async;
	return test_device_add(other, NULL);
}

static int inject(struct test_device *device, struct test_phase *phase)
{
	enum test_injection injection = phase->injection;

	phase->injection = TEST_NOTHING;
	switch (injection) {
	case TEST_FAIL:
		return phase->value;
	case TEST_WAKE:
		pm_system_wakeup();
		return 0;
	case TEST_HANG:
		msleep(phase->value);
		return 0;
	case TEST_REMOVE:
		return remove_other(phase->other);
	case TEST_ADD:
		return add_other(phase->other, device->async);
	default:
		return 0;
	}
}

static int run(struct device *dev, enum dpm_graph_phase which)
{
	struct test_device *device = to_test_device(dev);
	struct test_phase *phase = &device->phase[which];
	u32 event = test_event_begin(device, which);
	int error;

	if (device->bus >= 0)
		mutex_lock(&slow_bus[device->bus]);
	spend(phase);
	if (device->bus >= 0)
		mutex_unlock(&slow_bus[device->bus]);
	error = inject(device, phase);
	test_event_end(event, error);
	return error;
}

#define TEST_CALLBACK(name, phase)			\
static int test_##name(struct device *dev)		\
{							\
	return run(dev, phase);				\
}

TEST_CALLBACK(suspend, DPM_GRAPH_SUSPEND)
TEST_CALLBACK(suspend_late, DPM_GRAPH_SUSPEND_LATE)
TEST_CALLBACK(suspend_noirq, DPM_GRAPH_SUSPEND_NOIRQ)
TEST_CALLBACK(resume_noirq, DPM_GRAPH_RESUME_NOIRQ)
TEST_CALLBACK(resume_early, DPM_GRAPH_RESUME_EARLY)
TEST_CALLBACK(resume, DPM_GRAPH_RESUME)

static int test_prepare(struct device *dev)
{
	return to_test_device(dev)->direct;
}

static const struct dev_pm_ops test_pm_ops = {
	.prepare = test_prepare,
	SYSTEM_SLEEP_PM_OPS(test_suspend, test_resume)
	LATE_SYSTEM_SLEEP_PM_OPS(test_suspend_late, test_resume_early)
	NOIRQ_SYSTEM_SLEEP_PM_OPS(test_suspend_noirq, test_resume_noirq)
};

static int test_match(struct device *dev, const struct device_driver *driver)
{
	return all_match || !to_test_device(dev)->nodriver;
}

static const struct bus_type test_bus = {
	.name = "pm_graph_test",
	.match = test_match,
	.pm = &test_pm_ops,
};

/* For devices without callbacks. */
static const struct bus_type test_quiet_bus = {
	.name = "pm_graph_test_quiet",
	.match = test_match,
};

static struct device_driver test_driver = {
	.name = "pm_graph_test",
	.bus = &test_bus,
};

static struct device_driver test_quiet_driver = {
	.name = "pm_graph_test_quiet",
	.bus = &test_quiet_bus,
};

int test_buses_register(void)
{
	int error;
	int i;

	for (i = 0; i < TEST_BUSES; i++)
		mutex_init(&slow_bus[i]);
	error = bus_register(&test_bus);
	if (error)
		return error;
	error = bus_register(&test_quiet_bus);
	if (error)
		goto unregister_bus;
	error = driver_register(&test_driver);
	if (error)
		goto unregister_quiet_bus;
	error = driver_register(&test_quiet_driver);
	if (!error)
		return 0;
	driver_unregister(&test_driver);
unregister_quiet_bus:
	bus_unregister(&test_quiet_bus);
unregister_bus:
	bus_unregister(&test_bus);
	return error;
}

void test_buses_unregister(void)
{
	driver_unregister(&test_quiet_driver);
	driver_unregister(&test_driver);
	bus_unregister(&test_quiet_bus);
	bus_unregister(&test_bus);
}

static void test_release(struct device *dev)
{
	kfree(to_test_device(dev));
}

struct test_device *test_device_new(const char *name)
{
	struct test_device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return NULL;
	device->bus = -1;
	device->dev.release = test_release;
	device_initialize(&device->dev);
	if (!dev_set_name(&device->dev, "%s", name))
		return device;
	put_device(&device->dev);
	return NULL;
}

int test_device_add(struct test_device *device, struct device *parent)
{
	struct device *dev = &device->dev;
	int error;

	dev->bus = device->noops ? &test_quiet_bus : &test_bus;
	dev->parent = parent;
	if (device->async)
		device_enable_async_suspend(dev);
	/* Below a device that is runtime-suspended none is active. */
	if (parent && pm_runtime_status_suspended(parent))
		device->suspended = true;
	if (!device->suspended) {
		pm_runtime_set_active(dev);
		/* In use, or the first transition would leave it runtime-suspended. */
		pm_runtime_get_noresume(dev);
	}
	error = device_add(dev);
	if (error) {
		put_device(dev);
		return error;
	}
	pm_runtime_enable(dev);
	list_add_tail(&device->entry, &devices);
	count++;
	return 0;
}

struct test_device *test_device_find(const char *name)
{
	struct test_device *device;

	list_for_each_entry(device, &devices, entry)
		if (!strcmp(dev_name(&device->dev), name))
			return device;
	return NULL;
}

bool test_device_is_apart(const struct test_device *device)
{
	const struct dev_links_info *of = &device->dev.links;
	struct test_device *other;

	list_for_each_entry(other, &devices, entry)
		if (other->dev.parent == &device->dev)
			return false;
	return list_empty(&of->suppliers) && list_empty(&of->consumers);
}

/* All devices are in one kset, in the order in which they were added. */
struct device *test_real_device_get(const struct device *any, const char *name)
{
	struct kobject *found = kset_find_obj(any->kobj.kset, name);

	return found ? kobj_to_dev(found) : NULL;
}

int test_link_add(struct device *supplier, struct device *consumer, u32 flags)
{
	struct test_link *link;
	struct device_link *made = device_link_add(consumer, supplier, flags);

	if (!made)
		return -EINVAL;
	/* The driver core deletes the other links. */
	if (!(flags & DL_FLAG_STATELESS))
		return 0;
	link = kzalloc(sizeof(*link), GFP_KERNEL);
	if (!link) {
		device_link_del(made);
		return -ENOMEM;
	}
	link->link = made;
	list_add_tail(&link->entry, &links);
	return 0;
}

/* Whether a driver was bound; refused as long as a supplier has none. */
static bool bind(struct test_device *device)
{
	return !device->dev.driver && device_attach(&device->dev) == 1;
}

/* Whether a driver was released: not before those of all consumers. */
static bool release(struct test_device *device)
{
	if (!device->dev.driver || !list_empty(&device->dev.links.consumers))
		return false;
	device_release_driver(&device->dev);
	return true;
}

static void until_none(bool (*act)(struct test_device *device))
{
	struct test_device *device;
	bool more;

	do {
		more = false;
		list_for_each_entry_reverse(device, &devices, entry)
			more |= act(device);
	} while (more);
}

/*
 * The driver core warns about managed links that remain when their supplier's driver is unbound. A
 * link is deleted when its consumer's driver is unbound or, if it is for sync_state() alone, bound.
 * So all devices are bound, and then unbound. Only managed links remain.
 */
static void drop_managed_links(void)
{
	all_match = true;
	until_none(bind);
	/* The driver core retries the refused ones itself. */
	wait_for_device_probe();
	until_none(release);
	all_match = false;
}

void test_devices_remove(void)
{
	struct test_device *device, *next_device;
	struct test_link *link, *next_link;

	list_for_each_entry_safe(link, next_link, &links, entry) {
		device_link_del(link->link);
		list_del(&link->entry);
		kfree(link);
	}
	drop_managed_links();
	list_for_each_entry_safe_reverse(device, next_device, &devices, entry)
		remove(device);
}

void test_devices_permit(bool all)
{
	struct test_device *device;

	list_for_each_entry(device, &devices, entry) {
		if (all)
			device_enable_async_suspend(&device->dev);
		else
			device_disable_async_suspend(&device->dev);
	}
}

u32 test_devices_count(void)
{
	return count;
}
