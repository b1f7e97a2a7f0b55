// SPDX-License-Identifier: GPL-2.0-only
/* Random machines through graph_choice.c. */
#include "graph_choice.h"
#include "graph_choice_test.h"
#include "random.h"

/* What one machine takes for a transition. */
struct machine {
	uint32_t devices;
	/* The sum of its devices' costs. */
	uint32_t costs_us;
	/* In graph order, these per mille of the costs are beside others. */
	uint32_t gain;
	/* The kernel's own part in each order. */
	uint32_t list_us;
	uint32_t graph_us;
};

static uint32_t in_list_order_us(const struct machine *m)
{
	return m->costs_us + m->list_us;
}

static uint32_t in_graph_order_us(const struct machine *m)
{
	return m->costs_us - (uint64_t)m->costs_us * m->gain / 1000 + m->graph_us;
}

/* One transition; whether it went in list order. */
static bool transition(struct dpm_graph_choice *choice, const struct machine *m)
{
	bool list;

	dpm_graph_choice_of(choice, m->devices);
	list = dpm_graph_may_lose(choice) && dpm_graph_prefers_list(choice, m->costs_us);
	if (list)
		dpm_graph_note_order(&choice->list, in_list_order_us(m), m->costs_us);
	else
		dpm_graph_note_order(&choice->graph, in_graph_order_us(m), m->costs_us);
	return list;
}

/*
 * After so many, the slower order comes only in order to be measured again, unless it is slower by
 * so little.
 */
static void check_choices(struct dpm_graph_choice *choice, const struct machine *m,
			  uint32_t learning, uint32_t tolerance_us)
{
	const uint32_t rounds = 4;
	bool list_is_faster = in_list_order_us(m) < in_graph_order_us(m);
	int64_t difference_us = (int64_t)in_list_order_us(m) - in_graph_order_us(m);
	uint32_t slower = 0, faster = 0, i;

	for (i = 0; i < learning + rounds * (DPM_GRAPH_CHOICE_AGAIN_MAX + 1); i++) {
		bool list = transition(choice, m);

		if (i < learning)
			continue;
		if (list == list_is_faster)
			faster++;
		else
			slower++;
	}
	if (llabs(difference_us) < tolerance_us)
		return;
	CHECK(slower <= rounds, "%u of %u transitions in the slower order, %u us and not %u",
	      slower, slower + faster, list_is_faster ? in_graph_order_us(m) : in_list_order_us(m),
	      list_is_faster ? in_list_order_us(m) : in_graph_order_us(m));
	if (list_is_faster)
		CHECK(slower == rounds, "graph order was measured %u times again", slower);
	if (m->costs_us >= in_graph_order_us(m))
		CHECK(!slower, "list order, which takes more than its devices alone");
}

static struct machine random_machine(void)
{
	return (struct machine){
		.devices = 1 + random_below(300),
		.costs_us = random_below(2) ? random_below(2000) : random_below(200000),
		.gain = random_below(900),
		.list_us = 1 + random_below(1000),
		.graph_us = 1 + random_below(1000),
	};
}

/* The first transition in graph order takes longer than it will, for reasons of its own. */
static void one_exception(void)
{
	struct dpm_graph_choice choice = { };
	struct machine m = random_machine();
	uint32_t us = in_graph_order_us(&m), i, in_list_order = 0;

	/* List order takes longer by a quarter at least, and it took up to twice as long once. */
	m.costs_us = us + us / 4 + random_below(us);
	m.gain = 0;
	dpm_graph_choice_of(&choice, m.devices);
	dpm_graph_note_order(&choice.graph, us + random_below(us), m.costs_us);
	for (i = 0; i < 100; i++) {
		bool list = dpm_graph_may_lose(&choice) &&
			dpm_graph_prefers_list(&choice, m.costs_us);

		in_list_order += list;
		dpm_graph_note_order(list ? &choice.list : &choice.graph,
				     list ? in_list_order_us(&m) : us, m.costs_us);
	}
	CHECK(in_list_order <= 4 + 8, "%u transitions in list order for one exception",
	      in_list_order);
}

void one_choice(void)
{
	/* Four averages, each rounded. */
	const uint32_t rounding_us = 16;
	/* Until the other order comes as rarely as it ever does: 4, 8, 16 and 32 in a row. */
	const uint32_t settling = 2 * DPM_GRAPH_CHOICE_AGAIN_MAX + 8;
	struct dpm_graph_choice choice = { };
	struct machine m = random_machine();

	check_choices(&choice, &m, settling, rounding_us);
	m.devices++;
	m.costs_us = random_machine().costs_us;
	CHECK(!transition(&choice, &m), "list order of devices that were never in graph order");
	check_choices(&choice, &m, settling, rounding_us);
	/* The averages have to follow; a small change is none. */
	m.costs_us = random_machine().costs_us;
	check_choices(&choice, &m, 2 * DPM_GRAPH_CHOICE_AGAIN_MAX + settling,
		      rounding_us + m.costs_us / 15);
	one_exception();
}
