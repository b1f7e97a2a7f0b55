// SPDX-License-Identifier: GPL-2.0-only
/* Random gains and overheads through graph_choice.c. */
#include "graph_choice.h"
#include "graph_choice_test.h"
#include "random.h"

/* All phases, one transition in graph order; returns by how much it loses, if it does. */
static int64_t weigh_all(struct dpm_graph_choice *choice, uint32_t max_gain_us)
{
	int64_t loss_us = 0;
	uint32_t phase;

	for (phase = 0; phase < DPM_GRAPH_CHOICE_PHASES; phase++) {
		uint32_t gain_us = random_below(max_gain_us), overhead_us = random_below(100);

		CHECK(!dpm_graph_prefers_list(choice, true, 7, 1000),
		      "list order with %u of the phases measured", phase);
		dpm_graph_weigh(choice, phase, gain_us, overhead_us);
		loss_us += (int64_t)overhead_us - gain_us;
	}
	return loss_us;
}

/* Transitions in list order until graph order is back. */
static void check_list(struct dpm_graph_choice *choice, int64_t loss_us)
{
	uint32_t stays = random_below(DPM_GRAPH_CHOICE_AGAIN), i;
	bool known = true;
	uint32_t devices = 7;
	uint64_t costs_us = 1000;

	for (i = 0; i < stays; i++)
		/* The first one is the measure; they may grow, but not by what was missing. */
		CHECK(dpm_graph_prefers_list(choice, true, 7,
					     1000 + (i ? random_below(loss_us) : 0)),
		      "graph order after %u transitions in list order", i);
	switch (random_below(4)) {
	case 0:
		known = false;
		break;
	case 1:
		devices = random_below(2) ? 6 : 8;
		break;
	case 2:
		costs_us += loss_us;
		break;
	default:
		for (; i < DPM_GRAPH_CHOICE_AGAIN; i++)
			CHECK(dpm_graph_prefers_list(choice, true, 7, 1000),
			      "graph order after %u transitions in list order", i);
	}
	if (!i && known)
		return;
	CHECK(!dpm_graph_prefers_list(choice, known, devices, costs_us),
	      "list order, though something has changed");
	CHECK(!choice->measured, "what was measured before is still believed");
}

void one_choice(void)
{
	struct dpm_graph_choice choice = { };
	int64_t loss_us = weigh_all(&choice, random_below(2) ? 60 : 200);

	CHECK(dpm_graph_loses(&choice) == (loss_us > 0), "%" PRId64 " us lost, said: %d", loss_us,
	      dpm_graph_loses(&choice));
	if (loss_us > 0)
		check_list(&choice, loss_us);
	else
		CHECK(!dpm_graph_prefers_list(&choice, true, 7, 1000), "list order gains nothing");
}
