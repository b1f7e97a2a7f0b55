/* SPDX-License-Identifier: GPL-2.0-only */
/* Between a test's program and what is faked of the kernel. */
#ifndef OFFLOAD_PROGRAMS_FAKES_H
#define OFFLOAD_PROGRAMS_FAKES_H

/* run.c and kernel.c have the kernel's headers, fakes.c has none. */
#ifndef __KERNEL__
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
size_t strlen(const char *text);
void rcu_barrier(void);
#endif

/* Data that stays from run to run, and is made anew by what uses it. */
#define KEPT __attribute__((section(".bss..kept")))

#define HEAP_BYTES (8 << 20)
#define HEAP_ALIGN (1 << 20)
/* What an allocation of no bytes gives. */
#define ZERO_SIZE ((void *)16)

extern u8 heap[HEAP_BYTES];
extern u32 warnings;	/* of the kernel's WARN() */
extern u32 complaints;	/* logged: a test of a module failed */
extern u32 absences;	/* calls of what is not there */

/* An empty heap, and random numbers from a seed. */
void fakes_begin(u32 seed);
/* Pages, and a current task; nothing is to be done later. */
void kernel_begin(void);
/* NULL where there is no room. */
void *allocate(u32 bytes, u32 flags);
void release(const void *block);
void absent(void);
void pass_time(u32 ms);
/* Other threads' turn: timers that are due, work, and callbacks behind a grace period, until there are none. */
void settle(void);
u32 run_program(u32 seed, u32 rounds);

#endif
