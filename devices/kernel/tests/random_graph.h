/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef RANDOM_GRAPH_H
#define RANDOM_GRAPH_H

#include "graph_core.h"

/* What the test knows of a graph, apart from what graph_core.c makes of it. */
struct graph {
	uint32_t devices;
	uint32_t edges;
	struct dpm_graph_edge *edge;
	bool *ordered;
	uint32_t *cost_us;
	uint32_t *wait_us;
	/* What it took when others held what it needs. */
	uint32_t *span_us;
	bool *contended;
	/* What the device takes really: the known cost may be wrong. */
	uint32_t *real_us;
};

struct graph random_graph(uint32_t max_devices);
void free_graph(struct graph *g);

#endif
