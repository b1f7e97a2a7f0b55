// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes a job of a call of the kernel's, and registers to go on with of what the small core left. Where the small core
 * cannot go on, the big core does, from the same instruction; if it does not take the job, the big core runs the
 * function itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/panic.h>
#include <linux/string.h>
#include <linux/thread_info.h>
#include <asm/memory.h>
#include <asm/ptrace.h>

#include "rendezvous.h"

enum { LINK = 14, STACK = 13, COUNTER = 15 };

static struct handover_context context;

static void fill_call(const struct handover_frame *frame, u32 status)
{
	struct offload_job *call = &rendezvous.job.job;
	u32 sp = (u32)(frame + 1);

	call->entry = rendezvous.entry;
	memcpy(call->registers, frame->registers, sizeof(call->registers));
	/* Where the function returns to, the big core goes on. */
	call->link = frame->link;
	call->control = status & (PSR_A_BIT | PSR_I_BIT | PSR_F_BIT | MODE_MASK);
	asm volatile("mrc p15, 0, %0, c13, c0, 2" : "=r" (call->thread[0]));
	asm volatile("mrc p15, 0, %0, c13, c0, 3" : "=r" (call->thread[1]));
	asm volatile("mrc p15, 0, %0, c13, c0, 4" : "=r" (call->thread[2]));
	call->stack_top = sp;
	call->stack_bottom = sp & ~(THREAD_SIZE - 1);
	call->stack_guard = call->stack_bottom;
	call->arena_start = PAGE_OFFSET + call->layout.size;
	call->arena_end = call->arena_start;
}

/* The function itself, as if nothing had been. */
static void go_on_alone(const struct handover_frame *frame, u32 *status)
{
	rendezvous.goes_alone = true;
	memcpy(context.registers, frame->registers, sizeof(frame->registers));
	context.registers[STACK] = (u32)(frame + 1);
	context.registers[LINK] = frame->link;
	context.registers[COUNTER] = rendezvous.entry & ~1;
	*status &= ~PSR_T_BIT;
	if (rendezvous.entry & 1)
		*status |= PSR_T_BIT;
}

/* Goes on from what the small core left. */
static void take_outcome(u32 stop, u32 *status)
{
	switch (stop) {
	case OFFLOAD_FALLBACK:
	case OFFLOAD_UNDEFINED:
	case OFFLOAD_UNPREDICTABLE:
	case OFFLOAD_REFUSED:
	case OFFLOAD_UNALIGNED:
	case OFFLOAD_UNMAPPED_READ:
	case OFFLOAD_UNMAPPED_WRITE:
	case OFFLOAD_UNMAPPED_CODE:
	case OFFLOAD_CODE_WRITTEN:
	case OFFLOAD_BUDGET:
		break;
	default:
		/* Registers or memory are not what the kernel left there. */
		panic(KBUILD_MODNAME ": the small core stopped %s with %u; the trace of its remoteproc says more",
		      rendezvous.name, stop);
	}
	for (int i = 0; i < 16; i++)
		context.registers[i] = readl(&rendezvous.shared->registers[i]);
	*status = readl(&rendezvous.shared->status);
}

struct handover_context *handover_call(struct handover_frame *frame, u32 status)
{
	u32 stop = OFFLOAD_BAD_JOB, *below;

	fill_call(frame, status);
	if (run_on_small_core())
		stop = readl(&rendezvous.shared->stop);
	if (stop == OFFLOAD_BAD_JOB)
		go_on_alone(frame, &status);
	else
		take_outcome(stop, &status);
	/* For RFE, where the thread keeps nothing. */
	below = (u32 *)context.registers[STACK];
	below[-2] = context.registers[COUNTER];
	below[-1] = status;
	return &context;
}
