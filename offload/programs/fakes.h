/* SPDX-License-Identifier: GPL-2.0-only */
/* Between a test's program and what is faked of the kernel. */
#ifndef OFFLOAD_PROGRAMS_FAKES_H
#define OFFLOAD_PROGRAMS_FAKES_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

extern u32 warnings;	/* of the kernel's WARN() */
extern u32 absences;	/* calls of what is not there */

void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
size_t strlen(const char *text);

/* An empty heap, and random numbers from a seed. */
void fakes_begin(u32 seed);
void absent(void);
void rcu_barrier(void);
u32 run_program(u32 seed, u32 rounds);

#endif
