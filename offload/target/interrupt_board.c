// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The guest's interrupts are those of the big core's board. They are taken where the guest has nothing to run but its
 * idle thread, whose WFI lets the board go on until one pends; what comes earlier pends until then. The guest's
 * handler is a kernel's own, and gets what it expects: struct pt_regs of what it interrupts.
 */
#include "runtime/target.h"
#include "target.h"

/* struct pt_regs of 32-bit Arm. */
struct frame {
	uint32_t r[16], status, first;
};

static bool pends;
static uint32_t frame_at;

bool interrupt_wait(void *owner, uint64_t until)
{
	if (until != UINT64_MAX || !executor.job->irq_handler || !wait_for_board())
		return wait_until(owner, until);
	pends = true;
	/* No tick of the job's: the guest is to be looked at soon. */
	retrying = true;
	pend_timer();
	return true;
}

bool interrupt_pends(void)
{
	return pends;
}

uint32_t interrupt_guest(uint32_t host)
{
	struct executor *x = &executor;
	const struct offload_layout *layout = &x->job->layout;
	const struct offload_cpu *cpu = &x->interrupted;
	uint32_t next, offset;
	struct frame *frame;

	if (!pends)
		return 1;
	next = executor_interrupt(x, host, 0);
	if (!next)
		return 0;
	pends = false;
	frame_at = x->cpu.r[SP] - sizeof(*frame);
	offset = frame_at - layout->guest_base;
	if (offset > layout->size - sizeof(*frame)) {
		x->stop_address = frame_at;
		x->stop = OFFLOAD_STACK_OVERFLOW;
		return 0;
	}
	frame = (struct frame *)(x->memory + offset);
	__builtin_memcpy(frame->r, cpu->r, sizeof(frame->r));
	frame->status = cpu->flags | cpu->ge | cpu->control;
	frame->first = 0xffffffff;
	/* The executor has given the guest its registers already. */
	x->raw[SP] -= sizeof(*frame);
	if (layout->scratch)
		x->raw[0] = frame_at;
	else
		set_guest_scratch(x->state, frame_at);
	return next;
}

/* What the big core needs to go on in another thread, or in the handler. */
void interrupt_report(void)
{
	print_number(" interrupted", executor.in_interrupt);
	print(" frame ");
	print_hex(frame_at);
	print(" tpidrurw ");
	print_hex(executor.cpu.thread[0]);
	print(" tpidruro ");
	print_hex(executor.cpu.thread[1]);
	print(" tpidrprw ");
	print_hex(executor.cpu.thread[2]);
}
