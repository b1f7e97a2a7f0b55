/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * In place of Linux' headers: what offload/linux and the kernel's cache-v7.S take from them, as a uniprocessor ARMv7
 * kernel of the two chips has it. Included before each file.
 */
#ifndef OFFLOAD_TESTS_CACHES_KERNEL_H
#define OFFLOAD_TESTS_CACHES_KERNEL_H

/* Every Cortex-A7 needs it, and kernels of its chips have it. */
#define CONFIG_ARM_ERRATA_814220 1

#ifdef __ASSEMBLER__

#define ENTRY(name) .globl name; .balign 4; .type name, %function; name:
#define ENDPROC(name) .size name, . - name
#define SYM_TYPED_FUNC_START(name) ENTRY(name)
#define SYM_FUNC_END(name) ENDPROC(name)
#define ALT_SMP(...)
#define ALT_UP(...) __VA_ARGS__
#define USER(...) __VA_ARGS__
#define UNWIND(...)
#define W(instruction) instruction.w
#define EFAULT 14
#define DMA_TO_DEVICE 1
#define DMA_FROM_DEVICE 2

	.syntax	unified
	.macro	ret, register
	bx	\register
	.endm
	.macro	dcache_line_size, register, other
	mrc	p15, 0, \other, c0, c0, 1
	lsr	\other, \other, #16
	and	\other, \other, #0xf
	mov	\register, #4
	mov	\register, \register, lsl \other
	.endm
	/* Of functions that are not run here. */
	.macro	icache_line_size, register, other
	udf	#0
	.endm

#else

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;

#define __iomem
#define KBUILD_MODNAME "dormouse_handover"
#define NSEC_PER_SEC 1000000000ull
#define THREAD_SIZE 8192u
#define PAGE_OFFSET 0xc0000000u
#define PSR_A_BIT 0x100
#define PSR_I_BIT 0x80
#define PSR_F_BIT 0x40
#define PSR_T_BIT 0x20
#define MODE_MASK 0x1f
#define IS_ENABLED(option) 0

#define mb() __asm volatile ("dsb" ::: "memory")
#define rmb() __asm volatile ("dsb" ::: "memory")
#define wmb() __asm volatile ("dsb st" ::: "memory")
#define cpu_relax() __asm volatile ("" ::: "memory")
#define wfe() cpu_relax()

static inline u32 readl(const volatile void *address)
{
	u32 value = *(const volatile u32 *)address;

	rmb();
	return value;
}

static inline void writel(u32 value, volatile void *address)
{
	wmb();
	*(volatile u32 *)address = value;
}

static inline void local_flush_tlb_all(void)
{
	__asm volatile ("dsb nshst; mcr p15, 0, %0, c8, c7, 0; dsb nsh; isb" :: "r" (0) : "memory");
}

void *memcpy(void *to, const void *from, size_t bytes);
void memcpy_toio(volatile void *to, const void *from, size_t bytes);
u64 ktime_get_mono_fast_ns(void);
_Noreturn void panic(const char *format, ...);

#endif
#endif
