/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data cache is switched off and on. While it is off no load, store or speculation brings a line in; a unified
 * cache may still get lines as instructions. Between switching and the end of cleaning no memory is accessed: a dirty
 * line of the stack would overwrite what is pushed past it.
 */
#include <linux/linkage.h>
#include <asm/assembler.h>

	.syntax unified
	.arch	armv7-a
	.text

/* SCTLR.C */
	.equ	DATA_CACHE, 1 << 2

ENTRY(caches_off)
	push	{r3-r11, lr}
	mov	r7, r0
	mrc	p15, 0, r0, c1, c0, 0
	bic	r0, r0, #DATA_CACHE
	mcr	p15, 0, r0, c1, c0, 0
	isb
	blx	r7
	pop	{r3-r11, pc}
ENDPROC(caches_off)

ENTRY(caches_on)
	push	{r3-r11, lr}
	blx	r0
	mov	r0, #0
	mcr	p15, 0, r0, c7, c5, 0		@ ICIALLU: instructions and branch predictions; other CPUs are offline
	dsb
	isb
	mrc	p15, 0, r0, c1, c0, 0
	orr	r0, r0, #DATA_CACHE
	mcr	p15, 0, r0, c1, c0, 0
	isb
	pop	{r3-r11, pc}
ENDPROC(caches_on)
