// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control flow of suspend and resume: a list of devices, each with tables of callbacks for its
 * power domain, bus and driver, called in the order of the kernel's device_suspend() and
 * device_resume(), in phases, with children before parents and back.
 */
#include <linux/list.h>

#include "programs.h"

struct device;

struct dev_pm_ops {
	int (*prepare)(struct device *dev);
	void (*complete)(struct device *dev);
	int (*suspend)(struct device *dev);
	int (*resume)(struct device *dev);
	int (*suspend_late)(struct device *dev);
	int (*resume_early)(struct device *dev);
	int (*suspend_noirq)(struct device *dev);
	int (*resume_noirq)(struct device *dev);
};

struct device {
	struct list_head entry;
	struct device *parent;
	const struct dev_pm_ops *domain, *bus, *driver;
	u32 registers[8], saved[8];
	u32 state, depth, errors;
	bool direct_complete;
};

enum { DEVICES = 24 };

static struct device devices[DEVICES];
static struct list_head active, suspended;

static int save_registers(struct device *dev)
{
	for (u32 i = 0; i < 8; i++)
		dev->saved[i] = dev->registers[i];
	dev->state |= 1;
	return 0;
}

static int restore_registers(struct device *dev)
{
	for (u32 i = 0; i < 8; i++)
		dev->registers[i] = dev->saved[i] ^ (i << 8);
	dev->state &= ~1u;
	return 0;
}

static int clock_off(struct device *dev)
{
	dev->registers[0] &= ~0x10u;
	return (dev->registers[1] & 0xff) == 0x77 ? -EINVAL : 0;
}

static int clock_on(struct device *dev)
{
	dev->registers[0] |= 0x10;
	return 0;
}

static int prepare(struct device *dev)
{
	dev->direct_complete = (dev->registers[2] & 7) == 0;
	return 0;
}

static void complete(struct device *dev)
{
	dev->depth++;
}

static int pass_to_driver(struct device *dev)
{
	const struct dev_pm_ops *pm = dev->driver;

	return pm && pm->suspend ? pm->suspend(dev) : 0;
}

static int pass_to_driver_resume(struct device *dev)
{
	const struct dev_pm_ops *pm = dev->driver;

	return pm && pm->resume ? pm->resume(dev) : 0;
}

static int count_down(struct device *dev)
{
	for (struct device *up = dev->parent; up; up = up->parent)
		up->depth--;
	return 0;
}

static int count_up(struct device *dev)
{
	for (struct device *up = dev->parent; up; up = up->parent)
		up->depth++;
	return 0;
}

static const struct dev_pm_ops driver_ops[] = {
	{ prepare, complete, save_registers, restore_registers, clock_off, clock_on, NULL, NULL },
	{ prepare, NULL, save_registers, restore_registers, NULL, NULL, clock_off, clock_on },
	{ NULL, complete, clock_off, clock_on, save_registers, restore_registers, NULL, NULL },
};

static const struct dev_pm_ops bus_ops = {
	NULL, NULL, pass_to_driver, pass_to_driver_resume, count_down, count_up, NULL, NULL,
};

typedef int (*callback_t)(struct device *dev);

static callback_t pick(const struct dev_pm_ops *ops, u32 phase)
{
	if (!ops)
		return NULL;
	switch (phase) {
	case 0:
		return ops->suspend;
	case 1:
		return ops->suspend_late;
	case 2:
		return ops->suspend_noirq;
	case 3:
		return ops->resume_noirq;
	case 4:
		return ops->resume_early;
	default:
		return ops->resume;
	}
}

static int run_phase(struct device *dev, u32 phase)
{
	callback_t callback = pick(dev->domain, phase);

	if (!callback)
		callback = pick(dev->bus, phase);
	if (!callback)
		callback = pick(dev->driver, phase);
	if (!callback || dev->direct_complete)
		return 0;
	return callback(dev);
}

static void prepare_all(u32 *seed)
{
	INIT_LIST_HEAD(&active);
	INIT_LIST_HEAD(&suspended);
	for (u32 i = 0; i < DEVICES; i++) {
		struct device *dev = &devices[i];
		u32 kind = dice(seed);

		*dev = (struct device){ .parent = NULL };
		dev->parent = i ? &devices[dice(seed) % i] : NULL;
		dev->domain = NULL;
		dev->bus = kind & 8 ? &bus_ops : NULL;
		dev->driver = &driver_ops[kind % ARRAY_SIZE(driver_ops)];
		dev->state = dev->depth = dev->errors = 0;
		for (u32 j = 0; j < 8; j++)
			dev->registers[j] = dice(seed);
		list_add_tail(&dev->entry, &active);
	}
}

u32 run_callback(u32 seed, u32 rounds)
{
	u32 digest = seed;

	while (rounds--) {
		struct device *dev;

		prepare_all(&seed);
		list_for_each_entry(dev, &active, entry)
			if (dev->driver->prepare)
				dev->driver->prepare(dev);
		for (u32 phase = 0; phase < 3; phase++)
			list_for_each_entry_reverse(dev, &active, entry)
				if (run_phase(dev, phase))
					dev->errors++;
		while (!list_empty(&active))
			list_move(active.prev, &suspended);
		for (u32 phase = 3; phase < 6; phase++)
			list_for_each_entry(dev, &suspended, entry)
				if (run_phase(dev, phase))
					dev->errors++;
		list_for_each_entry(dev, &suspended, entry) {
			if (dev->driver->complete)
				dev->driver->complete(dev);
			for (u32 i = 0; i < 8; i++)
				digest = mix(digest, dev->registers[i]);
			digest = mix(digest, dev->state + 16 * dev->depth + dev->errors);
		}
	}
	return digest;
}
