// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: costs and the last transition, in /sys/kernel/debug/pm_graph.
 *
 *	costs   a line for each device and phase that was measured:
 *	        PHASE WORST-us MEAN-us WAIT-us LAST-us RUNS ASYNC DEVICE
 *	        (ASYNC: - not allowed, a allowed, t allowed by the threshold); writing forgets all
 *	order   of the last transition in graph mode, phase by phase, as devices finished:
 *	        PHASE BEGIN-us END-us WORKER DEVICE
 *	phases  of the same: PHASE DEVICES DONE WAKES us HELD
 *	        (HELD: devices that waited until another one had a head start)
 *	choice  why the next transition goes in graph order or not: ORDER us COSTS-us, moving
 *	        averages of what a transition takes, and of the sum of its devices' costs
 */
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "graph_internal.h"

#define NAME_BYTES	40

static struct {
	/* Excludes readers while a transition begins; a transition has no concurrent writer. */
	struct mutex lock;
	u32 devices;
	char (*name)[NAME_BYTES];
	struct dpm_graph_record *record[DPM_GRAPH_PHASES];
	struct {
		u32 devices;
		u32 done;
		u32 wakes;
		u32 us;
		u32 held;
	} phase[DPM_GRAPH_PHASES];
	u32 generation;
} records = {
	.lock = __MUTEX_INITIALIZER(records.lock),
};

static void free_records(void)
{
	int phase;

	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++) {
		kvfree(records.record[phase]);
		records.record[phase] = NULL;
	}
	kvfree(records.name);
	records.name = NULL;
	records.devices = 0;
}

/* Without memory there are no records; the transition continues. */
static void new_transition(const struct dpm_graph *graph)
{
	u32 devices = graph->core.devices;
	bool whole = true;
	int phase;
	u32 i;

	if (devices > records.devices) {
		free_records();
		records.name = kvcalloc(devices, NAME_BYTES, GFP_KERNEL);
		whole = records.name;
		for (phase = 0; phase < DPM_GRAPH_PHASES; phase++) {
			records.record[phase] = kvcalloc(devices, sizeof(**records.record),
							 GFP_KERNEL);
			whole = whole && records.record[phase];
		}
		if (!whole) {
			free_records();
			return;
		}
		records.devices = devices;
	}
	memset(records.phase, 0, sizeof(records.phase));
	for (i = 0; i < devices; i++)
		strscpy(records.name[i], dev_name(graph->device[i]), NAME_BYTES);
}

void dpm_graph_records_begin(struct dpm_graph *graph)
{
	mutex_lock(&records.lock);
	if (graph->generation != records.generation) {
		records.generation = graph->generation;
		new_transition(graph);
	}
	records.phase[graph->phase].devices = graph->core.devices;
	records.phase[graph->phase].done = 0;
	mutex_unlock(&records.lock);
}

/* Called with the workers' lock held. */
void dpm_graph_record(struct dpm_graph *graph, const struct dpm_graph_record *ran, u32 count)
{
	u32 *done = &records.phase[graph->phase].done;
	struct dpm_graph_record *record = records.record[graph->phase] + *done;
	u32 i;

	if (*done >= records.devices)
		return;
	count = min(count, records.devices - *done);
	/* Mostly one: memcpy() would take longer. */
	for (i = 0; i < count; i++)
		record[i] = ran[i];
	*done += count;
}

void dpm_graph_records_end(struct dpm_graph *graph)
{
	records.phase[graph->phase].wakes = graph->wakes;
	records.phase[graph->phase].held = graph->core.have_waited;
	records.phase[graph->phase].us = ktime_us_delta(ktime_get(), graph->begin);
}

static int order_show(struct seq_file *file, void *unused)
{
	int phase;
	u32 i;

	mutex_lock(&records.lock);
	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++) {
		for (i = 0; i < records.phase[phase].done; i++) {
			const struct dpm_graph_record *r = &records.record[phase][i];

			seq_printf(file, "%s %u %u %u %s\n", dpm_graph_phase_names[phase],
				   r->begin_us, r->end_us, r->worker, records.name[r->index]);
		}
	}
	mutex_unlock(&records.lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(order);

static int phases_show(struct seq_file *file, void *unused)
{
	int phase;

	mutex_lock(&records.lock);
	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++)
		if (records.phase[phase].devices)
			seq_printf(file, "%s %u %u %u %u %u\n", dpm_graph_phase_names[phase],
				   records.phase[phase].devices, records.phase[phase].done,
				   records.phase[phase].wakes, records.phase[phase].us,
				   records.phase[phase].held);
	mutex_unlock(&records.lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(phases);

static void show_took(struct seq_file *file, const char *order, const struct dpm_graph_took *took)
{
	if (took->us)
		seq_printf(file, "%s %u %u\n", order, took->us, took->costs_us);
}

static int choice_show(struct seq_file *file, void *unused)
{
	device_pm_lock();
	show_took(file, "graph", &dpm_graph_choice.graph);
	show_took(file, "list", &dpm_graph_choice.list);
	device_pm_unlock();
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(choice);

static void show_costs_of(struct seq_file *file, const struct device *dev)
{
	const struct dpm_graph_device *gd = dpm_graph_of(dev);
	char async = gd->made_async ? 't' : dev->power.async_suspend ? 'a' : '-';
	int phase;

	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++) {
		const struct dpm_graph_cost *cost = &gd->cost[phase];

		if (cost->runs)
			seq_printf(file, "%s %u %u %u %u %u %c %s\n",
				   dpm_graph_phase_names[phase], cost->worst_us,
				   cost->busy_us + cost->wait_us, cost->wait_us,
				   cost->last_us, cost->runs, async, dev_name(dev));
	}
}

static int costs_show(struct seq_file *file, void *unused)
{
	struct device *dev;

	device_pm_lock();
	list_for_each_entry(dev, &dpm_list, power.entry)
		show_costs_of(file, dev);
	device_pm_unlock();
	return 0;
}

static ssize_t costs_write(struct file *file, const char __user *text, size_t count, loff_t *at)
{
	dpm_graph_forget_costs();
	return count;
}
DEFINE_SHOW_STORE_ATTRIBUTE(costs);

static struct dentry *folder;

void dpm_graph_debugfs_add(void)
{
	folder = debugfs_create_dir("pm_graph", NULL);
	debugfs_create_file("costs", 0600, folder, NULL, &costs_fops);
	debugfs_create_file("order", 0400, folder, NULL, &order_fops);
	debugfs_create_file("phases", 0400, folder, NULL, &phases_fops);
	debugfs_create_file("choice", 0400, folder, NULL, &choice_fops);
}

/* No transition is under way. */
void dpm_graph_debugfs_remove(void)
{
	debugfs_remove(folder);
	free_records();
}

#ifndef MODULE
static int __init pm_graph_debugfs_init(void)
{
	dpm_graph_debugfs_add();
	return 0;
}
late_initcall(pm_graph_debugfs_init);
#endif
