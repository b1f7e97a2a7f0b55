/* SPDX-License-Identifier: GPL-2.0-only */
/* Ramstage: the memory that this firmware gives to the OS, from its own memory map. */

#include <bootmem.h>
#include <console/console.h>
#include <symbols.h>
#include <types.h>

#include "dormouse.h"

static bool overlaps(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static bool add_range(const struct range_entry *entry, void *arg)
{
	struct dormouse_geometry *geometry = arg;
	const uint64_t base = range_entry_base(entry);
	const uint64_t bytes = range_entry_size(entry);
	struct dormouse_range *range;

	if (range_entry_tag(entry) != BM_MEM_RAM)
		return true;
	if (geometry->range_count == DORMOUSE_MAX_RANGES)
		return false;
	range = &geometry->range[geometry->range_count++];
	range->base = base;
	range->bytes = bytes;
	return true;
}

/* What runs the restore must not lie in what the restore writes. */
static bool hits_ourselves(const struct dormouse_range *range)
{
	return overlaps(range->base, range->bytes, (uintptr_t)_program, REGION_SIZE(program)) ||
	       overlaps(range->base, range->bytes, (uintptr_t)_stack, REGION_SIZE(stack));
}

enum dormouse_reason dormouse_build_geometry(const struct dormouse_device *device,
					     struct dormouse_geometry *geometry)
{
	static struct dormouse_header layout; /* too large for the stack */
	enum dormouse_reason reason;

	geometry->cxl_base = device->base;
	geometry->cxl_bytes = device->bytes;
	geometry->reserved_bytes = dormouse_reserved_bytes(device);
	geometry->device_serial = device->serial;
	geometry->dirty_shutdown_count = device->dirty_shutdown_count;
	geometry->range_count = 0;
	/* The window itself is reserved or soft-reserved there, so it is no RAM. */
	if (bootmem_walk_os_mem(add_range, geometry))
		return DORMOUSE_E_MEMORY_MAP;

	reason = dormouse_geometry_check(geometry);
	if (reason != DORMOUSE_OK)
		return reason;
	if (device->base + device->bytes > dormouse_map_end())
		return DORMOUSE_E_CXL_SIZE;
	for (uint32_t i = 0; i < geometry->range_count; i++) {
		const struct dormouse_range *range = &geometry->range[i];

		if (hits_ourselves(range) || range->base + range->bytes > dormouse_map_end())
			return DORMOUSE_E_MEMORY_MAP;
	}
	return dormouse_layout(geometry, &layout);
}
