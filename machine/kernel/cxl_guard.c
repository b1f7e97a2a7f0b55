// SPDX-License-Identifier: GPL-2.0-only
/*
 * Linux refuses S3 and hibernation while the driver of a CXL memory device is bound
 * (cxl_mem_active() in drivers/cxl/core/suspend.c): a power loss takes the programming of
 * the decoders, and the kernel does not repeat it. A sleep on stock firmware does: the
 * regions are recorded, and the initramfs makes them again before it looks for an image. So
 * the process that sleeps or wakes may pass the guard, and nobody else:
 *
 *   /sys/module/dormouse_snapshot/parameters/cxl_guard
 *     reads "none" (this kernel has no such guard), "hold" or "pass"; takes "hold", and
 *     "pass", which is for the process that writes it; EBUSY while another one passes
 */
#define pr_fmt(fmt) "dormouse_snapshot: " fmt

#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "cxl_guard.h"

#define GUARD "cxl_mem_active"

static DEFINE_MUTEX(guard_lock);
static bool ready;
static bool has_guard;
/* Of the process that passes it. */
static struct pid *passer;
static struct kprobe probe;

/* Returns to the caller of what it stands for. */
static noinline bool not_active(void)
{
	barrier();
	return false;
}

static int answer_passer(struct kprobe *at, struct pt_regs *regs)
{
	if (READ_ONCE(passer) != task_tgid(current))
		return 0;
	regs->ip = (unsigned long)not_active;
	return 1;
}

/* There only so that the probe is not made a jump, which cannot change where it returns to. */
static void after_guard(struct kprobe *at, struct pt_regs *regs, unsigned long flags)
{
}

/* A kprobe that was registered before cannot be used again as it is. */
static int arm(u32 flags)
{
	memset(&probe, 0, sizeof(probe));
	probe.symbol_name = GUARD;
	probe.flags = flags;
	probe.pre_handler = answer_passer;
	probe.post_handler = after_guard;
	return register_kprobe(&probe);
}

static void hold(void)
{
	if (!passer)
		return;
	unregister_kprobe(&probe);
	put_pid(passer);
	passer = NULL;
}

/* Another process that passes it, and lives: neither its sleep nor its wake is disturbed. */
static bool is_anothers(void)
{
	bool lives;

	if (!passer || passer == task_tgid(current))
		return false;
	rcu_read_lock();
	lives = pid_task(passer, PIDTYPE_TGID);
	rcu_read_unlock();
	return lives;
}

static int pass(void)
{
	int error;

	hold();
	if (!has_guard)
		return 0;
	error = arm(0);
	if (error) {
		pr_err("cannot hook %s (error %d)\n", GUARD, error);
		return error;
	}
	WRITE_ONCE(passer, get_pid(task_tgid(current)));
	return 0;
}

static int cxl_guard_set(const char *text, const struct kernel_param *parameter)
{
	int error = 0;

	mutex_lock(&guard_lock);
	if (!ready)
		error = -EBUSY;		/* on insmod's line: nothing is known yet */
	else if (!sysfs_streq(text, "hold") && !sysfs_streq(text, "pass"))
		error = -EINVAL;
	else if (is_anothers())
		error = -EBUSY;
	else if (sysfs_streq(text, "pass"))
		error = pass();
	else
		hold();
	mutex_unlock(&guard_lock);
	return error;
}

static int cxl_guard_get(char *buffer, const struct kernel_param *parameter)
{
	const char *state;

	mutex_lock(&guard_lock);
	state = !has_guard ? "none" : passer ? "pass" : "hold";
	mutex_unlock(&guard_lock);
	return sysfs_emit(buffer, "%s\n", state);
}

static const struct kernel_param_ops cxl_guard_ops = {
	.set = cxl_guard_set,
	.get = cxl_guard_get,
};
module_param_cb(cxl_guard, &cxl_guard_ops, NULL, 0600);
MODULE_PARM_DESC(cxl_guard, "CXL memory that is in use forbids hibernation: hold, or pass for the writer");

void dormouse_cxl_guard_init(void)
{
	int error;

	mutex_lock(&guard_lock);
	/* Never armed: it only looks up the name. */
	error = arm(KPROBE_FLAG_DISABLED);
	if (!error)
		unregister_kprobe(&probe);
	has_guard = !error;
	ready = true;
	mutex_unlock(&guard_lock);
}

void dormouse_cxl_guard_exit(void)
{
	mutex_lock(&guard_lock);
	hold();
	ready = false;
	mutex_unlock(&guard_lock);
}
