// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random device graphs through graph_core.c, with workers whose time is simulated. The main program
 * of graph_choice_test.c, too.
 *
 *	graph_core_test [GRAPHS [SEED [MOST-DEVICES]]]
 *
 * Each graph runs down and up, some with a failure at a random device. What is checked is written
 * at each check; the first breach ends the program with the seed that gives it again.
 */
#include "graph_choice_test.h"
#include "graph_core.h"
#include "random.h"
#include "random_graph.h"

/* YIELDED: it woke another one before it took a device, and comes back at any time. */
enum worker_state { IDLE, WOKEN, YIELDED, BUSY };

struct run {
	const struct graph *graph;
	struct dpm_graph_core *core;
	uint32_t workers;
	/* The worker that runs a batch, and how many of its devices it has begun. */
	uint32_t batch_worker;
	uint32_t batch_first;
	uint32_t batch_count;
	uint32_t batch_begun;
	enum worker_state *worker;
	uint32_t *device;
	uint64_t *until_us;
	uint64_t now_us;
	/* Numbers from 1 in the order of events; 0: it has not happened. */
	uint32_t *started;
	uint32_t *finished;
	uint32_t events;
	uint32_t wakes;
	/* The device at which the phase fails. */
	uint32_t failing;
	bool failed;
};

static bool down(const struct run *r)
{
	return r->core->settings.direction == DPM_GRAPH_DOWN;
}

/* Nothing starts before what it depends on has finished: the promise of the whole thing. */
static void check_start(const struct run *r, uint32_t device)
{
	const struct graph *g = r->graph;
	uint32_t i;

	CHECK(!r->started[device], "device %u runs a second time", device);
	CHECK(!r->failed, "device %u starts after the failure of %u", device, r->failing);
	for (i = 0; i < g->edges; i++) {
		const struct dpm_graph_edge *e = &g->edge[i];
		uint32_t before = down(r) ? e->subordinate : e->superior;
		uint32_t after = down(r) ? e->superior : e->subordinate;

		if (after == device && e->superior < e->subordinate)
			CHECK(r->finished[before], "%s %u starts before %u has finished",
			      down(r) ? "superior" : "subordinate", device, before);
	}
}

/* Those without permission run one after the other, as the list has them. */
static void check_list_order(const struct run *r)
{
	uint32_t last = DPM_GRAPH_NONE, i, device;

	for (i = 0; i < r->graph->devices; i++) {
		device = down(r) ? r->graph->devices - 1 - i : i;
		if (!r->graph->ordered[device] || !r->started[device])
			continue;
		if (last != DPM_GRAPH_NONE)
			CHECK(r->finished[last] && r->finished[last] < r->started[device],
			      "device %u starts before %u, which the list has before it", device,
			      last);
		last = device;
	}
}

static void check_limits(const struct run *r)
{
	const struct dpm_graph_settings *s = &r->core->settings;

	CHECK(r->core->running - r->core->running_beside <= s->cpus,
	      "%u workers need a processor, and there are %u",
	      r->core->running - r->core->running_beside, s->cpus);
	CHECK(r->core->running_beside <= s->sleepers, "%u workers beside, %u allowed",
	      r->core->running_beside, s->sleepers);
	CHECK(r->core->leader == DPM_GRAPH_NONE ? !r->core->held_count :
	      r->core->node[r->core->leader].state == DPM_GRAPH_RUNNING,
	      "%u devices wait for the head start of one that does not run", r->core->held_count);
}

static uint32_t idle_worker(const struct run *r)
{
	uint32_t w;

	for (w = 0; w < r->workers; w++)
		if (r->worker[w] == IDLE)
			return w;
	return DPM_GRAPH_NONE;
}

/* Puts the device back that was taken last, as if it had not been taken. */
static void put_back(struct run *r, uint32_t device)
{
	const struct dpm_graph_core *core = r->core;
	uint32_t running, running_beside, again;
	uint64_t backlog_us;

	dpm_graph_put_back(r->core, device);
	running = core->running;
	running_beside = core->running_beside;
	backlog_us = core->backlog_us;
	again = dpm_graph_take(r->core);
	CHECK(again == device, "device %u was put back, and %u taken", device, again);
	dpm_graph_put_back(r->core, device);
	CHECK(core->running == running && core->running_beside == running_beside &&
	      core->backlog_us == backlog_us, "device %u was put back, and still counts", device);
}

static void start(struct run *r, uint32_t w, uint32_t device)
{
	check_start(r, device);
	r->started[device] = ++r->events;
	r->worker[w] = BUSY;
	r->device[w] = device;
	r->until_us[w] = r->now_us + r->graph->real_us[device];
	check_limits(r);
}

/* The batch ends after so many devices, as its worker or the one that closes it has it. */
static void end_batch(struct run *r, uint32_t finished, bool runs)
{
	const struct dpm_graph_core *core = r->core;
	uint32_t before = core->finished, i;

	dpm_graph_end_batch(r->core, r->batch_first, finished, runs);
	r->batch_worker = DPM_GRAPH_NONE;
	CHECK(core->running == runs, "%u devices run after a batch", core->running);
	CHECK(core->finished == before + finished, "%u devices of the batch are lost",
	      before + finished - core->finished);
	CHECK(core->taken == r->batch_first + finished + runs, "%u are taken after a batch",
	      core->taken);
	for (i = 0; i < r->batch_count; i++) {
		uint32_t device = dpm_graph_in_list(core, r->batch_first + i);
		uint8_t state = i < finished ? DPM_GRAPH_FINISHED :
				i < finished + runs ? DPM_GRAPH_RUNNING : DPM_GRAPH_BLOCKED;

		CHECK(core->node[device].state == state, "state %u of device %u after a batch",
		      core->node[device].state, device);
	}
}

/* Something needs the exact state while a device of the batch runs, or before the first one. */
static void close_batch(struct run *r)
{
	if (r->batch_begun)
		end_batch(r, r->batch_begun - 1, true);
	else
		end_batch(r, 0, false);
	if (random_below(2))
		dpm_graph_leave_list_order(r->core);
}

/* Begins the next device of the batch; false if the batch is closed before. */
static bool next_of_batch(struct run *r, uint32_t w)
{
	if (!random_below(60)) {
		close_batch(r);
		return false;
	}
	start(r, w, dpm_graph_in_list(r->core, r->batch_first + r->batch_begun++));
	if (!random_below(60))
		close_batch(r);
	return true;
}

static bool take_batch(struct run *r, uint32_t w)
{
	uint32_t most = 1 + random_below(random_below(2) ? 4 : 40);

	if (r->batch_worker != DPM_GRAPH_NONE)
		CHECK(!dpm_graph_available(r->core), "another device is available beside a batch");
	r->batch_count = dpm_graph_take_batch(r->core, most, &r->batch_first);
	if (!r->batch_count)
		return false;
	r->batch_worker = w;
	r->batch_begun = 0;
	r->worker[w] = YIELDED;
	next_of_batch(r, w);
	return true;
}

/* What a worker of the kernel does when it comes to the queue. */
static void come_to_queue(struct run *r, uint32_t w)
{
	uint32_t device, other;

	if (r->worker[w] == WOKEN)
		r->core->arriving--;
	/* One at a time has to go, too. */
	if (r->core->in_list_order && r->batch_worker == DPM_GRAPH_NONE && random_below(8) &&
	    take_batch(r, w))
		return;
	device = dpm_graph_take(r->core);
	if (device == DPM_GRAPH_NONE) {
		r->worker[w] = IDLE;
		return;
	}
	/* The worker itself is not idle. */
	r->worker[w] = YIELDED;
	other = dpm_graph_wants_worker(r->core, device) ? idle_worker(r) : DPM_GRAPH_NONE;
	if (other != DPM_GRAPH_NONE) {
		put_back(r, device);
		r->worker[other] = WOKEN;
		r->core->arriving++;
		r->wakes++;
		/* It leaves the device to the other one. */
		if (!random_below(4))
			r->worker[w] = IDLE;
		return;
	}
	start(r, w, device);
	if (!random_below(4))
		dpm_graph_check_head_start(r->core);
	/* It turns out to take long, or to sleep. */
	if (!random_below(50))
		dpm_graph_leave_list_order(r->core);
}

/* A device has run; false if it is not one of an open batch, and is still to be finished. */
static bool leave_in_batch(struct run *r, uint32_t w)
{
	if (r->batch_worker != w)
		return false;
	/* A worker also ends a batch where another task should have its processor. */
	if (!r->failed && r->batch_begun < r->batch_count && random_below(40))
		return next_of_batch(r, w);
	end_batch(r, r->batch_begun, false);
	return true;
}

/* The worker's device has run; false if it has begun another one already. */
static bool leave_device(struct run *r, uint32_t w)
{
	uint32_t device = r->device[w];

	r->worker[w] = YIELDED;
	r->finished[device] = ++r->events;
	if (device == r->failing)
		r->failed = true;
	if (!leave_in_batch(r, w))
		dpm_graph_finish(r->core, device);
	r->core->stopped |= r->failed;
	return r->worker[w] != BUSY;
}

/* A random one of those that are to come next: woken workers come at any time. */
static uint32_t next_worker(const struct run *r)
{
	uint32_t next = DPM_GRAPH_NONE, same = 0, w;
	uint64_t when, earliest = UINT64_MAX;

	for (w = 0; w < r->workers; w++) {
		if (r->worker[w] == IDLE)
			continue;
		when = r->worker[w] == BUSY ? r->until_us[w] : r->now_us;
		if (when < earliest) {
			earliest = when;
			same = 0;
		}
		if (when == earliest && !random_below(++same))
			next = w;
	}
	return next;
}

/* Runs one phase to its end; the simulated microseconds that it took. */
static uint64_t run_phase(struct run *r)
{
	uint32_t w;

	r->worker[0] = WOKEN;
	r->core->arriving = 1;
	while (!dpm_graph_done(r->core)) {
		w = next_worker(r);
		CHECK(w != DPM_GRAPH_NONE, "all workers are idle and %u of %u devices have run",
		      r->core->finished, r->graph->devices);
		if (r->worker[w] == BUSY) {
			r->now_us = r->until_us[w];
			if (!leave_device(r, w))
				continue;
		}
		come_to_queue(r, w);
	}
	return r->now_us;
}

static uint64_t critical_path_us(const struct run *r)
{
	const struct graph *g = r->graph;
	uint64_t *path = allocate(g->devices, sizeof(*path)), longest = 0;
	uint32_t i, k;

	/* The same length in both directions; superiors have lower numbers. */
	for (i = 0; i < g->devices; i++) {
		for (k = r->core->node[i].superiors; k < r->core->node[i + 1].superiors; k++)
			if (path[r->core->superior[k]] > path[i])
				path[i] = path[r->core->superior[k]];
		path[i] += g->real_us[i];
		if (path[i] > longest)
			longest = path[i];
	}
	free(path);
	return longest;
}

static void check_phase(struct run *r, uint64_t took_us)
{
	const struct graph *g = r->graph;
	uint64_t sum_us = 0;
	uint32_t i;

	for (i = 0; i < g->devices; i++) {
		sum_us += g->real_us[i];
		CHECK(!r->started[i] == !r->finished[i], "device %u is left running", i);
		if (!r->failed)
			CHECK(r->finished[i], "device %u never ran", i);
	}
	check_list_order(r);
	if (r->failing == DPM_GRAPH_NONE)
		CHECK(!r->failed, "failed without a failure");
	CHECK(took_us <= sum_us, "%" PRIu64 " us, and one after the other %" PRIu64, took_us,
	      sum_us);
	/*
	 * With no threshold no ready device waits while a processor is idle, so Graham's bound
	 * (1969) holds: the longest path, and all work shared by the processors.
	 */
	if (!r->core->settings.threshold_us && !r->core->settings.sleepers &&
	    r->workers >= r->core->settings.cpus && !r->failed) {
		uint64_t bound_us = critical_path_us(r) + sum_us / r->core->settings.cpus;

		CHECK(took_us <= bound_us, "%" PRIu64 " us, above the bound of %" PRIu64, took_us,
		      bound_us);
	}
}

static void one_phase(const struct graph *g, struct dpm_graph_core *core,
		      enum dpm_graph_direction direction, uint64_t *phases)
{
	struct dpm_graph_settings settings = {
		.direction = direction,
		.threshold_us = random_below(3) ? random_below(2000) : 0,
		.cpus = 1 + random_below(8),
		.sleepers = random_below(2) ? random_below(16) : 0,
		.head_start_us = random_below(2) ? random_below(300) : 0,
	};
	struct run r = {
		.graph = g,
		.core = core,
		.failing = DPM_GRAPH_NONE,
		.batch_worker = DPM_GRAPH_NONE,
	};
	uint32_t i;

	for (i = 0; i < g->devices; i++) {
		core->node[i].cost_us = g->cost_us[i];
		core->node[i].span_us = g->span_us[i];
		core->node[i].wait_us = g->wait_us[i];
		core->node[i].contended = g->contended[i];
		/* Graham's bound asks for what is known to be true, and all to be slow. */
		if (!settings.threshold_us && !settings.sleepers)
			core->node[i].cost_us = g->real_us[i] + 1;
	}
	if (g->devices && !random_below(3))
		r.failing = random_below(g->devices);
	r.workers = 1 + random_below(settings.cpus + settings.sleepers + 2);
	r.worker = allocate(r.workers, sizeof(*r.worker));
	r.device = allocate(r.workers, sizeof(*r.device));
	r.until_us = allocate(r.workers, sizeof(*r.until_us));
	r.started = allocate(g->devices, sizeof(*r.started));
	r.finished = allocate(g->devices, sizeof(*r.finished));

	dpm_graph_begin(core, &settings);
	check_phase(&r, run_phase(&r));
	++*phases;

	free(r.worker);
	free(r.device);
	free(r.until_us);
	free(r.started);
	free(r.finished);
}

static void one_graph(uint32_t max_devices, uint64_t *phases)
{
	struct graph g = random_graph(max_devices);
	uint64_t bytes = dpm_graph_bytes(g.devices, g.edges);
	/* Exactly that much, so that a sanitizer sees a step beyond. */
	void *memory = allocate(1, bytes);
	struct dpm_graph_core core;
	uint32_t i, against = 0;

	dpm_graph_init(&core, memory, g.devices, g.edges);
	for (i = 0; i < g.devices; i++)
		core.node[i].ordered = g.ordered[i];
	dpm_graph_build(&core, g.edge, g.edges);
	for (i = 0; i < g.edges; i++)
		against += g.edge[i].superior >= g.edge[i].subordinate;
	CHECK(core.edges_dropped == against, "%u edges against the list, %u left out", against,
	      core.edges_dropped);

	/* One graph serves all phases of a transition, down and up. */
	for (i = 0; i < 3; i++) {
		one_phase(&g, &core, DPM_GRAPH_DOWN, phases);
		one_phase(&g, &core, DPM_GRAPH_UP, phases);
	}
	free(memory);
	free_graph(&g);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text && !*end)
		return value;
	fprintf(stderr, "usage: graph_core_test [GRAPHS [SEED [MOST-DEVICES]]]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	uint64_t graphs = argc > 1 ? number(argv[1]) : 10000;
	uint64_t seed = argc > 2 ? number(argv[2]) : 1;
	uint32_t max_devices = argc > 3 ? number(argv[3]) : 2000;
	uint64_t phases = 0, i;

	for (i = 0; i < graphs; i++) {
		begin_random(seed + i);
		/* Large ones are rare, or they would be all that is done. */
		one_choice();
		begin_random(seed + i);
		one_graph(i % 50 ? (max_devices < 60 ? max_devices : 60) : max_devices, &phases);
	}
	printf("graph_core: %" PRIu64 " graphs, %" PRIu64 " phases: every order kept\n", graphs,
	       phases);
	return 0;
}
