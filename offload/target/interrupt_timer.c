// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The guest's interrupts are those of the small core's timer. */
#include "runtime/target.h"
#include "target.h"

bool interrupt_wait(void *owner, uint64_t until)
{
	return wait_until(owner, until);
}

bool interrupt_pends(void)
{
	return true;
}

uint32_t interrupt_guest(uint32_t host)
{
	return executor_interrupt(&executor, host, 15);
}

void interrupt_report(void)
{
}
