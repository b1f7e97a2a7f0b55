// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Guest addresses to memory and devices: the linear map by one check and one addition, the rest
 * through the guest's page tables (ARMv7-A short descriptors: sections and supersections, large
 * and small pages). Nothing in the tables is trusted.
 */
#include "runtime/executor.h"

static uint32_t read_memory(const struct executor *x, uint32_t offset, unsigned int size)
{
	const uint8_t *at = x->memory + offset;

	if (size == 1)
		return at[0];
	if (size == 2)
		return at[0] | at[1] << 8;
	return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

static void write_memory(struct executor *x, uint32_t offset, unsigned int size, uint32_t value)
{
	for (unsigned int i = 0; i < size; i++)
		x->memory[offset + i] = value >> 8 * i;
}

static bool read_descriptor(const struct executor *x, uint32_t physical, uint32_t *value)
{
	uint32_t offset = physical - x->job->physical_base, size = x->job->layout.size;

	if (offset >= size || size - offset < 4)
		return false;
	*value = read_memory(x, offset, 4);
	return true;
}

/* The physical address of a guest address, if the page tables have one. */
static bool walk(const struct executor *x, uint32_t address, uint32_t *physical)
{
	uint32_t table = x->job->page_table, entry;

	if (table & 0x3fff)
		return false;
	if (!read_descriptor(x, table + 4 * (address >> 20), &entry))
		return false;
	switch (entry & 3) {
	case 1:
		if (!read_descriptor(x, (entry & ~0x3ffu) + 4 * bits(address, 19, 12), &entry))
			return false;
		if (entry & 2)
			*physical = (entry & ~0xfffu) | (address & 0xfff);
		else if (entry & 1)
			*physical = (entry & ~0xffffu) | (address & 0xffff);
		else
			return false;
		return true;
	case 2:
	case 3:
		/* Supersections above 4 GiB do not exist here. */
		if (bit(entry, 18) && ((entry & 0x00f00000) || (entry & 0x1e0)))
			return false;
		if (bit(entry, 18))
			*physical = (entry & ~0xffffffu) | (address & 0xffffff);
		else
			*physical = (entry & ~0xfffffu) | (address & 0xfffff);
		return true;
	default:
		return false;
	}
}

static const struct offload_device *device_at(const struct executor *x, uint32_t physical,
					      unsigned int size)
{
	for (uint32_t i = 0; i < x->job->devices; i++) {
		const struct offload_device *device = &x->job->device[i];
		uint32_t offset = physical - device->physical;

		if (offset < device->size && device->size - offset >= size)
			return device;
	}
	return NULL;
}

bool memory_walk(struct executor *x, uint32_t address)
{
	const struct offload_layout *layout = &x->job->layout;
	uint32_t page = address >> 12, slot = page % TLB_PAGES, offset = (page << 12) - layout->guest_base, physical;

	/* It is there, and was not enough: the access goes beyond it. */
	if (x->state->tlb[slot].page == page)
		return false;
	if (offset >= layout->size) {
		if (!walk(x, page << 12, &physical))
			return false;
		offset = physical - x->job->physical_base;
	}
	/* Between the stack and what lies below it every access is the executor's. */
	if (offset >= layout->size || ((page << 12) < x->job->stack_bottom &&
				       (page << 12) + 4095 >= x->job->stack_guard))
		return false;
	x->state->tlb[slot].page = page;
	x->state->tlb[slot].addend = layout->host_base + offset - (page << 12);
	return true;
}

void memory_forget(struct executor *x)
{
	for (uint32_t i = 0; i < TLB_PAGES; i++)
		x->state->tlb[i].page = 0xffffffff;
}

/* One access that does not cross a page. */
static enum offload_stop access_once(struct executor *x, uint32_t address, unsigned int size,
				     bool write, uint32_t *value)
{
	const struct offload_layout *layout = &x->job->layout;
	enum offload_stop unmapped = write ? OFFLOAD_UNMAPPED_WRITE : OFFLOAD_UNMAPPED_READ;
	uint32_t offset = address - layout->guest_base, physical;
	const struct offload_device *device;

	if (address >= x->job->stack_guard && address < x->job->stack_bottom)
		return OFFLOAD_STACK_OVERFLOW;
	if (offset >= layout->size || layout->size - offset < size) {
		if (!walk(x, address, &physical))
			return unmapped;
		offset = physical - x->job->physical_base;
		if (offset >= layout->size || layout->size - offset < size) {
			device = device_at(x, physical, size);
			if (!device || !x->device(x->owner, device->host + (physical - device->physical),
						  size, write, value))
				return unmapped;
			return OFFLOAD_RUNNING;
		}
	}
	if (!write) {
		*value = read_memory(x, offset, size);
		return OFFLOAD_RUNNING;
	}
	/* By offset, so that an alias of the text is the text. */
	if (offset + size > layout->text_start - layout->guest_base &&
	    offset < layout->text_end - layout->guest_base)
		return OFFLOAD_CODE_WRITTEN;
	write_memory(x, offset, size, *value);
	return OFFLOAD_RUNNING;
}

static enum offload_stop access_any(struct executor *x, uint32_t address, unsigned int size,
				    bool write, uint32_t *value)
{
	enum offload_stop stop;
	uint32_t result = 0;

	x->stop_address = address;
	if ((address & 0xfff) + size <= 0x1000) {
		stop = access_once(x, address, size, write, value);
		return stop;
	}
	for (unsigned int i = 0; i < size; i++) {
		uint32_t byte = *value >> 8 * i & 0xff;

		stop = access_once(x, address + i, 1, write, &byte);
		if (stop != OFFLOAD_RUNNING)
			return stop;
		result |= byte << 8 * i;
	}
	*value = result;
	return OFFLOAD_RUNNING;
}

enum offload_stop memory_load(void *owner, uint32_t address, unsigned int size, uint32_t *value)
{
	*value = 0;
	return access_any(owner, address, size, false, value);
}

enum offload_stop memory_store(void *owner, uint32_t address, unsigned int size, uint32_t value)
{
	return access_any(owner, address, size, true, &value);
}

enum offload_stop memory_unaligned(void *owner, uint32_t address)
{
	struct executor *x = owner;

	x->stop_address = address;
	return OFFLOAD_UNALIGNED;
}
