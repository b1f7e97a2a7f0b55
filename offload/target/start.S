/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Cortex-M3: vectors, and the way between translated code and the executor.
 *
 * Translated code runs unprivileged, in thread mode, with the guest's stack as process stack. Every
 * exception takes its registers into executor.raw, calls handle_exception(), and goes on where that
 * says: 0 means back to the caller of run_guest(), 1 means to continue unchanged.
 */
#ifdef TARGET_BOARD
#include TARGET_BOARD
#else
#include "target/boards/mps2-an385.h"
#endif

	.syntax unified
	.cpu cortex-m3
	.thumb

	.section .vectors, "a"
	.word	TARGET_STACK
	.word	reset + 1
	.word	executor_failed + 1	/* NMI */
	.word	executor_failed + 1	/* HardFault */
	.word	exception + 1		/* MemManage */
	.word	exception + 1		/* BusFault */
	.word	exception + 1		/* UsageFault */
	.word	0, 0, 0, 0
	.word	supervisor_call + 1	/* SVCall */
	.word	0, 0
	.word	0
	.word	exception + 1		/* SysTick */

	.text
	.thumb_func
	.global	reset
reset:
#ifdef TARGET_FLASH
	ldr	r0, =data_start
	ldr	r1, =data_end
	ldr	r3, =data_copy
2:	cmp	r0, r1
	itt	lo
	ldrlo	r2, [r3], #4
	strlo	r2, [r0], #4
	blo	2b
#endif
	ldr	r0, =bss_start
	ldr	r1, =bss_end
	movs	r2, #0
1:	cmp	r0, r1
	it	lo
	strlo	r2, [r0], #4
	blo	1b
	bl	target_main
	b	.

	.thumb_func
executor_failed:
	bl	report_failure
	b	.

/* uint32_t run_guest(uint32_t host): until the executor stops. */
	.thumb_func
	.global	run_guest
run_guest:
	push	{r4-r11, lr}
	svc	#255
	pop	{r4-r11, pc}

/*
 * Two calls for which no register has to be moved; everything else is the executor's. The guest masks or unmasks
 * interrupts (CALL_CONTROL), as change_control() of runtime/call.c does it. And where there is no target table, an
 * indirect branch (CALL_DISPATCH) finds its target as outside_slot() of cache/cache.c does.
 */
	.thumb_func
supervisor_call:
	tst	lr, #4
	beq	exception
	mrs	r0, psp
	ldr	r1, [r0, #24]
	ldrb	r2, [r1, #-2]
#if !TARGET_TABLE_BYTES
	cmp	r2, #4
	beq	dispatch
#endif
	cmp	r2, #7
	bne	exception
	ldrh	r2, [r1], #2		/* enum control_change */
#if TARGET_STATE < 0x10000
	movw	r3, #TARGET_STATE + 0x88	/* offload_state.control; status is behind it */
#else
	ldr	r3, =TARGET_STATE + 0x88
#endif
	lsrs	r12, r2, #8
	cmp	r12, #2
	bhi	2f
	and	r2, r2, #0xff
	ldr	r12, [r3]
	ite	eq
	biceq	r12, r12, r2, lsl #6
	orrne	r12, r12, r2, lsl #6
1:	str	r12, [r3]
	ldr	r2, [r3, #4]
	lsrs	r12, r12, #6
	bfi	r2, r12, #6, #3
	str	r2, [r3, #4]
	str	r1, [r0, #24]
	bx	lr
2:	and	r2, r2, #15		/* the number of a register: in the frame, or where it was */
	cmp	r2, #4
	blo	3f
	subs	r2, r2, #12
	bhs	4f
	push	{r4-r11}
	add	r2, r2, #8
	ldr	r12, [sp, r2, lsl #2]
	add	sp, sp, #32
	b	5f
3:	ldr	r12, [r0, r2, lsl #2]
	b	5f
4:	adds	r2, r2, #8		/* r12 is at 16, lr at 20 */
	ldr	r12, [r0, r2, lsl #1]
5:	ldr	r2, [r3]
	eor	r12, r12, r2
	tst	r12, #0x1f		/* another mode */
	bne	exception
	and	r12, r12, #0xc0
	eor	r12, r12, r2
	b	1b

#if !TARGET_TABLE_BYTES
#if CACHE_OUTSIDE != 512
#error "the hash table has another size"
#endif
dispatch:
	ldr	r2, =executor_outside
	ldr	r2, [r2]
	cbz	r2, exception
	lsr	r1, r11, #1
	eor	r1, r1, r11, lsr #8
	.rept	3			/* OUTSIDE_PROBES */
	ubfx	r3, r1, #0, #9
	add	r3, r2, r3, lsl #3
	ldrd	r12, r3, [r3]
	cmp	r12, r11
	beq	1f
	adds	r1, r1, #1
	.endr
	b	exception
1:	cbz	r3, exception
	bic	r3, r3, #1
	str	r3, [r0, #24]
	bx	lr
#endif

	.thumb_func
exception:
	tst	lr, #4
	beq	from_executor
	ldr	r1, =executor_raw
	ldr	r1, [r1]
	mrs	r0, psp
	add	r2, r1, #16
	stmia	r2, {r4-r11}
	/* Of a frame that did not fit there is nothing to read. */
	ldr	r3, =0xe000ed28
	ldr	r3, [r3]
	tst	r3, #0x10
	bne	1f
	ldmia	r0, {r4-r11}
	stmia	r1, {r4-r7}
	str	r8, [r1, #48]
	str	r9, [r1, #56]
	str	r10, [r1, #60]
	str	r11, [r1, #64]
	add	r2, r0, #32
	tst	r11, #0x200
	it	ne
	addne	r2, r2, #4
	str	r2, [r1, #52]
1:	mrs	r0, ipsr
	push	{r1, lr}
	bl	handle_exception
	pop	{r1, lr}
	cmp	r0, #1
	beq	as_before
	bhi	go_on
	/* Back to run_guest's caller: privileged, on the main stack, behind its supervisor call. */
	msr	control, r0
	isb
	ldr	lr, =0xfffffff9
	bx	lr
as_before:
	add	r2, r1, #16
	ldmia	r2, {r4-r11}
	bx	lr

/* A frame for exception return below the guest's stack pointer; r0 is where, r1 the registers. */
go_on:
	ldr	r2, [r1, #52]
	ldr	r3, [r1, #64]
	and	r3, r3, #0xf8000000
	orr	r3, r3, #0x01000000
	subs	r2, r2, #32
	tst	r2, #4
	itt	ne
	subne	r2, r2, #4
	orrne	r3, r3, #0x200
	msr	psp, r2
	str	r3, [r2, #28]
	bic	r0, r0, #1
	str	r0, [r2, #24]
	ldr	r3, [r1, #56]
	str	r3, [r2, #20]
	ldr	r3, [r1, #48]
	str	r3, [r2, #16]
	ldmia	r1, {r4-r7}
	stmia	r2, {r4-r7}
	add	r2, r1, #16
	ldmia	r2, {r4-r11}
	bx	lr

/* run_guest's own call: r0 in the frame on the main stack is the host address to begin at. */
from_executor:
	/* A tick that was pending when the executor stopped is nobody's any more. */
	mrs	r0, ipsr
	cmp	r0, #11
	it	ne
	bxne	lr
	ldr	r0, [sp]
	movs	r2, #1			/* unprivileged */
	msr	control, r2
	isb
	ldr	r1, =executor_raw
	ldr	r1, [r1]
	ldr	lr, =0xfffffffd
	b	go_on

/* uint32_t semihost(uint32_t operation, const void *argument) */
	.thumb_func
	.global	semihost
semihost:
	bkpt	0xab
	bx	lr
