// SPDX-License-Identifier: GPL-2.0-only
/*
 * Made-up devices: /sys/kernel/debug/pm_graph_test.
 *
 *	graph    write the text of a graph (from the beginning of the file: a new text)
 *	build    write anything: replaces the devices of the last text by those of this one
 *	inject   fail DEVICE PHASE [ERRNO], wake DEVICE PHASE, hang DEVICE PHASE MILLISECONDS,
 *		 remove DEVICE PHASE OTHER or add DEVICE PHASE OTHER
 *	order    read which callbacks ran in which order; write anything: forget it
 *	permit   1: all devices may leave the list's order, 0: none may; power/async is missing on
 *		 kernels without CONFIG_PM_ADVANCED_DEBUG
 *	status   the number of devices, and the error in the last text, if any
 *	phases, wake: graph_test_phases.c
 */
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "graph_test.h"

#define MAX_TEXT_BYTES	SZ_1M

static DEFINE_MUTEX(lock);
static char *text;
static size_t text_bytes;
static char complaint[128];
static struct dentry *folder;

static ssize_t graph_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	ssize_t result = count;

	mutex_lock(&lock);
	if (!*at)
		text_bytes = 0;
	if (*at != text_bytes || count > MAX_TEXT_BYTES - text_bytes)
		result = -EFBIG;
	else if (copy_from_user(text + text_bytes, from, count))
		result = -EFAULT;
	if (result > 0) {
		text_bytes += count;
		*at += count;
	}
	mutex_unlock(&lock);
	return result;
}

static const struct file_operations graph_fops = {
	.owner = THIS_MODULE,
	.write = graph_write,
};

static ssize_t build_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	int error;

	mutex_lock(&lock);
	test_devices_remove();
	test_events_clear();
	complaint[0] = 0;
	/* One byte more than fits was allocated. */
	text[text_bytes] = 0;
	error = test_parse_graph(text, complaint, sizeof(complaint));
	/* Parsing has cut it into words. */
	text_bytes = 0;
	if (error)
		test_devices_remove();
	mutex_unlock(&lock);
	return error ?: count;
}

static const struct file_operations build_fops = {
	.owner = THIS_MODULE,
	.write = build_write,
};

static ssize_t inject_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char line[128];
	int error;

	if (count >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, count))
		return -EFAULT;
	line[count] = 0;
	mutex_lock(&lock);
	complaint[0] = 0;
	error = test_parse_injection(strim(line), complaint, sizeof(complaint));
	mutex_unlock(&lock);
	return error ?: count;
}

static const struct file_operations inject_fops = {
	.owner = THIS_MODULE,
	.write = inject_write,
};

static int order_show(struct seq_file *file, void *unused)
{
	test_events_show(file);
	return 0;
}

static int order_open(struct inode *inode, struct file *file)
{
	return single_open_size(file, order_show, NULL, 1 << 20);
}

static ssize_t order_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	test_events_clear();
	return count;
}

static const struct file_operations order_fops = {
	.owner = THIS_MODULE,
	.open = order_open,
	.read = seq_read,
	.write = order_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static ssize_t permit_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	bool all;
	int error = kstrtobool_from_user(from, count, &all);

	if (error)
		return error;
	mutex_lock(&lock);
	test_devices_permit(all);
	mutex_unlock(&lock);
	return count;
}

static const struct file_operations permit_fops = {
	.owner = THIS_MODULE,
	.write = permit_write,
};

static int status_show(struct seq_file *file, void *unused)
{
	mutex_lock(&lock);
	seq_printf(file, "devices %u\n", test_devices_count());
	if (complaint[0])
		seq_printf(file, "error %s\n", complaint);
	mutex_unlock(&lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(status);

static int __init pm_graph_test_init(void)
{
	int error;

	text = kvmalloc(MAX_TEXT_BYTES + 1, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	error = test_buses_register();
	if (error)
		goto free_text;
	folder = debugfs_create_dir("pm_graph_test", NULL);
	error = test_phases_add(folder);
	if (error)
		goto remove_folder;
	debugfs_create_file("graph", 0200, folder, NULL, &graph_fops);
	debugfs_create_file("build", 0200, folder, NULL, &build_fops);
	debugfs_create_file("inject", 0200, folder, NULL, &inject_fops);
	debugfs_create_file("order", 0600, folder, NULL, &order_fops);
	debugfs_create_file("permit", 0200, folder, NULL, &permit_fops);
	debugfs_create_file("status", 0400, folder, NULL, &status_fops);
	return 0;

remove_folder:
	debugfs_remove(folder);
	test_buses_unregister();
free_text:
	kvfree(text);
	return error;
}
module_init(pm_graph_test_init);

static void __exit pm_graph_test_exit(void)
{
	debugfs_remove(folder);
	test_phases_remove();
	test_devices_remove();
	test_buses_unregister();
	kvfree(text);
}
module_exit(pm_graph_test_exit);

MODULE_DESCRIPTION("Made-up devices for tests of suspend and resume");
MODULE_LICENSE("GPL");
