/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Devices of the guest at addresses of this core: for device_local.c and device_bus.c. */
#ifndef OFFLOAD_TARGET_DEVICE_ADDRESS_H
#define OFFLOAD_TARGET_DEVICE_ADDRESS_H

static inline bool is_in_devices(uint32_t host, uint32_t size)
{
	return host >= TARGET_DEVICES && host <= TARGET_DEVICES_END && size <= TARGET_DEVICES_END - host;
}

static inline void access_address(uint32_t host, unsigned int size, bool write, uint32_t *value)
{
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
}

#endif
