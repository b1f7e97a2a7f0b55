/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATED_ACPI_H
#define SIMULATED_ACPI_H

#include <types.h>

typedef struct {
	uint32_t firmware_waking_vector;
} acpi_facs_t;

void __noreturn acpi_resume(void *wake_vector);

#endif
