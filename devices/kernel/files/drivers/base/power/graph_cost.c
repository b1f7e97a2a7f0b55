// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of each device, measured around its callbacks in every mode but "off"; and the threshold
 * variant, which sets power/async for slow devices, their suppliers and their consumers (Kannan,
 * "Optimizing suspend/resume", Linaro Connect 2024: "async only slow devices"). A parent counts as
 * a supplier and a child as a consumer, because the PM core waits for them likewise.
 */
#include <linux/device.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>

#include "graph_internal.h"

enum {
	/* It is slow or depends on a slow one. */
	SPREAD_DOWN = BIT(0),
	/* It is slow or a slow one depends on it. */
	SPREAD_UP = BIT(1),
};

/* What is known of the next transition. */
struct dpm_graph_choice dpm_graph_choice;

static enum dpm_graph_phase phase_now;
static bool measured;

void dpm_graph_set_phase(enum dpm_graph_phase phase, bool is_measured)
{
	/* A callback that was given up may come back at any time. */
	WRITE_ONCE(phase_now, phase);
	WRITE_ONCE(measured, is_measured);
}

/* A callback of this phase begins. */
void dpm_graph_measure(struct device *dev, enum dpm_graph_phase phase)
{
	struct dpm_graph_device *gd = dpm_graph_of(dev);

	if (!READ_ONCE(measured) || !dpm_graph_is_known(gd))
		return;
	gd->called = true;
	gd->end_ns = 0;
	gd->phase = phase;
	gd->start_sleeps = current->nvcsw;
	gd->start_cpu_ns = task_sched_runtime(current);
	gd->start_ns = ktime_get_ns();
}

void dpm_graph_callback_begin(struct device *dev)
{
	dpm_graph_measure(dev, READ_ONCE(phase_now));
}

/* Caches and interrupts make it longer and never shorter. */
static u32 moving_average(u32 mean, u32 value)
{
	if (value < mean)
		return mean - (mean - value + 1) / 2;
	return mean + (value - mean) / 8;
}

/*
 * What tells a device's own sleep from its waiting for a bus is that it has the former each time:
 * the minimum. The maximum is what it takes if it comes last on its bus. Of two devices on a bus
 * both maxima have both costs in them, once each order has been run, so their paths differ by what
 * comes behind them. The one with more behind it goes first, which ends soonest (Jackson 1955), and
 * nobody has to know that there is a bus.
 */
static void remember(struct dpm_graph_cost *cost, u32 us, u32 wait_us)
{
	u32 count = min_t(u32, cost->runs + 1, DPM_GRAPH_RECENT);

	cost->recent[cost->runs % DPM_GRAPH_RECENT].wait_us = wait_us;
	cost->recent[cost->runs % DPM_GRAPH_RECENT].span_us = us;
	cost->wait_us = wait_us;
	cost->span_us = us;
	while (count--) {
		cost->wait_us = min(cost->wait_us, cost->recent[count].wait_us);
		cost->span_us = max(cost->span_us, cost->recent[count].span_us);
	}
}

/*
 * What it takes may vary a little for many reasons. In an order that keeps others out of its way it
 * does not vary, so this is remembered for longer.
 */
static void note_contention(struct dpm_graph_cost *cost)
{
	u64 own_us = (u64)cost->busy_us + cost->wait_us;

	if (2 * (u64)cost->span_us > 3 * own_us)
		cost->contended = DPM_GRAPH_CONTENDED;
	else if (cost->contended)
		cost->contended--;
}

/* The callback took @us; in @wait_us of that it needed no processor. */
void dpm_graph_note_cost(struct dpm_graph_cost *cost, u32 us, u32 wait_us)
{
	u32 busy_us = us - wait_us;

	cost->last_us = us;
	cost->worst_us = max(cost->worst_us, us);
	cost->busy_us = cost->runs ? moving_average(cost->busy_us, busy_us) : busy_us;
	remember(cost, us, wait_us);
	note_contention(cost);
	cost->runs++;
}

static u32 us_of(u64 ns)
{
	return min_t(u64, ns / NSEC_PER_USEC, U32_MAX - 1);
}

void dpm_graph_callback_end(struct device *dev, int error)
{
	struct dpm_graph_device *gd = dpm_graph_of(dev);
	u64 ns, cpu_ns;

	/* The time until a failure is not the cost of a success. */
	if (!READ_ONCE(measured) || !dpm_graph_is_known(gd) || error || READ_ONCE(gd->stuck))
		return;
	/* The module hears of the ends of prepare and complete, too. */
	if (!gd->start_ns)
		return;
	gd->end_ns = ktime_get_ns();
	ns = gd->end_ns - gd->start_ns;
	cpu_ns = task_sched_runtime(current) - gd->start_cpu_ns;
	gd->start_ns = 0;
	/* One that never slept only waited for its processor. */
	if (current->nvcsw == gd->start_sleeps)
		ns = min(ns, cpu_ns);
	dpm_graph_note_cost(&gd->cost[gd->phase], us_of(ns), us_of(ns > cpu_ns ? ns - cpu_ns : 0));
}

/* The device went through the phase without a callback: it is known to be quick. */
void dpm_graph_no_callback(struct dpm_graph_device *gd, enum dpm_graph_phase phase)
{
	dpm_graph_note_cost(&gd->cost[phase], 0, 0);
}

bool dpm_graph_add_costs(struct list_head *list, u32 *devices, u64 *costs_us)
{
	struct device *dev;
	int phase;

	list_for_each_entry(dev, list, power.entry) {
		const struct dpm_graph_device *gd = dpm_graph_of(dev);

		if (dpm_graph_is_stranger(dev))
			continue;
		for (phase = 0; phase < DPM_GRAPH_PHASES; phase++) {
			u32 cost_us = dpm_graph_cost_us(dev, gd, phase);

			if (cost_us == DPM_GRAPH_UNKNOWN)
				return false;
			*costs_us += cost_us;
		}
		++*devices;
	}
	return true;
}

void dpm_graph_weigh_anew(void)
{
	memset(&dpm_graph_choice, 0, sizeof(dpm_graph_choice));
}

void dpm_graph_forget_costs(void)
{
	struct device *dev;

	device_pm_lock();
	dpm_graph_weigh_anew();
	list_for_each_entry(dev, &dpm_list, power.entry) {
		struct dpm_graph_device *gd = dpm_graph_of(dev);

		if (dpm_graph_is_known(gd))
			memset(gd->cost, 0, sizeof(gd->cost));
	}
	device_pm_unlock();
}

static bool is_slow(const struct device *dev, u32 threshold_us)
{
	int phase;

	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++)
		if (dpm_graph_of(dev)->cost[phase].worst_us > threshold_us)
			return true;
	return false;
}

static bool superior_is_spread(struct device *dev)
{
	struct device_link *link;
	bool found = dev->parent && (dpm_graph_of(dev->parent)->spread & SPREAD_DOWN);
	int locked;

	locked = device_links_read_lock();
	list_for_each_entry_srcu(link, &dev->links.suppliers, c_node,
				 device_links_read_lock_held())
		found |= !!(dpm_graph_of(link->supplier)->spread & SPREAD_DOWN);
	device_links_read_unlock(locked);
	return found;
}

static void mark(struct device *dev, u8 spread)
{
	struct dpm_graph_device *gd = dpm_graph_of(dev);

	if (dpm_graph_is_known(gd))
		gd->spread |= spread;
}

static void spread_to_superiors(struct device *dev)
{
	struct device_link *link;
	int locked;

	if (dev->parent)
		mark(dev->parent, SPREAD_UP);
	locked = device_links_read_lock();
	list_for_each_entry_srcu(link, &dev->links.suppliers, c_node,
				 device_links_read_lock_held())
		mark(link->supplier, SPREAD_UP);
	device_links_read_unlock(locked);
}

static void set_async(struct device *dev, bool wanted)
{
	struct dpm_graph_device *gd = dpm_graph_of(dev);

	if (!dpm_graph_is_known(gd))
		return;
	if (wanted && !dev->power.async_suspend) {
		dev->power.async_suspend = true;
		gd->made_async = true;
	} else if (!wanted && gd->made_async) {
		dev->power.async_suspend = false;
		gd->made_async = false;
	}
}

/*
 * The list has superiors before subordinates, so one way through it spreads to all consumers of
 * consumers, and one way back to all suppliers of suppliers.
 */
void dpm_graph_spread_async(struct list_head *list, u32 threshold_us)
{
	struct device *dev;

	list_for_each_entry(dev, list, power.entry)
		dpm_graph_of(dev)->spread = 0;
	list_for_each_entry(dev, list, power.entry) {
		if (is_slow(dev, threshold_us))
			mark(dev, SPREAD_DOWN | SPREAD_UP);
		else if (superior_is_spread(dev))
			mark(dev, SPREAD_DOWN);
	}
	list_for_each_entry_reverse(dev, list, power.entry)
		if (dpm_graph_of(dev)->spread & SPREAD_UP)
			spread_to_superiors(dev);
	list_for_each_entry(dev, list, power.entry)
		set_async(dev, dpm_graph_of(dev)->spread);
}

void dpm_graph_take_back_async(void)
{
	struct device *dev;

	device_pm_lock();
	list_for_each_entry(dev, &dpm_list, power.entry)
		set_async(dev, false);
	device_pm_unlock();
}
