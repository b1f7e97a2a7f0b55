// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the device graph's order, as the kernel compiles it. devices/kernel/tests runs
 * thousands of random graphs on the host.
 */
#include <kunit/test.h>

#include "graph_internal.h"

/*
 *	0 <-- 1 <-- 3
 *	^     ^---- 4
 *	+---- 2
 */
static const struct dpm_graph_edge tree[] = {
	{ 0, 1 }, { 0, 2 }, { 1, 3 }, { 1, 4 },
};

#define TREE_DEVICES	5

static void build(struct kunit *test, struct dpm_graph_core *core,
		  const struct dpm_graph_edge *edges, u32 count, u32 ordered)
{
	void *memory = kunit_kzalloc(test, dpm_graph_bytes(TREE_DEVICES, count), GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, memory);
	dpm_graph_init(core, memory, TREE_DEVICES, count);
	for (i = 0; i < TREE_DEVICES; i++)
		core->node[i].ordered = ordered & BIT(i);
	dpm_graph_build(core, edges, count);
}

static void begin(struct dpm_graph_core *core, enum dpm_graph_direction direction, u32 cpus,
		  u32 sleepers)
{
	const struct dpm_graph_settings settings = {
		.direction = direction,
		.threshold_us = 100,
		.cpus = cpus,
		.sleepers = sleepers,
	};

	dpm_graph_begin(core, &settings);
}

/* One worker alone takes everything; its order as decimal digits. */
static u32 order_of_one(struct kunit *test, struct dpm_graph_core *core)
{
	u32 order = 0, node;

	while ((node = dpm_graph_take(core)) != DPM_GRAPH_NONE) {
		order = 10 * order + node;
		dpm_graph_finish(core, node);
	}
	KUNIT_EXPECT_TRUE(test, dpm_graph_done(core));
	return order;
}

/* A phase that is known to be quick, and one that no longer is. */
static void begin_ready(struct kunit *test, struct dpm_graph_core *core,
			enum dpm_graph_direction direction, u32 cpus)
{
	begin(core, direction, cpus, 0);
	KUNIT_EXPECT_TRUE(test, core->in_list_order);
	dpm_graph_leave_list_order(core);
}

static u32 quick_ready(const struct dpm_graph_core *core)
{
	return core->quick.tail - core->quick.head;
}

static void leaves_come_first_down_and_roots_first_up(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin_ready(test, &core, DPM_GRAPH_DOWN, 1);
	KUNIT_EXPECT_EQ(test, quick_ready(&core), 3);
	KUNIT_EXPECT_EQ(test, order_of_one(test, &core), 43210);
	begin_ready(test, &core, DPM_GRAPH_UP, 1);
	KUNIT_EXPECT_EQ(test, quick_ready(&core), 1);
	KUNIT_EXPECT_EQ(test, order_of_one(test, &core), 2143);
}

static void the_longest_path_comes_first(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[2].cost_us = 300;
	core.node[3].cost_us = 400;
	begin(&core, DPM_GRAPH_DOWN, 1, 0);
	KUNIT_EXPECT_EQ(test, order_of_one(test, &core), 32410);
}

static void an_edge_against_the_list_is_left_out(struct kunit *test)
{
	static const struct dpm_graph_edge circle[] = {
		{ 0, 1 }, { 1, 2 }, { 2, 0 }, { 3, 3 }, { 4, 9 },
	};
	struct dpm_graph_core core;

	build(test, &core, circle, ARRAY_SIZE(circle), 0);
	KUNIT_EXPECT_EQ(test, core.edges_dropped, 3);
	begin_ready(test, &core, DPM_GRAPH_UP, 1);
	KUNIT_EXPECT_EQ(test, order_of_one(test, &core), 3412);
}

static void those_without_permission_keep_the_order_of_the_list(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, NULL, 0, BIT(0) | BIT(2) | BIT(3));
	core.node[0].cost_us = 1000;
	begin(&core, DPM_GRAPH_DOWN, 4, 0);
	KUNIT_EXPECT_EQ(test, core.others.count, 1);
	KUNIT_EXPECT_EQ(test, quick_ready(&core), 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), DPM_GRAPH_NONE);
	dpm_graph_finish(&core, 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	dpm_graph_finish(&core, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 0);
}

static u32 expect_worker_for_4(struct kunit *test, struct dpm_graph_core *core, u32 cpus,
			       u32 sleepers)
{
	u32 node;

	begin(core, DPM_GRAPH_DOWN, cpus, sleepers);
	node = dpm_graph_take(core);
	KUNIT_EXPECT_EQ(test, node, 4);
	KUNIT_EXPECT_TRUE(test, dpm_graph_wants_worker(core, node));
	return node;
}

static void a_worker_is_woken_for_a_slow_device_only(struct kunit *test)
{
	struct dpm_graph_core core;
	u32 node;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin_ready(test, &core, DPM_GRAPH_DOWN, 2);
	node = dpm_graph_take(&core);
	KUNIT_EXPECT_FALSE(test, dpm_graph_wants_worker(&core, node));

	core.node[4].cost_us = 101;
	node = expect_worker_for_4(test, &core, 2, 0);
	core.arriving = 1;
	KUNIT_EXPECT_FALSE(test, dpm_graph_wants_worker(&core, node));

	/* One processor: no other worker could run. */
	begin(&core, DPM_GRAPH_DOWN, 1, 0);
	node = dpm_graph_take(&core);
	KUNIT_EXPECT_FALSE(test, dpm_graph_wants_worker(&core, node));

	/* Unless it is known to sleep. */
	core.node[4].wait_us = 101;
	expect_worker_for_4(test, &core, 1, 1);

	/* A quick one may have to wait until its bus is free. */
	core.node[4].cost_us = 5;
	core.node[4].wait_us = 0;
	core.node[4].span_us = 101;
	begin_ready(test, &core, DPM_GRAPH_DOWN, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	KUNIT_EXPECT_TRUE(test, dpm_graph_wants_worker(&core, 4));
}

static void nothing_starts_after_a_stop(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin(&core, DPM_GRAPH_DOWN, 2, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	core.stopped = true;
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), DPM_GRAPH_NONE);
	KUNIT_EXPECT_FALSE(test, dpm_graph_done(&core));
	dpm_graph_finish(&core, 4);
	KUNIT_EXPECT_TRUE(test, dpm_graph_done(&core));
	KUNIT_EXPECT_EQ(test, core.finished, 1);
}

static void a_quick_phase_goes_in_list_order_by_one_worker(struct kunit *test)
{
	static const u32 expected[] = { 4, 3, 2, 1, 0 };
	struct dpm_graph_core core;
	u32 i, node;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	for (i = 0; i < TREE_DEVICES; i++)
		core.node[i].cost_us = 40;
	begin(&core, DPM_GRAPH_DOWN, 4, 4);
	for (i = 0; i < TREE_DEVICES; i++) {
		node = dpm_graph_take(&core);
		KUNIT_EXPECT_EQ(test, node, expected[i]);
		KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
		KUNIT_EXPECT_FALSE(test, dpm_graph_wants_worker(&core, node));
		dpm_graph_finish(&core, node);
	}
	KUNIT_EXPECT_TRUE(test, dpm_graph_done(&core));

	core.node[0].cost_us = 41;
	begin(&core, DPM_GRAPH_DOWN, 4, 4);
	KUNIT_EXPECT_FALSE(test, core.in_list_order);

	for (i = 0; i < TREE_DEVICES; i++)
		core.node[i].cost_us = 0;
	core.node[0].cost_us = 101;
	begin(&core, DPM_GRAPH_DOWN, 4, 4);
	KUNIT_EXPECT_FALSE(test, core.in_list_order);
}

static void a_slow_device_in_list_order_does_not_block_the_others(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin(&core, DPM_GRAPH_DOWN, 2, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	dpm_graph_finish(&core, 4);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
	dpm_graph_leave_list_order(&core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	dpm_graph_finish(&core, 2);
	/* What 3 depends on has to wait, and so has what that depends on. */
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), DPM_GRAPH_NONE);
	dpm_graph_finish(&core, 3);
	KUNIT_EXPECT_EQ(test, order_of_one(test, &core), 10);
}

static void a_batch_that_is_closed_is_as_if_taken_one_by_one(struct kunit *test)
{
	struct dpm_graph_core core;
	u32 first;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin(&core, DPM_GRAPH_DOWN, 2, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take_batch(&core, 4, &first), 4);
	KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
	KUNIT_EXPECT_EQ(test, core.running, 1);
	/* 4 has run, and 3 is running. */
	dpm_graph_end_batch(&core, first, 1, true);
	KUNIT_EXPECT_EQ(test, core.finished, 1);
	KUNIT_EXPECT_EQ(test, core.running, 1);
	dpm_graph_leave_list_order(&core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	dpm_graph_finish(&core, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), DPM_GRAPH_NONE);
	dpm_graph_finish(&core, 3);
	KUNIT_EXPECT_EQ(test, order_of_one(test, &core), 10);
}

static void a_batch_ends_with_what_has_run(struct kunit *test)
{
	struct dpm_graph_core core;
	u32 first;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin(&core, DPM_GRAPH_UP, 2, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take_batch(&core, 3, &first), 3);
	/* None has begun. */
	dpm_graph_end_batch(&core, first, 0, false);
	KUNIT_EXPECT_EQ(test, core.running, 0);
	KUNIT_EXPECT_EQ(test, core.taken, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take_batch(&core, 3, &first), 3);
	dpm_graph_end_batch(&core, first, 3, false);
	KUNIT_EXPECT_EQ(test, core.finished, 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take_batch(&core, 3, &first), 2);
	dpm_graph_end_batch(&core, first, 2, false);
	KUNIT_EXPECT_TRUE(test, dpm_graph_done(&core));
	KUNIT_EXPECT_EQ(test, dpm_graph_take_batch(&core, 3, &first), 0);
}

static void a_device_that_is_put_back_is_the_next_one(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[4].cost_us = 101;
	core.node[4].wait_us = 101;
	begin(&core, DPM_GRAPH_DOWN, 1, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	KUNIT_EXPECT_EQ(test, core.running_beside, 1);
	dpm_graph_put_back(&core, 4);
	KUNIT_EXPECT_EQ(test, core.running, 0);
	KUNIT_EXPECT_EQ(test, core.running_beside, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	/* A quick one, too. */
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
	dpm_graph_put_back(&core, 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
}

static void what_waits_for_others_neither_sleeps_nor_takes_longer_itself(struct kunit *test)
{
	struct dpm_graph_cost cost = { 0 };
	u32 i;

	/* It computes, and once waits until its bus is free. */
	dpm_graph_note_cost(&cost, 1500, 500);
	dpm_graph_note_cost(&cost, 1000, 0);
	KUNIT_EXPECT_EQ(test, cost.busy_us, 1000);
	KUNIT_EXPECT_EQ(test, cost.wait_us, 0);
	KUNIT_EXPECT_EQ(test, cost.span_us, 1500);
	/* In which it is not disturbed, until nothing else is remembered. */
	for (i = 1; i < DPM_GRAPH_RECENT; i++) {
		KUNIT_EXPECT_EQ(test, cost.span_us, 1500);
		dpm_graph_note_cost(&cost, 1000, 0);
	}
	KUNIT_EXPECT_EQ(test, cost.span_us, 1000);
	/* It sleeps from now on. */
	for (i = 0; i < DPM_GRAPH_RECENT; i++) {
		KUNIT_EXPECT_EQ(test, cost.wait_us, 0);
		dpm_graph_note_cost(&cost, 1400, 400);
	}
	KUNIT_EXPECT_EQ(test, cost.wait_us, 400);
	KUNIT_EXPECT_EQ(test, cost.worst_us, 1500);
}

static void what_comes_behind_decides_between_two_that_hold_each_other_up(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[1].cost_us = 300;
	core.node[2].cost_us = 500;
	core.node[2].wait_us = 500;
	core.node[4].cost_us = 150;
	core.node[4].wait_us = 150;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	/* Each has waited for the other once. */
	core.node[2].span_us = 650;
	core.node[4].span_us = 650;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
}

static void a_short_sleep_comes_before_what_computes(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[2].cost_us = 700;
	core.node[4].cost_us = 90;
	core.node[4].wait_us = 80;
	begin(&core, DPM_GRAPH_DOWN, 1, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	/* Not one that mostly computes, */
	core.node[4].wait_us = 40;
	begin(&core, DPM_GRAPH_DOWN, 1, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	/* nor one that is over before another worker has begun. */
	core.node[4].cost_us = 25;
	core.node[4].wait_us = 25;
	begin(&core, DPM_GRAPH_DOWN, 1, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
}

static void short_sleeps_are_beside_each_other(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[3].cost_us = 60;
	core.node[3].wait_us = 50;
	core.node[4].cost_us = 60;
	core.node[4].wait_us = 50;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_TRUE(test, core.in_list_order);
	core.node[4].wait_us = 51;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	KUNIT_EXPECT_TRUE(test, dpm_graph_wants_worker(&core, 4));
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
}

static void of_two_that_hold_each_other_up_the_one_with_more_behind_it_is_first(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[3].cost_us = 300;
	core.node[3].wait_us = 300;
	core.node[4].cost_us = 60;
	core.node[4].span_us = 500;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	KUNIT_EXPECT_TRUE(test, dpm_graph_may_hold(&core, 4));
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
	core.node[4].span_us = 200;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	/* What computes for long needs a processor, whatever it waits for. */
	core.node[4].cost_us = 200;
	core.node[4].span_us = 500;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
}

static void what_takes_next_to_nothing_runs_while_all_processors_compute(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	core.node[0].cost_us = 400;
	core.node[1].cost_us = 5;
	core.node[2].cost_us = 500;
	core.node[3].cost_us = 300;
	core.node[3].wait_us = 300;
	begin(&core, DPM_GRAPH_DOWN, 1, 2);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 4);
	dpm_graph_finish(&core, 4);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
	dpm_graph_finish(&core, 3);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 1);
	/* No other worker is worth its wakeup meanwhile. */
	KUNIT_EXPECT_FALSE(test, dpm_graph_may_hold(&core, 1));
	dpm_graph_finish(&core, 1);
	KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
}

static void what_others_once_held_up_is_remembered_for_longer_than_what_it_took(struct kunit *test)
{
	struct dpm_graph_cost cost = { 0 };
	u32 i;

	dpm_graph_note_cost(&cost, 300, 200);
	dpm_graph_note_cost(&cost, 400, 300);
	KUNIT_EXPECT_EQ(test, cost.contended, 0);
	dpm_graph_note_cost(&cost, 700, 600);
	for (i = 1; i < DPM_GRAPH_RECENT + DPM_GRAPH_CONTENDED; i++) {
		KUNIT_EXPECT_GT(test, cost.contended, 0);
		dpm_graph_note_cost(&cost, 300, 200);
	}
	KUNIT_EXPECT_EQ(test, cost.span_us, 300);
	KUNIT_EXPECT_EQ(test, cost.contended, 0);
}

/* 1 and 2 hold each other up, and 3 comes after 1; so 1 is taken first. */
static void begin_with_two_that_hold_each_other_up(struct kunit *test, struct dpm_graph_core *core)
{
	u32 i;

	for (i = 1; i <= 2; i++) {
		core->node[i].cost_us = 200;
		core->node[i].wait_us = 200;
		core->node[i].span_us = 400;
		core->node[i].contended = true;
	}
	core->node[3].cost_us = 150;
	begin(core, DPM_GRAPH_UP, 1, 2);
	core->settings.head_start_us = 10;
}

static void take_two_in_order(struct kunit *test, struct dpm_graph_core *core)
{
	KUNIT_EXPECT_EQ(test, dpm_graph_take(core), 0);
	dpm_graph_finish(core, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(core), 1);
}

static void the_one_with_more_behind_it_has_a_head_start(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	begin_with_two_that_hold_each_other_up(test, &core);
	take_two_in_order(test, &core);
	KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
	/* Another worker is to run it: the head start begins with that one. */
	dpm_graph_put_back(&core, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 1);
	KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
	dpm_graph_check_head_start(&core);
	KUNIT_EXPECT_FALSE(test, dpm_graph_available(&core));
	KUNIT_EXPECT_EQ(test, core.have_waited, 0);
	dpm_graph_check_head_start(&core);
	KUNIT_EXPECT_EQ(test, core.have_waited, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);

	/* It ends with the device at the latest. */
	begin_with_two_that_hold_each_other_up(test, &core);
	take_two_in_order(test, &core);
	dpm_graph_finish(&core, 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
}

static void nothing_waits_for_a_head_start_that_it_does_not_need(struct kunit *test)
{
	struct dpm_graph_core core;

	build(test, &core, tree, ARRAY_SIZE(tree), 0);
	/* Nothing holds one of them up. */
	begin_with_two_that_hold_each_other_up(test, &core);
	core.node[1].contended = false;
	take_two_in_order(test, &core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	begin_with_two_that_hold_each_other_up(test, &core);
	core.node[2].contended = false;
	take_two_in_order(test, &core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	/* It is long for what the first one takes, */
	begin_with_two_that_hold_each_other_up(test, &core);
	core.settings.head_start_us = 26;
	take_two_in_order(test, &core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	/* or longer than what comes behind it. */
	begin_with_two_that_hold_each_other_up(test, &core);
	core.node[1].level_us = core.node[2].level_us + 10;
	take_two_in_order(test, &core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
	/* They have nothing in common. */
	build(test, &core, tree + 1, ARRAY_SIZE(tree) - 1, 0);
	begin_with_two_that_hold_each_other_up(test, &core);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 1);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 0);
	dpm_graph_finish(&core, 0);
	KUNIT_EXPECT_EQ(test, dpm_graph_take(&core), 2);
}

static struct kunit_case pm_graph_cases[] = {
	KUNIT_CASE(leaves_come_first_down_and_roots_first_up),
	KUNIT_CASE(the_longest_path_comes_first),
	KUNIT_CASE(an_edge_against_the_list_is_left_out),
	KUNIT_CASE(those_without_permission_keep_the_order_of_the_list),
	KUNIT_CASE(a_worker_is_woken_for_a_slow_device_only),
	KUNIT_CASE(a_quick_phase_goes_in_list_order_by_one_worker),
	KUNIT_CASE(a_slow_device_in_list_order_does_not_block_the_others),
	KUNIT_CASE(a_batch_that_is_closed_is_as_if_taken_one_by_one),
	KUNIT_CASE(a_batch_ends_with_what_has_run),
	KUNIT_CASE(nothing_starts_after_a_stop),
	KUNIT_CASE(a_device_that_is_put_back_is_the_next_one),
	KUNIT_CASE(what_waits_for_others_neither_sleeps_nor_takes_longer_itself),
	KUNIT_CASE(what_comes_behind_decides_between_two_that_hold_each_other_up),
	KUNIT_CASE(a_short_sleep_comes_before_what_computes),
	KUNIT_CASE(short_sleeps_are_beside_each_other),
	KUNIT_CASE(of_two_that_hold_each_other_up_the_one_with_more_behind_it_is_first),
	KUNIT_CASE(what_takes_next_to_nothing_runs_while_all_processors_compute),
	KUNIT_CASE(what_others_once_held_up_is_remembered_for_longer_than_what_it_took),
	KUNIT_CASE(the_one_with_more_behind_it_has_a_head_start),
	KUNIT_CASE(nothing_waits_for_a_head_start_that_it_does_not_need),
	{ }
};

static struct kunit_suite pm_graph_suite = {
	.name = "pm_graph",
	.test_cases = pm_graph_cases,
};

kunit_test_suite(pm_graph_suite);

MODULE_DESCRIPTION("Tests of the order of suspend and resume");
MODULE_LICENSE("GPL");
