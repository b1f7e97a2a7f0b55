/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From a phase's call to the small core and back. The small core goes on in the thread's own stack, so the big core
 * must not be in it meanwhile: it waits on a stack of the module's.
 */
#include <linux/linkage.h>
#include <asm/assembler.h>

	.syntax unified
	.text

/*
 * Instead of a phase's function, with its arguments and its caller's registers. What handover_call() returns are
 * r0 to r12, sp and lr to go on with; below that sp are PC and CPSR.
 */
ENTRY(handover_entry)
	push	{r0-r12, lr}
	mrs	r1, cpsr
	cpsid	i
	mov	r0, sp
	ldr	ip, =handover_stack_end
	mov	sp, ip
	bl	handover_call
	ldr	r1, [r0, #52]
	sub	r1, r1, #8
	mov	sp, r1
	ldr	lr, [r0, #56]
	ldmia	r0, {r0-r12}
	rfeia	sp!
ENDPROC(handover_entry)

	.ltorg

	.bss
	.align	3
	.space	8192
handover_stack_end:
