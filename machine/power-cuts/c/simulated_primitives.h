/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * The instructions of copy.c for the simulated medium: each does what the real one does to
 * memory and tells the medium. machine/image/src/primitives.h has the real ones.
 */
#ifndef DORMOUSE_SIMULATED_PRIMITIVES_H
#define DORMOUSE_SIMULATED_PRIMITIVES_H

#include "hooks.h"

/* The features that the test asks for, so that each method runs on any CPU. */
DM_INLINE void cpuid(dm_u32 leaf, dm_u32 *ebx, dm_u32 *ecx, dm_u32 *edx, dm_u32 *eax)
{
	*eax = 7;
	*ebx = leaf == 7 ? sim_cpuid_7_ebx : 0;
	*ecx = leaf == 7 ? sim_cpuid_7_ecx : 0;
	*edx = sim_cpuid_1_edx;
}

DM_INLINE void dm_sfence(void)
{
	sim_fence();
}

DM_INLINE void clflushopt(const volatile void *line)
{
	sim_write_back(line);
}

DM_INLINE void clwb(const volatile void *line)
{
	sim_write_back(line);
}

DM_INLINE void clflush(const volatile void *line)
{
	sim_write_back(line);
}

DM_INLINE void movdir64b(dm_u8 *to, const dm_u8 *from)
{
	dm_copy_bytes(to, from, 64);
	sim_store_past_caches(to);
}

#define NO_STORE	0
#define STORE_WORD	1

DM_INLINE void copy_simulated_line(int stores, int past_caches, dm_u64 *lane, dm_u8 *to,
				   const dm_u8 *from)
{
	dm_u64 word[8];
	int i;

	for (i = 0; i < 8; i++)
		word[i] = dm_load64(from + i * 8);
	for (i = 0; i < 8 && stores; i++)
		dm_store64(to + i * 8, word[i]);
	if (stores && past_caches)
		sim_store_past_caches(to);
	for (i = 0; i < 8; i++)
		lane[i & 3] = dm_xxh64_round(lane[i & 3], word[i]);
}

/* "movnti" or "mov": the length tells. */
#define COPY_LINE(stores, store, lane, to, from) \
	copy_simulated_line(stores, sizeof(store) == sizeof("movnti"), lane, to, from)

#endif /* DORMOUSE_SIMULATED_PRIMITIVES_H */
