// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The small core of the hand-over: small_core.h. */
#include <stdlib.h>
#include <string.h>

#include "offer.h"
#include "small_core.h"

_Static_assert(sizeof(struct offload_handover) <= 0x1000, "the hand-over has a page");

/* While the small core runs, too, lines come into the big core's caches, and leave them. */
static void on_store(uc_engine *core, uc_mem_type type, uint64_t address, int size, int64_t value, void *user)
{
	struct small_core *small = user;

	(void)core, (void)type, (void)size, (void)value;
	big_core_note_foreign(small->big, address - TEST_HOST_BASE + small->big->caches.base);
	for (uint32_t i = below(4); i; i--)
		big_core_speculate(small->big);
}

void small_core_new(struct small_core *small, struct big_core *big, struct edge *edge)
{
	uc_hook hook;

	small->big = big;
	small->edge = edge;
	uc_hook_add(edge->core, &hook, UC_HOOK_MEM_WRITE, on_store, small, TEST_HOST_BASE,
		    TEST_HOST_BASE + TEST_MEMORY - 1);
}

void small_core_reset(struct small_core *small, uint32_t one_in, bool again)
{
	if (!again)
		small->state = WAITS;
	small->one_in = one_in;
	small->runs = small->taken_back = small->late_answers = 0;
	edge_forget(small->edge);
}

/* As give_outcome() in target/handover.c. */
static void run(struct small_core *small)
{
	struct offload_handover *seen = (struct offload_handover *)small->big->seen;
	const struct offload_job *job = &seen->job.job;
	struct offload_cpu cpu = { .control = job->control | (job->entry & 1) << 5, .exclusive = 1 };

	memcpy(cpu.r, job->registers, sizeof(job->registers));
	cpu.r[SP] = job->stack_top;
	cpu.r[LR] = job->link;
	cpu.r[PC] = job->entry & ~1u;
	small->edge->job.link = job->link;
	small->runs++;
	if (seen->job.magic == TARGET_MAGIC && seen->job.bytes == sizeof(seen->job))
		seen->stop = edge_run(small->edge, &cpu, 2000);
	else
		seen->stop = OFFLOAD_BAD_JOB;
	memcpy(seen->registers, cpu.r, sizeof(seen->registers));
	seen->status = cpu.flags | cpu.ge | (cpu.it & 3) << 25 | (cpu.it & 0xfcu) << 8 | cpu.control;
}

static void answer(struct small_core *small)
{
	struct offload_handover *seen = (struct offload_handover *)small->big->seen;

	small->late_answers += seen->offer != small->number;
	seen->answer = small->number;
	big_core_share(small->big, offsetof(struct offload_handover, taken),
		       offsetof(struct offload_handover, job) - offsetof(struct offload_handover, taken));
}

void small_core_step(struct small_core *small)
{
	struct offload_handover *seen = (struct offload_handover *)small->big->seen;

	enum fault fault = small->big->fault;

	if (!small->one_in || below(small->one_in))
		return;
	switch (small->state) {
	case WAITS:
		if (offer_is_new(seen, &small->number) ||
		    (fault == FAULT_TAKES_OLD && small->number != seen->answer))
			small->state = FINDS;
		break;
	case FINDS:
		offer_take(seen, small->number);
		big_core_share(small->big, offsetof(struct offload_handover, taken), 4);
		small->state = TAKES;
		break;
	case TAKES:
		small->state = WAITS;
		if (fault == FAULT_READS_ONCE || offer_stands(seen, small->number)) {
			small->state = RUNS;
			run(small);
		} else {
			small->taken_back++;
			big_core_share(small->big, offsetof(struct offload_handover, taken), 4);
		}
		break;
	case RUNS:
		small->state = WAITS;
		answer(small);
		break;
	}
}
