/* SPDX-License-Identifier: GPL-2.0-only */
/* Ramstage: finds the FACS, where the OS leaves its wake vector, in our own ACPI tables. */

#include <acpi/acpi.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"

static const acpi_fadt_t *find_fadt(const acpi_xsdt_t *xsdt)
{
	const size_t count = (xsdt->header.length - sizeof(xsdt->header)) / sizeof(xsdt->entry[0]);

	for (size_t i = 0; i < count; i++) {
		const acpi_header_t *table = (const void *)(uintptr_t)xsdt->entry[i];

		if (table && !memcmp(table->signature, "FACP", 4))
			return (const acpi_fadt_t *)table;
	}
	return NULL;
}

uint64_t dormouse_find_facs(void)
{
	const acpi_rsdp_t *rsdp = (const void *)get_coreboot_rsdp();
	const acpi_fadt_t *fadt;
	uint64_t facs;

	if (!rsdp || !rsdp->xsdt_address)
		return 0;
	fadt = find_fadt((const void *)(uintptr_t)rsdp->xsdt_address);
	if (!fadt)
		return 0;
	facs = fadt->x_firmware_ctl_l | (uint64_t)fadt->x_firmware_ctl_h << 32;
	return facs ? facs : fadt->firmware_ctrl;
}
