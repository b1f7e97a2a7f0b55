/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guest programs: each runs a part of the kernel on input made from a seed and returns a digest of
 * all results.
 */
#ifndef OFFLOAD_GUEST_PROGRAMS_H
#define OFFLOAD_GUEST_PROGRAMS_H

#include "kernel.h"

static inline u32 dice(u32 *state)
{
	/* xorshift32 */
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static inline u32 mix(u32 digest, u32 value)
{
	return ((digest << 5 | digest >> 27) ^ value) * 0x01000193;
}

u32 run_glob(u32 seed, u32 rounds);
u32 run_kfifo(u32 seed, u32 rounds);
u32 run_sort(u32 seed, u32 rounds);
u32 run_list_sort(u32 seed, u32 rounds);
u32 run_rbtree(u32 seed, u32 rounds);
u32 run_crc32(u32 seed, u32 rounds);
u32 run_string(u32 seed, u32 rounds);
u32 run_callback(u32 seed, u32 rounds);
/* A test of the kernel's lib/: programs/. */
u32 run_program(u32 seed, u32 rounds);

#endif
