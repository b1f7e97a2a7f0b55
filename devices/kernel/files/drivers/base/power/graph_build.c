// SPDX-License-Identifier: GPL-2.0-only
/* Graph-ordered suspend and resume: the graph of a transition, from parents and device links. */
#include <linux/device.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "graph_internal.h"

/* Makes room for another one: their number is known only afterwards. */
static int grow(struct dpm_graph_edges *edges)
{
	u32 room = edges->room ? 2 * edges->room : 256;
	struct dpm_graph_edge *more;

	if (edges->count < edges->room)
		return 0;
	more = kvmalloc_array(room, sizeof(*more), GFP_KERNEL);
	if (!more)
		return -ENOMEM;
	if (edges->count)
		memcpy(more, edges->edge, edges->count * sizeof(*more));
	kvfree(edges->edge);
	edges->edge = more;
	edges->room = room;
	return 0;
}

static int add_edge(struct dpm_graph_edges *edges, u32 superior, u32 subordinate, bool lasting)
{
	const struct dpm_graph_edge edge = { .superior = superior, .subordinate = subordinate };
	int error = grow(edges);

	if (error)
		return error;
	if (lasting) {
		edges->edge[edges->count++] = edges->edge[edges->lasting];
		edges->edge[edges->lasting++] = edge;
	} else {
		edges->edge[edges->count++] = edge;
	}
	return 0;
}

/* Its number in the graph; DPM_GRAPH_NONE if it has none. */
static u32 index_of(const struct dpm_graph *graph, const struct device *dev)
{
	const struct dpm_graph_device *gd = dev ? dpm_graph_of(dev) : NULL;

	return gd && gd->generation == graph->generation ? gd->index : DPM_GRAPH_NONE;
}

/* A link for sync_state() alone declares no dependency. */
bool dpm_graph_link_counts(const struct device_link *link)
{
	const u32 markers = DL_FLAG_INFERRED | DL_FLAG_CYCLE | DL_FLAG_MANAGED;

	return (link->flags & ~markers) != DL_FLAG_SYNC_STATE_ONLY;
}

/*
 * Whether the link's devices wait for each other. While its supplier has no driver they do not, and
 * no driver binds during a transition.
 */
static bool link_orders(const struct device_link *link)
{
	return READ_ONCE(link->status) != DL_STATE_DORMANT;
}

/*
 * Some kernels decide along a link that orders nothing, too, whether the supplier may be left
 * suspended (direct-complete). They do that in the first phase: the consumer then has to be first
 * there, as in the list.
 */
static bool link_orders_first_phase(const struct device_link *link)
{
	return link->supplier->power.direct_complete;
}

/* The list orders the two devices, so that no link can close a circle. */
static int add_link(struct dpm_graph_edges *edges, u32 supplier, u32 consumer, bool lasting)
{
	return add_edge(edges, min(supplier, consumer), max(supplier, consumer), lasting);
}

/* The device links are locked. */
static int add_edges_of(const struct dpm_graph *graph, struct dpm_graph_edges *edges, u32 index)
{
	struct device *dev = graph->device[index];
	u32 superior = index_of(graph, dev->parent);
	struct device_link *link;
	int error = 0;

	if (superior != DPM_GRAPH_NONE)
		error = add_edge(edges, superior, index, true);
	list_for_each_entry_srcu(link, &dev->links.suppliers, c_node,
				 device_links_read_lock_held()) {
		bool lasting = link_orders(link);

		if (error || !dpm_graph_link_counts(link))
			continue;
		if (!lasting && !link_orders_first_phase(link))
			continue;
		superior = index_of(graph, link->supplier);
		if (superior != DPM_GRAPH_NONE)
			error = add_link(edges, superior, index, lasting);
	}
	return error;
}

static int add_edges(const struct dpm_graph *graph, struct dpm_graph_edges *edges, u32 devices)
{
	int locked = device_links_read_lock();
	int error = 0;
	u32 i;

	for (i = 0; i < devices && !error; i++)
		error = add_edges_of(graph, edges, i);
	device_links_read_unlock(locked);
	return error;
}

static bool has_supplier_link(struct device *dev)
{
	struct device_link *link;
	bool found = false;
	int locked;

	locked = device_links_read_lock();
	list_for_each_entry_srcu(link, &dev->links.suppliers, c_node,
				 device_links_read_lock_held())
		found |= dpm_graph_link_counts(link);
	device_links_read_unlock(locked);
	return found;
}

/* Whether the device keeps its place in the list among all that do. */
static bool keeps_list_order(struct device *dev)
{
	/* It has no callback, and the graph has its dependents. */
	if (dev->power.no_pm_callbacks || dev->power.syscore)
		return false;
	if (pm_trace_is_enabled())
		return true;
	switch (dpm_graph_switches.scope) {
	case DPM_GRAPH_SCOPE_ALL:
		return false;
	case DPM_GRAPH_SCOPE_DECLARED:
		if (has_supplier_link(dev))
			return false;
		fallthrough;
	default:
		return !dpm_graph_user_async() || !dev->power.async_suspend;
	}
}

static u32 count_devices(struct list_head *list)
{
	struct device *dev;
	u32 count = 0;

	list_for_each_entry(dev, list, power.entry)
		count += !dpm_graph_is_stranger(dev);
	return count;
}

static void number_devices(struct dpm_graph *graph, struct list_head *list)
{
	struct device *dev;
	u32 i = 0;

	list_for_each_entry(dev, list, power.entry) {
		struct dpm_graph_device *gd;

		if (dpm_graph_is_stranger(dev))
			continue;
		gd = dpm_graph_of(dev);
		gd->index = i;
		gd->generation = graph->generation;
		gd->suspended = 0;
		gd->left_suspended = false;
		graph->of[i] = gd;
		graph->device[i++] = dev;
	}
}

static void free_arrays(struct dpm_graph *graph)
{
	kvfree(graph->device);
	kvfree(graph->of);
	kvfree(graph->memory);
	kvfree(graph->edges.edge);
	graph->device = NULL;
	graph->of = NULL;
	graph->memory = NULL;
	memset(&graph->edges, 0, sizeof(graph->edges));
}

int dpm_graph_build_from(struct dpm_graph *graph, struct list_head *list)
{
	u32 count = count_devices(list);
	struct dpm_graph_edges *edges = &graph->edges;
	int error = -ENOMEM;
	u32 i;

	/* 0 is the generation of devices that were never in a graph. */
	if (!++graph->generation)
		graph->generation++;
	graph->device = kvcalloc(count + 1, sizeof(*graph->device), GFP_KERNEL);
	graph->of = kvcalloc(count + 1, sizeof(*graph->of), GFP_KERNEL);
	if (!graph->device || !graph->of)
		goto free;
	number_devices(graph, list);
	error = add_edges(graph, edges, count);
	if (error)
		goto free;
	graph->memory = kvzalloc(dpm_graph_bytes(count, edges->count), GFP_KERNEL);
	if (!graph->memory) {
		error = -ENOMEM;
		goto free;
	}

	dpm_graph_init(&graph->core, graph->memory, count, edges->count);
	for (i = 0; i < count; i++) {
		get_device(graph->device[i]);
		graph->core.node[i].ordered = keeps_list_order(graph->device[i]);
	}
	dpm_graph_build(&graph->core, edges->edge, edges->count);
	return 0;

free:
	free_arrays(graph);
	return error;
}

void dpm_graph_end_first_phase(struct dpm_graph *graph)
{
	if (graph->edges.lasting < graph->edges.count)
		dpm_graph_build(&graph->core, graph->edges.edge, graph->edges.lasting);
}

void dpm_graph_free(struct dpm_graph *graph)
{
	u32 i;

	if (!graph->device)
		return;
	for (i = 0; i < graph->core.devices; i++)
		put_device(graph->device[i]);
	free_arrays(graph);
	graph->core.devices = 0;
}
