// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Both cores are on one bus: a guest's device is at its physical address, unless this core cannot reach it. */
#include "runtime/target.h"
#include "target.h"
#include "device_address.h"

static volatile uint32_t *const control = (void *)0xe000ed14;		/* CCR */
static volatile uint32_t *const handlers = (void *)0xe000ed24;		/* SHCSR */
static volatile uint32_t *const fault_status = (void *)0xe000ed28;	/* CFSR */

enum { IGNORE_BUS_FAULTS = 1 << 8, BUS_FAULT_PENDS = 1 << 14, BUS_FAULTS = 0xff00 };

/*
 * A device without a clock, or one that is the big core's alone, answers with a bus fault. With FAULTMASK and
 * CCR.BFHFNMIGN that is only noted, and the job stops at this access; the big core makes it.
 */
bool access_device(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value)
{
	uint32_t faults;

	(void)owner;
	if ((host & (size - 1)) || !device_is_good(host, size))
		return false;
	__asm volatile ("cpsid f" ::: "memory");
	*control |= IGNORE_BUS_FAULTS;
	*fault_status = BUS_FAULTS;
	__asm volatile ("dsb; isb" ::: "memory");
	access_address(host, size, write, value);
	__asm volatile ("dsb; isb" ::: "memory");
	faults = *fault_status & BUS_FAULTS;
	*fault_status = BUS_FAULTS;
	*handlers &= ~BUS_FAULT_PENDS;
	*control &= ~IGNORE_BUS_FAULTS;
	__asm volatile ("dsb; isb; cpsie f" ::: "memory");
	return !faults;
}

/* A job's device is all of the bus; each access is judged by itself. */
bool device_is_good(uint32_t host, uint32_t size)
{
	return is_in_devices(host, size);
}
