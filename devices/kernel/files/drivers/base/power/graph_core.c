// SPDX-License-Identifier: GPL-2.0-only
/*
 * The order of a suspend or resume phase: see graph_core.h.
 *
 * Of the devices that are ready, those on the longest remaining path run first (list scheduling
 * by bottom level; Hu 1961, and Adam, Chandy and Dickson 1974 for unequal costs), with the costs of
 * earlier phases. Devices that need no processor of their own come before all others: they sleep,
 * or are done as soon as they have begun. They have a limit of their own.
 *
 * Most devices take microseconds, and so do their dependents. These come last, in the order in
 * which they became ready: sorting them would take longer than it gains. A phase of only such
 * devices needs no bookkeeping and runs in list order.
 */
#include "graph_core.h"

#ifdef __KERNEL__
#include <linux/minmax.h>
#include <linux/string.h>
#else
#include <string.h>
#define min(a, b)			((a) < (b) ? (a) : (b))
#define max(a, b)			((a) > (b) ? (a) : (b))
#endif

/* Of a key: the upper half. */
#define MAX_LEVEL_US	((u64)0xffffffff)

u64 dpm_graph_bytes(u32 devices, u32 edges)
{
	/* Each device may add an edge to the next one that stays in list order. */
	u64 all_edges = (u64)edges + devices;

	return ((u64)devices + 1) * sizeof(struct dpm_graph_node) +
		(u64)devices * 2 * sizeof(u64) +
		all_edges * 2 * sizeof(u32) + (u64)devices * 2 * sizeof(u32);
}

void dpm_graph_init(struct dpm_graph_core *core, void *memory, u32 devices, u32 edges)
{
	u64 all_edges = (u64)edges + devices;
	u32 *words;

	memset(core, 0, sizeof(*core));
	core->devices = devices;
	core->node = memory;
	core->light.key = (u64 *)(core->node + devices + 1);
	core->others.key = core->light.key + devices;
	words = (u32 *)(core->others.key + devices);
	core->superior = words;
	core->subordinate = words + all_edges;
	core->quick.node = words + 2 * all_edges;
	core->held = core->quick.node + devices;
}

static bool is_honoured(const struct dpm_graph_core *core, const struct dpm_graph_edge *edge)
{
	return edge->superior < edge->subordinate && edge->subordinate < core->devices;
}

/* Calls count_edge() or place_edge() for all edges, those of the list's order included. */
static void visit_edges(struct dpm_graph_core *core, const struct dpm_graph_edge *edges, u32 count,
			void (*act)(struct dpm_graph_core *core, u32 superior, u32 subordinate))
{
	u32 last = DPM_GRAPH_NONE;
	u32 i;

	for (i = 0; i < count; i++)
		if (is_honoured(core, &edges[i]))
			act(core, edges[i].superior, edges[i].subordinate);

	for (i = 0; i < core->devices; i++) {
		if (!core->node[i].ordered)
			continue;
		if (last != DPM_GRAPH_NONE)
			act(core, last, i);
		last = i;
	}
}

static void count_edge(struct dpm_graph_core *core, u32 superior, u32 subordinate)
{
	core->node[superior].subordinates++;
	core->node[subordinate].superiors++;
	core->edges++;
}

/* Fills each node's part from its end, so that what is left is where the part begins. */
static void place_edge(struct dpm_graph_core *core, u32 superior, u32 subordinate)
{
	core->subordinate[--core->node[superior].subordinates] = subordinate;
	core->superior[--core->node[subordinate].superiors] = superior;
}

void dpm_graph_build(struct dpm_graph_core *core, const struct dpm_graph_edge *edges, u32 count)
{
	u32 superiors = 0, subordinates = 0;
	u32 i;

	for (i = 0; i <= core->devices; i++) {
		core->node[i].superiors = 0;
		core->node[i].subordinates = 0;
	}
	core->edges = 0;
	core->edges_dropped = 0;
	for (i = 0; i < count; i++)
		core->edges_dropped += !is_honoured(core, &edges[i]);

	visit_edges(core, edges, count, count_edge);
	for (i = 0; i <= core->devices; i++) {
		superiors += core->node[i].superiors;
		subordinates += core->node[i].subordinates;
		core->node[i].superiors = superiors;
		core->node[i].subordinates = subordinates;
	}
	visit_edges(core, edges, count, place_edge);
}

/* The neighbours that run before this device, or after it. */
static const u32 *neighbours(const struct dpm_graph_core *core, u32 node, bool before, u32 *count)
{
	const struct dpm_graph_node *n = &core->node[node];
	bool up = core->settings.direction == DPM_GRAPH_UP;

	if (before == up) {
		*count = n[1].superiors - n->superiors;
		return core->superior + n->superiors;
	}
	*count = n[1].subordinates - n->subordinates;
	return core->subordinate + n->subordinates;
}

static u32 known_cost_us(const struct dpm_graph_core *core, u32 node)
{
	u32 cost_us = core->node[node].cost_us;

	return cost_us == DPM_GRAPH_UNKNOWN ? core->settings.threshold_us : cost_us;
}

static bool is_slow(const struct dpm_graph_core *core, u32 node)
{
	/* Unknown is the largest number. */
	return core->node[node].cost_us > core->settings.threshold_us;
}

/* Whether it may hold its worker for long, itself or because others hold what it needs. */
static bool may_be_slow(const struct dpm_graph_core *core, u32 node)
{
	return is_slow(core, node) || core->node[node].span_us > core->settings.threshold_us;
}

/* Half of a backlog, for each of two workers, must exceed the cost of a wakeup. */
static bool wakes_another(const struct dpm_graph_core *core, u64 backlog_us)
{
	return backlog_us > 2 * (u64)core->settings.threshold_us;
}

/* Whether it is worth its place in the order: something slow comes after it, or it is slow. */
static bool is_urgent(const struct dpm_graph_core *core, u32 node)
{
	return core->node[node].level_us > core->settings.threshold_us;
}

/*
 * Whether a worker beside the others is worth its wakeup: for a long sleep, and for one that is
 * most of what the device takes. Nobody has to compute on another processor meanwhile, so a quarter
 * of the threshold is long enough.
 */
static bool is_sleeper(const struct dpm_graph_core *core, u32 node)
{
	const struct dpm_graph_node *n = &core->node[node];

	if (!core->settings.sleepers)
		return false;
	return n->wait_us > core->settings.threshold_us ||
		(4 * (u64)n->wait_us > core->settings.threshold_us &&
		 2 * (u64)n->wait_us > n->cost_us);
}

/*
 * Whether it needs no processor of its own: it sleeps, or something slow waits for it and it takes
 * next to nothing. One that computes a little and sometimes waits for what others hold is one of
 * them: among those that sleep, the one with more behind it had better have it first.
 */
static bool is_light(const struct dpm_graph_core *core, u32 node)
{
	const struct dpm_graph_node *n = &core->node[node];

	if (is_sleeper(core, node))
		return true;
	if (!core->settings.sleepers || !is_urgent(core, node) || is_slow(core, node))
		return false;
	return n->cost_us <= core->settings.threshold_us / 20 || may_be_slow(core, node);
}

/* With equal paths it is the list's order of this direction. */
static u64 key_of(const struct dpm_graph_core *core, u32 node)
{
	u64 level_us = min(core->node[node].level_us, MAX_LEVEL_US);

	return level_us << 32 | (core->settings.direction == DPM_GRAPH_UP ? ~node : node);
}

static u32 node_of(const struct dpm_graph_core *core, u64 key)
{
	return core->settings.direction == DPM_GRAPH_UP ? ~(u32)key : (u32)key;
}

static void heap_push(const struct dpm_graph_core *core, struct dpm_graph_heap *heap, u32 node)
{
	u64 key = key_of(core, node);
	u32 at = heap->count++;

	while (at && key > heap->key[(at - 1) / 2]) {
		heap->key[at] = heap->key[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->key[at] = key;
}

static u32 heap_pop(const struct dpm_graph_core *core, struct dpm_graph_heap *heap)
{
	u64 top = heap->key[0];
	u64 key = heap->key[--heap->count];
	u32 at = 0, child;

	while ((child = 2 * at + 1) < heap->count) {
		if (child + 1 < heap->count && heap->key[child + 1] > heap->key[child])
			child++;
		if (key > heap->key[child])
			break;
		heap->key[at] = heap->key[child];
		at = child;
	}
	/* After the last element this writes it to an unused place. */
	heap->key[at] = key;
	return node_of(core, top);
}

static bool share_superior(const struct dpm_graph_core *core, u32 a, u32 b)
{
	u32 i, k;

	for (i = core->node[a].superiors; i < core->node[a + 1].superiors; i++)
		for (k = core->node[b].superiors; k < core->node[b + 1].superiors; k++)
			if (core->superior[i] == core->superior[k])
				return true;
	return false;
}

/*
 * Devices of one superior may need what belongs to it, one at a time, and come to that in any
 * order: a driver that sleeps before goes on at a tick of the clock, at the same one as those that
 * have started a little later. If the one with the longest path comes last, the phase takes longer
 * by what comes behind it. So it has a head start of more than a tick. That is an eighth of what it
 * takes itself at most; each device waits once, and no longer than its path allows. So where they
 * do not need the same thing after all, little is lost.
 */
static bool may_lead(const struct dpm_graph_core *core, u32 node)
{
	const struct dpm_graph_node *n = &core->node[node];

	return core->settings.head_start_us && core->leader == DPM_GRAPH_NONE && n->contended &&
		is_sleeper(core, node) && n->cost_us / 8 >= core->settings.head_start_us;
}

static bool has_to_wait(const struct dpm_graph_core *core, u32 node)
{
	const struct dpm_graph_node *n = &core->node[node];

	return core->leader != DPM_GRAPH_NONE && n->contended && !n->was_held &&
		n->level_us + core->settings.head_start_us < core->node[core->leader].level_us &&
		share_superior(core, node, core->leader);
}

static void add_light(struct dpm_graph_core *core, u32 node)
{
	if (!has_to_wait(core, node)) {
		heap_push(core, &core->light, node);
		return;
	}
	core->held[core->held_count++] = node;
}

static void begin_head_start(struct dpm_graph_core *core, u32 leader)
{
	u32 count = core->light.count;
	u32 i;

	core->leader = leader;
	core->light.count = 0;
	/* What is pushed takes places that have been read. */
	for (i = 0; i < count; i++)
		add_light(core, node_of(core, core->light.key[i]));
}

static void let_go(struct dpm_graph_core *core, bool have_waited)
{
	core->leader = DPM_GRAPH_NONE;
	core->leader_checked = false;
	if (have_waited)
		core->have_waited += core->held_count;
	while (core->held_count) {
		u32 node = core->held[--core->held_count];

		core->node[node].was_held = have_waited;
		heap_push(core, &core->light, node);
	}
}

void dpm_graph_check_head_start(struct dpm_graph_core *core)
{
	if (core->leader_checked)
		let_go(core, true);
	core->leader_checked = core->leader != DPM_GRAPH_NONE;
}

/* One that was put back is the first of the quick ones again. */
static void make_ready(struct dpm_graph_core *core, u32 node, bool put_back)
{
	core->node[node].state = DPM_GRAPH_READY;
	if (!is_sleeper(core, node))
		core->backlog_us += known_cost_us(core, node);
	if (is_light(core, node))
		add_light(core, node);
	else if (is_urgent(core, node))
		heap_push(core, &core->others, node);
	else if (put_back)
		core->quick.node[--core->quick.head] = node;
	else
		core->quick.node[core->quick.tail++] = node;
}

static void set_level(struct dpm_graph_core *core, u32 node)
{
	struct dpm_graph_node *n = &core->node[node];
	u32 cost_us = known_cost_us(core, node);
	const u32 *after;
	u32 count, i;

	n->level_us = 0;
	after = neighbours(core, node, false, &count);
	for (i = 0; i < count; i++)
		n->level_us = max(n->level_us, core->node[after[i]].level_us);
	n->level_us += max(n->span_us, cost_us);
}

/* Levels are computed against the direction: later devices first. */
static void set_levels(struct dpm_graph_core *core)
{
	u32 i;

	for (i = 0; i < core->devices; i++) {
		if (core->settings.direction == DPM_GRAPH_DOWN)
			set_level(core, i);
		else
			set_level(core, core->devices - 1 - i);
	}
}

/*
 * Whether no device would be slow enough to wake another worker for, nor all devices together, nor
 * what they sleep.
 */
static bool is_quick(const struct dpm_graph_core *core)
{
	u64 all_us = 0, sleep_us = 0;
	u32 i;

	for (i = 0; i < core->devices; i++) {
		if (is_slow(core, i))
			return false;
		all_us += core->node[i].cost_us;
		sleep_us += core->node[i].wait_us;
	}
	return !wakes_another(core, all_us) &&
		!(core->settings.sleepers && sleep_us > core->settings.threshold_us);
}

void dpm_graph_begin(struct dpm_graph_core *core, const struct dpm_graph_settings *settings)
{
	u32 i;

	core->settings = *settings;
	if (!core->settings.cpus)
		core->settings.cpus = 1;
	core->light.count = 0;
	core->others.count = 0;
	core->quick.head = 0;
	core->quick.tail = 0;
	core->leader = DPM_GRAPH_NONE;
	core->leader_checked = false;
	core->held_count = 0;
	core->have_waited = 0;
	core->backlog_us = 0;
	core->finished = 0;
	core->running = 0;
	core->running_beside = 0;
	core->arriving = 0;
	core->stopped = false;
	core->taken = 0;
	core->in_list_order = is_quick(core);

	if (!core->in_list_order)
		set_levels(core);
	for (i = 0; i < core->devices; i++) {
		u32 node = dpm_graph_in_list(core, i);

		core->node[node].state = DPM_GRAPH_BLOCKED;
		core->node[node].beside = false;
		core->node[node].was_held = false;
		if (core->in_list_order)
			continue;
		neighbours(core, node, true, &core->node[node].pending);
		if (!core->node[node].pending)
			make_ready(core, node, false);
	}
}

void dpm_graph_leave_list_order(struct dpm_graph_core *core)
{
	u32 i;

	if (!core->in_list_order)
		return;
	core->in_list_order = false;
	for (i = core->taken; i < core->devices; i++) {
		u32 node = dpm_graph_in_list(core, i);
		struct dpm_graph_node *n = &core->node[node];
		u32 count, k;
		const u32 *before = neighbours(core, node, true, &count);

		n->pending = 0;
		n->level_us = 0;
		for (k = 0; k < count; k++)
			n->pending += core->node[before[k]].state != DPM_GRAPH_FINISHED;
		if (!n->pending)
			make_ready(core, node, false);
	}
}

bool dpm_graph_may_hold(const struct dpm_graph_core *core, u32 node)
{
	return may_be_slow(core, node) || is_sleeper(core, node);
}

static u32 queue_pop(struct dpm_graph_queue *queue)
{
	return queue->node[queue->head++];
}

/* Whether a device is ready that needs a processor. */
static bool has_others(const struct dpm_graph_core *core)
{
	return core->others.count || core->quick.head < core->quick.tail;
}

static bool has_processor(const struct dpm_graph_core *core)
{
	return core->running - core->running_beside < core->settings.cpus;
}

static bool may_run_beside(const struct dpm_graph_core *core)
{
	return core->light.count && core->running_beside < core->settings.sleepers;
}

bool dpm_graph_available(const struct dpm_graph_core *core)
{
	if (core->stopped)
		return false;
	if (core->in_list_order)
		return !core->running && core->taken < core->devices;
	return may_run_beside(core) ||
		((has_others(core) || core->light.count) && has_processor(core));
}

/* Some device is available. */
static u32 pop(struct dpm_graph_core *core)
{
	u32 node;

	if (may_run_beside(core)) {
		node = heap_pop(core, &core->light);
		/* One that is done at once takes a processor that is free. */
		core->node[node].beside = dpm_graph_may_hold(core, node) || !has_processor(core);
		core->running_beside += core->node[node].beside;
		return node;
	}
	if (core->others.count)
		return heap_pop(core, &core->others);
	if (core->quick.head < core->quick.tail)
		return queue_pop(&core->quick);
	return heap_pop(core, &core->light);
}

u32 dpm_graph_take(struct dpm_graph_core *core)
{
	u32 node;

	if (!dpm_graph_available(core))
		return DPM_GRAPH_NONE;

	if (core->in_list_order) {
		node = dpm_graph_in_list(core, core->taken++);
	} else {
		node = pop(core);
		if (!is_sleeper(core, node))
			core->backlog_us -= known_cost_us(core, node);
		if (may_lead(core, node))
			begin_head_start(core, node);
	}
	core->node[node].state = DPM_GRAPH_RUNNING;
	core->running++;
	return node;
}

bool dpm_graph_wants_worker(const struct dpm_graph_core *core, u32 node)
{
	/* A worker that was woken before takes the next device and decides again. */
	if (core->arriving)
		return false;
	if (dpm_graph_may_hold(core, node))
		return dpm_graph_available(core);
	return wakes_another(core, core->backlog_us) && has_processor(core) &&
		dpm_graph_available(core);
}

void dpm_graph_put_back(struct dpm_graph_core *core, u32 node)
{
	struct dpm_graph_node *n = &core->node[node];

	core->running--;
	if (n->beside)
		core->running_beside--;
	n->beside = false;
	if (core->leader == node)
		let_go(core, false);
	if (core->in_list_order) {
		n->state = DPM_GRAPH_BLOCKED;
		core->taken--;
		return;
	}
	make_ready(core, node, true);
}

void dpm_graph_finish(struct dpm_graph_core *core, u32 node)
{
	struct dpm_graph_node *n = &core->node[node];
	const u32 *after;
	u32 count, i;

	n->state = DPM_GRAPH_FINISHED;
	core->finished++;
	core->running--;
	if (n->beside)
		core->running_beside--;

	if (core->in_list_order)
		return;
	if (core->leader == node)
		let_go(core, true);
	after = neighbours(core, node, false, &count);
	for (i = 0; i < count; i++)
		if (!--core->node[after[i]].pending)
			make_ready(core, after[i], false);
}

u32 dpm_graph_take_batch(struct dpm_graph_core *core, u32 most, u32 *first)
{
	u32 count;

	if (!core->in_list_order || !dpm_graph_available(core))
		return 0;
	count = min(most, core->devices - core->taken);
	*first = core->taken;
	core->taken += count;
	core->running++;
	return count;
}

void dpm_graph_end_batch(struct dpm_graph_core *core, u32 first, u32 finished, bool runs)
{
	u32 i;

	for (i = 0; i < finished; i++)
		core->node[dpm_graph_in_list(core, first + i)].state = DPM_GRAPH_FINISHED;
	core->finished += finished;
	core->taken = first + finished;
	if (runs)
		core->node[dpm_graph_in_list(core, core->taken++)].state = DPM_GRAPH_RUNNING;
	else
		core->running--;
}

bool dpm_graph_done(const struct dpm_graph_core *core)
{
	return core->finished == core->devices || (core->stopped && !core->running);
}
