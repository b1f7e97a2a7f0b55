// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Devices of the guest are peripherals of the small core. */
#include "runtime/target.h"
#include "target.h"

bool access_device(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value)
{
	(void)owner;
	if (host & (size - 1))
		return false;
	if (write) {
		if (size == 4)
			*(volatile uint32_t *)host = *value;
		else if (size == 2)
			*(volatile uint16_t *)host = *value;
		else
			*(volatile uint8_t *)host = *value;
	} else if (size == 4) {
		*value = *(volatile uint32_t *)host;
	} else if (size == 2) {
		*value = *(volatile uint16_t *)host;
	} else {
		*value = *(volatile uint8_t *)host;
	}
	return true;
}

/* Not those that the executor uses itself. */
bool device_is_good(uint32_t host, uint32_t size)
{
	return host >= TARGET_DEVICES && host <= TARGET_DEVICES_END &&
		size <= TARGET_DEVICES_END - host;
}
