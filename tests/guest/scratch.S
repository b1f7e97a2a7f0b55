/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ordinary forms that need the guest's r9, which the translator keeps in memory, and a temporary register:
 * each 200 times. uint32_t scratch_forms(void): a digest of what they gave.
 */
	.syntax unified
	.text
	.global	scratch_forms
	.type	scratch_forms, %function
scratch_forms:
	push	{r4-r11, lr}
	sub	sp, sp, #16
	ldr	r8, =words
	mov	r10, #200
	mov	r6, #1
1:	mov	r9, #3
	mov	r7, #0x550
#ifdef __thumb__
	lsr	r11, r7, r9
	orr	r6, r6, r11
#else
	orr	r6, r6, r7, lsr r9
#endif
	add	r6, r6, r7, lsl #3
	/* A shift by itself, flags too. */
	lsls	r9, r9, r9
	adc	r6, r6, r9
	/* Its value through a base that moves. */
	ldr	r9, [r8], #4
	add	r6, r6, r9
	str	r9, [r8, #4]!
	ldrh	r9, [r8], #-8
	eor	r6, r6, r9
	/* Lists from it, with it, and both. */
	mov	r9, r8
	ldmia	r9!, {r4, r5}
	add	r6, r6, r4
	stmdb	r9!, {r4, r5}
	ldmdb	r9, {r4, r5, r7}
	eor	r6, r6, r7
	stmia	r8, {r4, r6, r9}
	ldmia	r8, {r4, r5, r9}
	/* Doublewords with it. */
	add	r12, r8, #8
	strd	r8, r9, [r12]
	ldrd	r8, r9, [r12]
	strd	r8, r9, [r12, #8]!
	add	r6, r6, r9
	/* At an address with it. */
	mov	r9, #8
	ldr	r4, [r8, r9]
	str	r6, [r8, r9, lsl #1]
	str	r9, [r8, r9]
	add	r9, r9, r9, lsl #2
	mla	r9, r9, r9, r9
	umlal	r6, r9, r9, r6
	uxtab	r9, r9, r9
	rsb	r6, r9, r6, ror #7
	/* Masks of interrupts. */
	mrs	r9, cpsr
	and	r9, r9, #0xc0
	add	r6, r6, r9
	cpsid	i
	mrs	r4, cpsr
	cpsie	i
	and	r4, r4, #0xc0
	add	r6, r6, r4, lsl #4
	/* A frame that holds its own address. */
	str	sp, [sp, #4]
	ldr	r4, [sp, #4]
	sub	r4, r4, sp
	add	r6, r6, r4
	/* Under a condition. */
	cmp	r6, #0
	itt	mi
	ldrmi	r9, [r8], #4
	submi	r8, r8, #4
	itt	pl
	ldrpl	r9, [r8], #8
	subpl	r8, r8, #8
	add	r6, r6, r9
	subs	r10, r10, #1
	bne	1b
	mov	r0, r6
	add	sp, sp, #16
	pop	{r4-r11, pc}
	.ltorg

	.data
	.word	0x01234567, 0x89abcdef, 0x13579bdf
words:
	.word	0x2468ace0, 0xfedcba98, 0x76543210, 0x0f1e2d3c, 0x4b5a6978, 0x8796a5b4, 1, 2, 3, 4
