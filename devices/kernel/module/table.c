// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: the state of each device, beside the device.
 *
 * A device is known by its address and its name: what is learnt of one that was unplugged counts
 * for another one of the same name in the same place, and for no other.
 */
#include <linux/hashtable.h>
#include <linux/slab.h>
#include <linux/stringhash.h>

#include "graph_host.h"
#include "host.h"

struct entry {
	struct hlist_node node;
	const struct device *dev;
	u32 name_hash;
	/* The last transition that it took part in. */
	u32 seen;
	struct rcu_head rcu;
	struct dpm_graph_device state;
};

/* Changed only by dpm_graph_know() and when the module leaves; read by callbacks at any time. */
static DEFINE_HASHTABLE(table, 10);
static u32 transition;

struct dpm_graph_device dpm_graph_unknown;

const char dpm_conductor[] = "dormouse-dpm";

static struct entry *find(const struct device *dev)
{
	struct entry *entry;

	hash_for_each_possible_rcu(table, entry, node, (unsigned long)dev)
		if (entry->dev == dev)
			return entry;
	return NULL;
}

/* The state itself lives on: only that of a device which left the list before a transition goes. */
struct dpm_graph_device *dpm_graph_of(const struct device *dev)
{
	struct dpm_graph_device *gd = &dpm_graph_unknown;
	struct entry *entry;

	rcu_read_lock();
	entry = find(dev);
	if (entry)
		gd = &entry->state;
	rcu_read_unlock();
	return gd;
}

static u32 hash_of_name(const struct device *dev)
{
	const char *name = dev_name(dev);

	return full_name_hash(NULL, name, strlen(name));
}

static void drop(struct entry *entry)
{
	hash_del_rcu(&entry->node);
	kfree_rcu(entry, rcu);
}

/* A callback that was given up may come back and use it. */
static bool may_go(const struct entry *entry)
{
	return !entry->state.stuck;
}

int dpm_graph_know(struct list_head *list)
{
	struct device *dev;
	struct entry *entry;
	struct hlist_node *next;
	int bucket;

	transition++;
	list_for_each_entry(dev, list, power.entry) {
		u32 name_hash = hash_of_name(dev);

		if (dpm_graph_is_stranger(dev))
			continue;
		entry = find(dev);
		if (entry && entry->name_hash != name_hash && may_go(entry)) {
			drop(entry);
			entry = NULL;
		}
		if (!entry) {
			entry = kzalloc(sizeof(*entry), GFP_KERNEL);
			if (!entry)
				return -ENOMEM;
			entry->dev = dev;
			entry->name_hash = name_hash;
			hash_add_rcu(table, &entry->node, (unsigned long)dev);
		}
		entry->seen = transition;
	}
	hash_for_each_safe(table, bucket, next, entry, node)
		if (entry->seen != transition && may_go(entry))
			drop(entry);
	return 0;
}

void dpm_table_free(void)
{
	struct hlist_node *next;
	struct entry *entry;
	int bucket;

	hash_for_each_safe(table, bucket, next, entry, node) {
		hash_del_rcu(&entry->node);
		kfree_rcu(entry, rcu);
	}
}
