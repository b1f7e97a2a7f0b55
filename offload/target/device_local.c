// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Devices of the guest are peripherals of the small core. */
#include "runtime/target.h"
#include "target.h"
#include "device_address.h"

bool access_device(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value)
{
	(void)owner;
	if (host & (size - 1))
		return false;
	access_address(host, size, write, value);
	return true;
}

/* Not those that the executor uses itself. */
bool device_is_good(uint32_t host, uint32_t size)
{
	return is_in_devices(host, size);
}
