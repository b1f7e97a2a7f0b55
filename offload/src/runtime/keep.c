// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Keeps the code cache from one job to the next, as the small core's memory does while the big core runs. The kernel
 * may have changed its code meanwhile (static keys), so the next job compares all that was translated.
 */
#include "runtime/internal.h"

static bool same(const void *left, const void *right, uint32_t bytes)
{
	const uint32_t *a = left, *b = right;

	for (uint32_t i = 0; i < bytes / 4; i++)
		if (a[i] != b[i])
			return false;
	return true;
}

bool kept_is_of(const struct kept *kept, const struct offload_job *job, uint32_t cache_bytes)
{
	return kept->magic == KEPT_MAGIC && kept->cache_bytes == cache_bytes &&
		kept->natives == job->natives && job->natives <= NATIVES_MAX &&
		same(&kept->layout, &job->layout, sizeof(job->layout)) &&
		same(kept->native, job->native, job->natives * sizeof(job->native[0]));
}

void kept_forget(struct executor *x)
{
	if (x->kept.magic == KEPT_MAGIC)
		cache_flush(&x->cache);
	x->kept.magic = 0;
}

static const uint8_t *first_word(const struct executor *x, const struct region *region)
{
	return x->memory + ((region->guest & ~3u) - x->job->layout.guest_base);
}

void kept_note_region(struct executor *x)
{
	struct region *region = (void *)(x->cache.bytes + x->cache.region[x->cache.regions - 1]);

	region->sum = region_sum(region, first_word(x, region));
}

void kept_judge(struct executor *x)
{
	for (uint32_t i = 0; i < x->cache.regions; i++) {
		const struct region *region = (void *)(x->cache.bytes + x->cache.region[i]);

		/* Where another job handed back, a region has that in it. */
		if (region_covers(region, x->kept.link) || region_covers(region, x->job->link) ||
		    region_sum(region, first_word(x, region)) != region->sum) {
			cache_flush(&x->cache);
			return;
		}
	}
}

bool kept_leave(struct executor *x)
{
	const struct offload_job *job = x->job;

	/* Not from an end that may have been the cache's own doing. */
	if (x->stop != OFFLOAD_RETURNED && x->stop != OFFLOAD_FALLBACK) {
		cache_flush(&x->cache);
		x->kept.magic = 0;
		return false;
	}
	x->kept.cache_bytes = x->cache.size;
	x->kept.link = job->link;
	x->kept.layout = job->layout;
	x->kept.natives = job->natives;
	for (uint32_t i = 0; i < job->natives; i++)
		x->kept.native[i] = job->native[i];
	x->kept.magic = KEPT_MAGIC;
	return true;
}
