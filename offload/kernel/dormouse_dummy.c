// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dummy platform devices and their driver: a tree of them, each with registers that are saved at
 * suspend, and brought back at resume, and with something to do in every other phase. What they do
 * is what drivers do: locks, lists, memory, waits.
 */
#include <linux/crc32.h>
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/pm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#define DUMMIES		24
#define DUMMY_WORDS	32

enum dummy_state { DUMMY_ON, DUMMY_OFF };

/* In the order in which a kernel goes through them. */
enum dummy_phase {
	DUMMY_PREPARE, DUMMY_SUSPEND, DUMMY_SUSPEND_LATE, DUMMY_SUSPEND_NOIRQ,
	DUMMY_RESUME_NOIRQ, DUMMY_RESUME_EARLY, DUMMY_RESUME, DUMMY_COMPLETE,
	DUMMY_PHASES
};

/* What the device is; the driver's own part is in memory that it allocates. */
struct dummy_device {
	u32 state;
	u32 power;	/* the last value written */
	u32 suspends;
	u32 resumes;
	u32 words[DUMMY_WORDS];
};

struct dummy {
	struct dummy_device *device;
	struct mutex mutex;
	spinlock_t lock;
	struct list_head saved;
	u32 check;
	u32 *copy;
	u32 wait;	/* microseconds that its power needs */
};

/* Found by their names in the memory's image. */
struct dummy_device dormouse_dummy_device[DUMMIES];
u32 dormouse_dummy_order[DUMMY_PHASES * DUMMIES];
u32 dormouse_dummy_events;

static LIST_HEAD(dummy_saved);
static DEFINE_SPINLOCK(dummy_saved_lock);

static void dummy_event(struct device *dev, enum dummy_phase phase)
{
	if (dormouse_dummy_events < ARRAY_SIZE(dormouse_dummy_order))
		dormouse_dummy_order[dormouse_dummy_events++] =
			to_platform_device(dev)->id << 8 | phase;
}

/* Changes the state of the device, which takes the time that its power needs. */
static void dummy_tell(struct dummy *dummy)
{
	unsigned long flags;

	spin_lock_irqsave(&dummy->lock, flags);
	dummy->device->power = dummy->device->power * 1664525 + 1013904223;
	spin_unlock_irqrestore(&dummy->lock, flags);
	udelay(dummy->wait);
}

static int dummy_step(struct device *dev, enum dummy_phase phase)
{
	dummy_tell(dev_get_drvdata(dev));
	dummy_event(dev, phase);
	return 0;
}

static int dummy_prepare(struct device *dev)
{
	return dummy_step(dev, DUMMY_PREPARE);
}

static int dummy_suspend_late(struct device *dev)
{
	return dummy_step(dev, DUMMY_SUSPEND_LATE);
}

static int dummy_suspend_noirq(struct device *dev)
{
	return dummy_step(dev, DUMMY_SUSPEND_NOIRQ);
}

static int dummy_resume_noirq(struct device *dev)
{
	return dummy_step(dev, DUMMY_RESUME_NOIRQ);
}

static int dummy_resume_early(struct device *dev)
{
	return dummy_step(dev, DUMMY_RESUME_EARLY);
}

static void dummy_complete(struct device *dev)
{
	dummy_step(dev, DUMMY_COMPLETE);
}

static int dummy_suspend(struct device *dev)
{
	struct dummy *dummy = dev_get_drvdata(dev);
	struct dummy_device *device = dummy->device;
	unsigned long flags;

	mutex_lock(&dummy->mutex);
	dummy->copy = kmemdup(device->words, sizeof(device->words), GFP_KERNEL);
	if (!dummy->copy) {
		mutex_unlock(&dummy->mutex);
		return -ENOMEM;
	}
	dummy->check = crc32_le(~0, (u8 *)dummy->copy, sizeof(device->words));
	spin_lock_irqsave(&dummy->lock, flags);
	memset(device->words, 0, sizeof(device->words));
	device->state = DUMMY_OFF;
	spin_unlock_irqrestore(&dummy->lock, flags);
	dummy_tell(dummy);
	device->suspends++;
	spin_lock(&dummy_saved_lock);
	list_add(&dummy->saved, &dummy_saved);
	spin_unlock(&dummy_saved_lock);
	dummy_event(dev, DUMMY_SUSPEND);
	mutex_unlock(&dummy->mutex);
	return 0;
}

static int dummy_resume(struct device *dev)
{
	struct dummy *dummy = dev_get_drvdata(dev);
	struct dummy_device *device = dummy->device;

	mutex_lock(&dummy->mutex);
	spin_lock(&dummy_saved_lock);
	list_del_init(&dummy->saved);
	spin_unlock(&dummy_saved_lock);
	udelay(dummy->wait);
	memcpy(device->words, dummy->copy, sizeof(device->words));
	if (crc32_le(~0, (u8 *)device->words, sizeof(device->words)) != dummy->check) {
		mutex_unlock(&dummy->mutex);
		return -EIO;
	}
	kfree(dummy->copy);
	dummy->copy = NULL;
	device->state = DUMMY_ON;
	device->resumes++;
	dummy_event(dev, DUMMY_RESUME);
	mutex_unlock(&dummy->mutex);
	return 0;
}

static const struct dev_pm_ops dummy_pm_ops = {
	.prepare = dummy_prepare,
	.complete = dummy_complete,
	SYSTEM_SLEEP_PM_OPS(dummy_suspend, dummy_resume)
	LATE_SYSTEM_SLEEP_PM_OPS(dummy_suspend_late, dummy_resume_early)
	NOIRQ_SYSTEM_SLEEP_PM_OPS(dummy_suspend_noirq, dummy_resume_noirq)
};

static int dummy_probe(struct platform_device *pdev)
{
	struct dummy *dummy = devm_kzalloc(&pdev->dev, sizeof(*dummy), GFP_KERNEL);
	u32 i;

	if (!dummy)
		return -ENOMEM;
	mutex_init(&dummy->mutex);
	spin_lock_init(&dummy->lock);
	INIT_LIST_HEAD(&dummy->saved);
	dummy->device = &dormouse_dummy_device[pdev->id];
	dummy->wait = 5 + pdev->id % 7;
	for (i = 0; i < DUMMY_WORDS; i++)
		dummy->device->words[i] = (pdev->id + 1) * 0x9e3779b1u * (i + 1);
	platform_set_drvdata(pdev, dummy);
	return 0;
}

static struct platform_driver dummy_driver = {
	.probe = dummy_probe,
	.driver = {
		.name = "dormouse_dummy",
		.pm = pm_sleep_ptr(&dummy_pm_ops),
	},
};

static int __init dummy_init(void)
{
	static struct platform_device *device[DUMMIES];
	int error = platform_driver_register(&dummy_driver);
	int i;

	for (i = 0; i < DUMMIES && !error; i++) {
		struct platform_device_info info = {
			.name = "dormouse_dummy",
			.id = i,
			.parent = i ? &device[(i - 1) / 3]->dev : NULL,
		};

		device[i] = platform_device_register_full(&info);
		error = PTR_ERR_OR_ZERO(device[i]);
	}
	return error;
}
late_initcall(dummy_init);
