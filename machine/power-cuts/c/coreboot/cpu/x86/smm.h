/* SPDX-License-Identifier: GPL-2.0-only */
#include <types.h>

/* SMRAM is none of the memory that the simulated machine maps. */
struct region {
	uint64_t offset, bytes;
};

static inline enum cb_err region_create_untrusted(struct region *region, uint64_t offset,
						  uint64_t bytes)
{
	region->offset = offset;
	region->bytes = bytes;
	return CB_SUCCESS;
}

static inline bool smm_region_overlaps_handler(const struct region *region) { return false; }
static inline bool smm_points_to_smram(const void *pointer, size_t bytes) { return false; }
