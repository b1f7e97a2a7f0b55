// SPDX-License-Identifier: GPL-2.0-only
/* Device graphs with everything that graph_core.c may meet: wrong costs, edges against the list. */
#include <stdlib.h>

#include "random.h"
#include "random_graph.h"

static uint32_t random_cost_us(void)
{
	switch (random_below(10)) {
	case 0:
		return 5000 + random_below(25000);
	case 1:
		return 100 + random_below(2000);
	case 2:
		return 0;
	default:
		return random_below(40);
	}
}

struct graph random_graph(uint32_t max_devices)
{
	struct graph g = { .devices = random_below(max_devices + 1) };
	uint32_t dense = random_below(4), order_percent = random_below(101);
	uint32_t i;

	if (!random_below(20))
		g.devices = random_below(4);
	g.edges = g.devices * dense + random_below(g.devices + 1);
	if (g.devices < 2)
		g.edges = 0;
	g.edge = allocate(g.edges, sizeof(*g.edge));
	g.ordered = allocate(g.devices, sizeof(*g.ordered));
	g.cost_us = allocate(g.devices, sizeof(*g.cost_us));
	g.wait_us = allocate(g.devices, sizeof(*g.wait_us));
	g.span_us = allocate(g.devices, sizeof(*g.span_us));
	g.contended = allocate(g.devices, sizeof(*g.contended));
	g.real_us = allocate(g.devices, sizeof(*g.real_us));
	for (i = 0; i < g.edges; i++) {
		uint32_t a = random_below(g.devices), b = random_below(g.devices);
		/* Near neighbours more often than not, as buses have them. */
		if (random_below(3))
			b = (a + 1 + random_below(8)) % g.devices;
		/* Most as the list has them, a few against it, and devices linked to themselves. */
		if (a > b && random_below(50)) {
			uint32_t swap = a;

			a = b;
			b = swap;
		}
		g.edge[i] = (struct dpm_graph_edge){ .superior = a, .subordinate = b };
	}
	for (i = 0; i < g.devices; i++) {
		g.ordered[i] = random_below(100) < order_percent;
		g.real_us[i] = random_cost_us();
		g.cost_us[i] = random_below(10) ? g.real_us[i] : random_cost_us();
		g.wait_us[i] = random_below(3) ? 0 : g.cost_us[i];
		if (!random_below(4))
			g.span_us[i] = g.cost_us[i] + random_cost_us();
		g.contended[i] = random_below(2);
		if (!random_below(20))
			g.cost_us[i] = DPM_GRAPH_UNKNOWN;
	}
	return g;
}

void free_graph(struct graph *g)
{
	free(g->edge);
	free(g->ordered);
	free(g->cost_us);
	free(g->wait_us);
	free(g->span_us);
	free(g->contended);
	free(g->real_us);
}
