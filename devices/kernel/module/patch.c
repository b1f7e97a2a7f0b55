// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: the one function that is replaced, by a livepatch.
 *
 * A driver that depends on a device without saying so calls device_pm_wait_for_dev(). The stock
 * function waits only if one of the two may be asynchronous; in graph order any two devices may run
 * at once. Nothing else tells that a worker is about to wait.
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/livepatch.h>
#include <linux/module.h>

#include "graph_internal.h"
#include "host.h"

static bool in_force;

static int wait_for_dev(struct device *subordinate, struct device *dev)
{
	bool waits;

	if (!dev || dev->power.no_pm)
		return READ_ONCE(*dpm_host.async_error);
	/* As the stock function, with the value that the user gave. */
	waits = subordinate->power.async_suspend ||
		(dpm_graph_user_async() && dev->power.async_suspend);
	if (dpm_graph_block(subordinate, dev) || waits)
		wait_for_completion(&dev->power.completion);
	return READ_ONCE(*dpm_host.async_error);
}

static void post_patch(struct klp_object *object)
{
	WRITE_ONCE(in_force, true);
}

/* Without it graph order would not be safe: from here on the stock order. */
static void pre_unpatch(struct klp_object *object)
{
	WRITE_ONCE(in_force, false);
	dpm_graph_switch_off();
}

static struct klp_func functions[] = {
	{
		.old_name = "device_pm_wait_for_dev",
		.new_func = wait_for_dev,
	},
	{ }
};

/* Without a name: the kernel itself. */
static struct klp_object objects[] = {
	{
		.funcs = functions,
		.callbacks = {
			.post_patch = post_patch,
			.pre_unpatch = pre_unpatch,
		},
	},
	{ }
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objects,
};

bool dpm_graph_may_switch_on(void)
{
	return READ_ONCE(in_force);
}

int dpm_patch_enable(void)
{
	int error = klp_enable_patch(&patch);

	if (error)
		pr_err("not loaded: the kernel refuses the livepatch (error %d)\n", error);
	return error;
}

MODULE_INFO(livepatch, "Y");
