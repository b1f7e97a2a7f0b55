/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The devicetree device: reports to the OS which part of the CXL window is firmware's
 * and which is memory for a special purpose, and describes itself in ACPI.
 */

#include <acpi/acpi_device.h>
#include <acpi/acpigen.h>
#include <console/console.h>
#include <cpu/x86/smm.h>
#include <device/device.h>
#include <types.h>

#include "chip.h"
#include "dormouse.h"

enum { RESOURCE_RESERVED, RESOURCE_MEMORY };

/* A board that does not say where its CXL memory is has none. */
__weak bool dormouse_board_device(struct dormouse_device *device)
{
	return false;
}

static uint64_t bitmap_bytes(uint64_t memory_bytes)
{
	return ALIGN_UP(memory_bytes / DORMOUSE_PAGE_BYTES / 8, DORMOUSE_PAGE_BYTES);
}

uint64_t dormouse_reserved_bytes(const struct dormouse_device *device)
{
	/*
	 * The memory map is not known yet, so the DRAM bitmap is given room for all
	 * that lies below the end of the window. dormouse_layout() has the last word.
	 */
	const uint64_t needed = DORMOUSE_BITMAPS_OFFSET + bitmap_bytes(device->bytes) +
				/* digests of user pages: as large as the bitmap */
				bitmap_bytes(device->bytes) +
				bitmap_bytes(device->base + device->bytes);

	return ALIGN_UP(needed, DORMOUSE_BLOCK_BYTES);
}

static void dormouse_read_resources(struct device *dev)
{
	struct dormouse_device device;
	uint64_t reserved;

	if (!dormouse_board_device(&device))
		return;
	reserved = MIN(dormouse_reserved_bytes(&device), device.bytes);
	reserved_ram_range(dev, RESOURCE_RESERVED, device.base, reserved);
	if (device.bytes > reserved)
		fixed_mem_range_flags(dev, RESOURCE_MEMORY, device.base + reserved,
				      device.bytes - reserved,
				      IORESOURCE_CACHEABLE | IORESOURCE_STORED |
				      IORESOURCE_SOFT_RESERVE);
}

static const char *flush_name(const struct dormouse_device *device)
{
	if (!(device->persistence & DORMOUSE_DEVICE_GPF))
		return "absent";
	return device->persistence & DORMOUSE_DEVICE_ARMED ? "armed" : "not-armed";
}

static void dormouse_fill_ssdt(const struct device *dev)
{
	struct dormouse_device device;
	struct acpi_dp *properties;

	if (!dormouse_board_device(&device))
		return;

	acpigen_write_scope("\\_SB");
	acpigen_write_device("DRMS");
	acpigen_write_name_string("_HID", "DORM0001");
	acpigen_write_name_integer("_UID", 0);
	acpigen_write_STA(ACPI_STATUS_DEVICE_ALL_ON);

	acpigen_write_name("_CRS");
	acpigen_write_resourcetemplate_header();
	acpigen_resource_consumer_mmio(device.base,
				       device.base + dormouse_reserved_bytes(&device) - 1,
				       MEM_RSRC_FLAG_MEM_READ_WRITE |
				       MEM_RSRC_FLAG_MEM_ATTR_CACHE);
	acpigen_write_resourcetemplate_footer();

	properties = acpi_dp_new_table("_DSD");
	acpi_dp_add_integer(properties, "format-version", DORMOUSE_VERSION);
	/* In MiB: next to a DSDT of revision 1, as QEMU's, ACPI integers have 32 bits. */
	acpi_dp_add_integer(properties, "cxl-mib", device.bytes / MiB);
	acpi_dp_add_integer(properties, "smi-command", CONFIG_DORMOUSE_SMI_COMMAND);
	acpi_dp_add_integer(properties, "smi-port", APM_CNT);
	acpi_dp_add_string(properties, "sleep-trigger",
			   CONFIG(DORMOUSE_BOARD_QEMU) ? "apm" : "slp-en");
	/* The firmware's word for a device that Linux cannot ask. */
	acpi_dp_add_string(properties, "global-persistent-flush", flush_name(&device));
	acpi_dp_add_integer(properties, "dirty-shutdowns-counted",
			    !!(device.persistence & DORMOUSE_DEVICE_COUNTS));
	acpi_dp_write(properties);

	acpigen_pop_len(); /* device */
	acpigen_pop_len(); /* scope */
}

static struct device_operations dormouse_ops = {
	.read_resources = dormouse_read_resources,
	.set_resources = noop_set_resources,
	.acpi_fill_ssdt = dormouse_fill_ssdt,
};

static void dormouse_enable(struct device *dev)
{
	dev->ops = &dormouse_ops;
}

struct chip_operations drivers_dormouse_ops = {
	.name = "Suspend-to-CXL",
	.enable_dev = dormouse_enable,
};
