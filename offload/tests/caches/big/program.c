// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The rest of a kernel and its module around the hand-over's code. */
#include "control.h"
#include "rendezvous.h"

struct rendezvous rendezvous;

void v7_flush_dcache_all(void);
void v7_flush_kern_dcache_area(void *address, size_t bytes);
void v7_dma_map_area(void *address, size_t bytes, int direction);
void v7_dma_unmap_area(void *address, size_t bytes, int direction);
void v7_invalidate_l1(void);
void prepare(void);

__attribute__((section(".head"), used)) static const struct program_head head = {
	(uint32_t)prepare, (uint32_t)handover_entry, (uint32_t)v7_flush_kern_dcache_area, (uint32_t)v7_dma_map_area,
	(uint32_t)v7_dma_unmap_area, (uint32_t)v7_invalidate_l1,
};

static bool rings;

/* As a mailbox's driver does, it writes memory of the kernel. */
static void ring_now(void)
{
	rings = false;
	++*(volatile u32 *)CONTROL->mailbox;
}

static void ring(void)
{
	rings = true;
	if (!CONTROL->rings_late)
		ring_now();
}

void prepare(void)
{
	rendezvous.shared = (struct offload_handover *)SHARED_AT;
	rendezvous.ring = ring;
	rendezvous.flush_dcache = v7_flush_dcache_all;
	rendezvous.entry = CONTROL->entry;
	rendezvous.goes_alone = false;
	rendezvous.job.magic = TARGET_MAGIC;
	rendezvous.job.bytes = sizeof(rendezvous.job);
	rings = false;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
	return to;
}

void memcpy_toio(volatile void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / 4; i++)
		((volatile u32 *)to)[i] = ((const u32 *)from)[i];
}

u64 ktime_get_mono_fast_ns(void)
{
	if (rings)
		ring_now();
	return CONTROL->microseconds * 1000ull;
}

/* The test finds that it did not go on where it should have. */
_Noreturn void panic(const char *format, ...)
{
	(void)format;
	for (;;)
		__asm volatile ("udf #1");
}
