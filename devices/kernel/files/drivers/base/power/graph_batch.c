// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume: batches of devices in list order.
 *
 * In list order a device often takes less than the lock that guards the graph's state. So a worker
 * takes many devices at a time and begins one after the other without the lock. Meanwhile the graph
 * knows only that the batch runs.
 *
 * A task that has to know more takes the lock and closes the batch: the worker begins no further
 * device of it. The graph is then as if the worker had taken the devices one by one: those before
 * the one that was begun last have run, that one is running, and the others were never taken. The
 * worker learns of this when it is about to begin the next one.
 *
 *	begun     what it means
 *	0 ... n   the worker has begun so many, and all but the last one have run
 *	CLOSED    there is no batch, or it was closed
 */
#include "graph_internal.h"

/* With the lock held. Whether there is a device to run. */
bool dpm_graph_batch_open(struct dpm_graph_batch *batch, struct dpm_graph *graph)
{
	batch->count = dpm_graph_take_batch(&graph->core, DPM_GRAPH_BATCH, &batch->first);
	if (!batch->count)
		return false;
	atomic_set(&batch->begun, 0);
	return true;
}

/* With the lock held. The first @finished devices have run; with @runs the next one is running. */
static void end(const struct dpm_graph_batch *batch, struct dpm_graph *graph, u32 finished,
		bool runs)
{
	dpm_graph_end_batch(&graph->core, batch->first, finished, runs);
	dpm_graph_record(graph, batch->ran, finished);
}

/*
 * The worker, with the lock held, after it has run so many devices. False if the batch was closed
 * before: the last one of these is then still to be finished.
 */
bool dpm_graph_batch_end(struct dpm_graph_batch *batch, struct dpm_graph *graph, u32 ran)
{
	if (!dpm_graph_batch_is_open(batch))
		return false;
	atomic_set(&batch->begun, DPM_GRAPH_BATCH_CLOSED);
	end(batch, graph, ran, false);
	return true;
}

/* Any task, with the lock held. The device that is running; DPM_GRAPH_NONE if none has begun. */
u32 dpm_graph_batch_close(struct dpm_graph_batch *batch, struct dpm_graph *graph)
{
	/* Pairs with dpm_graph_batch_next(): what the worker wrote about those that have run. */
	int begun = atomic_xchg(&batch->begun, DPM_GRAPH_BATCH_CLOSED);

	if (!begun) {
		end(batch, graph, 0, false);
		return DPM_GRAPH_NONE;
	}
	end(batch, graph, begun - 1, true);
	return dpm_graph_in_list(&graph->core, batch->first + begun - 1);
}
