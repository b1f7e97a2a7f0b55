// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a guest program natively and counts: on a Cortex-A15 (QEMU's virt) or a Cortex-M3 (mps2).
 * The driver puts what to run at job; the answer goes out through semihosting.
 */
#include "programs.h"

struct native_job {
	u32 magic;
	u32 program;
	u32 seed;
	u32 rounds;
	u32 runs;
};

#define NATIVE_MAGIC 0x314a4e44

static u32 (*const programs[])(u32 seed, u32 rounds) = {
#ifdef ONE_PROGRAM
	ONE_PROGRAM,
#else
	run_glob, run_kfifo, run_sort, run_list_sort, run_rbtree, run_crc32, run_string, run_callback,
#endif
};

#if __ARM_ARCH_PROFILE == 'M'
#define JOB 0x20300000
static volatile u32 *const timer = (void *)0x40000000;
/* The dual timer's first: counts each 256th tick, free-running, with 32 bits. */
static volatile u32 *const slow_timer = (void *)0x40002000;

static void start_timer(void)
{
	timer[2] = 0xffffffff;
	timer[1] = 0xffffffff;
	slow_timer[0] = 0xffffffff;
	slow_timer[2] = 0x8a;
	timer[0] = 1;
}

/* The one has the lower bits exactly; the other, which began a moment earlier, says how often they went round. */
static u64 now(void)
{
	u32 low = ~timer[1];
	u64 about = (u64)~slow_timer[1] << 8;

	return about + (s32)(low - (u32)about);
}

static u32 semihost(u32 operation, const void *argument)
{
	register u32 r0 __asm__("r0") = operation;
	register const void *r1 __asm__("r1") = argument;

	__asm__ volatile ("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
	return r0;
}

void start(void);
__attribute__((section(".vectors"), used)) static void *const vectors[] = {
	(void *)0x20400000, (void *)start,
};
#else
#define JOB 0x48000000
static void start_timer(void)
{
}

static u64 now(void)
{
	u32 low, high;

	__asm__ volatile ("isb; mrrc p15, 0, %0, %1, c14" : "=r"(low), "=r"(high));
	return (u64)high << 32 | low;
}

static u32 semihost(u32 operation, const void *argument)
{
	register u32 r0 __asm__("r0") = operation;
	register const void *r1 __asm__("r1") = argument;

#ifdef __thumb__
	__asm__ volatile ("svc 0xab" : "+r"(r0) : "r"(r1) : "memory");
#else
	__asm__ volatile ("svc 0x123456" : "+r"(r0) : "r"(r1) : "memory");
#endif
	return r0;
}
#endif

static char line[128];

static char *put_text(char *at, const char *text)
{
	while (*text)
		*at++ = *text++;
	return at;
}

static char *put_hex(char *at, u32 value)
{
	for (int shift = 28; shift >= 0; shift -= 4)
		*at++ = "0123456789abcdef"[value >> shift & 15];
	return at;
}

__attribute__((used)) void native_main(void)
{
	const volatile struct native_job *job = (void *)JOB;

	start_timer();
	for (u32 run = 0; run < job->runs && job->magic == NATIVE_MAGIC; run++) {
		u64 begin = now();
		u32 result = programs[job->program](job->seed, job->rounds);
		u64 ticks = now() - begin;
		char *at = put_text(line, "result ");

		at = put_hex(at, result);
		at = put_text(at, " ticks ");
		at = put_hex(at, ticks >> 32);
		at = put_hex(at, ticks);
		*put_text(at, "\n") = 0;
		semihost(4, line);
	}
	semihost(0x18, (void *)0x20026);
	for (;;)
		;
}

__attribute__((naked)) void start(void)
{
#if __ARM_ARCH_PROFILE == 'M'
	__asm__ volatile ("b native_main");
#else
	__asm__ volatile ("ldr sp, =0x4a000000\n\tb native_main");
#endif
}
