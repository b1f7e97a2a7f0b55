/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * What the C files of the sleep image share among themselves: word access, the
 * XXH64 round, and small memory helpers. Nothing here is part of the interface.
 */
#ifndef DORMOUSE_INTERNAL_H
#define DORMOUSE_INTERNAL_H

#include "dormouse_image.h"

/* The instructions of copy.c; the simulated medium of machine/power-cuts brings its own. */
#ifndef DM_PRIMITIVES
#define DM_PRIMITIVES	"primitives.h"
#endif

#define DM_INLINE	static inline __attribute__((always_inline))

#define DM_PAGE_MASK	(DORMOUSE_PAGE_BYTES - 1)
#define DM_LINE_BYTES	64ULL
/* No x86 CPU addresses more physical memory; sums of two such values never wrap. */
#define DM_PHYSICAL_LIMIT (1ULL << 52)

#define DM_XXH_P1	0x9e3779b185ebca87ULL
#define DM_XXH_P2	0xc2b2ae3d27d4eb4fULL
#define DM_XXH_P3	0x165667b19e3779f9ULL
#define DM_XXH_P4	0x85ebca77c2b2ae63ULL
#define DM_XXH_P5	0x27d4eb2f165667c5ULL

/* Any alignment, any type behind it: the way to read data as words in C. */
struct dm_word {
	dm_u64 value;
} __attribute__((packed, may_alias));

struct dm_half_word {
	dm_u32 value;
} __attribute__((packed, may_alias));

DM_INLINE dm_u64 dm_load64(const void *from)
{
	return ((const struct dm_word *)from)->value;
}

DM_INLINE dm_u32 dm_load32(const void *from)
{
	return ((const struct dm_half_word *)from)->value;
}

DM_INLINE void dm_store64(void *to, dm_u64 value)
{
	((struct dm_word *)to)->value = value;
}

DM_INLINE dm_u64 dm_rotl64(dm_u64 value, unsigned int bits)
{
	return (value << bits) | (value >> (64 - bits));
}

DM_INLINE dm_u64 dm_xxh64_round(dm_u64 lane, dm_u64 word)
{
	lane += word * DM_XXH_P2;
	return dm_rotl64(lane, 31) * DM_XXH_P1;
}

DM_INLINE dm_u64 dm_min(dm_u64 a, dm_u64 b)
{
	return a < b ? a : b;
}

DM_INLINE dm_u64 dm_max(dm_u64 a, dm_u64 b)
{
	return a > b ? a : b;
}

/* Overflow-free for every value below DM_PHYSICAL_LIMIT. */
DM_INLINE dm_u64 dm_page_align_up(dm_u64 bytes)
{
	return (bytes + DM_PAGE_MASK) & ~DM_PAGE_MASK;
}

DM_INLINE void dm_copy_bytes(void *to, const void *from, dm_u64 bytes)
{
	const dm_u8 *in = from;
	dm_u8 *out = to;

	while (bytes--)
		*out++ = *in++;
}

DM_INLINE void dm_zero(void *to, dm_u64 bytes)
{
	dm_u8 *out = to;

	while (bytes--)
		*out++ = 0;
}

DM_INLINE dm_u32 dm_range_count(const struct dormouse_geometry *geometry)
{
	return geometry->range_count < DORMOUSE_MAX_RANGES ? geometry->range_count
							   : DORMOUSE_MAX_RANGES;
}

/* Bytes of a bitmap with `bits` bits, in whole words. */
DM_INLINE dm_u64 dm_bitmap_bytes(dm_u64 bits)
{
	return ((bits >> 6) + ((bits & 63) != 0)) * 8;
}

/* Everything that a valid header of this version has, except its digest. */
enum dormouse_reason dm_header_identity(const struct dormouse_header *header);

/* Nothing that this version does not know: flags, kinds of digests, encryption. */
enum dormouse_reason dm_header_features(const struct dormouse_header *header);

/* A fresh EMPTY header without a layout. */
void dm_header_fill(struct dormouse_header *header, const struct dormouse_geometry *geometry,
		    const struct dormouse_header *previous);

/* The window is plausible, and the ranges are ascending, disjoint and outside of it. */
enum dormouse_reason dm_ranges_check(const struct dormouse_geometry *geometry);

/*
 * Whether the header itself can be used: known, of this kind, in one of the `allowed` states, on a
 * device that a source vouches for or whose risk a person took. `detail`: 0 if so.
 */
enum dormouse_reason dm_header_usable(const struct dormouse_header *header, dm_u32 kind,
				      dm_u32 allowed, dm_u64 *detail);

/* Memory map, window and device of the header against the checker's. */
enum dormouse_reason dm_check_geometry(const struct dormouse_header *header,
				       const struct dormouse_geometry *geometry, dm_u64 *detail);

/* Compares groups [first, end), which `data` maps from group 0 on: the first that differs. */
dm_u64 dm_compare_groups(const struct dormouse_header *header, const void *window,
			 const void *data, dm_u64 data_pages, dm_u64 first, dm_u64 end);

/* Every line that [data, data + bytes) touches, without the fence at the end. */
void dm_flush_lines(const volatile void *data, dm_u64 bytes);

#endif /* DORMOUSE_INTERNAL_H */
