// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated machine's board: the few functions that a board and coreboot give the driver.
 *
 * The machine's memory is mapped at its physical addresses (src/memory.rs), so firmware's
 * pointers are those of a real board.
 */
#include <acpi/acpi.h>
#include <bootstate.h>
#include <console/console.h>
#include <cpu/x86/save_state.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"
#include "hooks.h"

static struct dormouse_geometry board;
static struct dormouse_handover handover;
static acpi_facs_t facs;
static uint64_t clock_ns;
struct boot_state_init_entry *_bs_init_begin[] = { NULL };

void sim_board(const struct dormouse_geometry *geometry, uint32_t wake_vector)
{
	board = *geometry;
	facs.firmware_waking_vector = wake_vector;
}

void sim_reset_board(void)
{
	clock_ns = 0;
}

bool dormouse_board_device(struct dormouse_device *device)
{
	device->base = board.cxl_base;
	device->bytes = board.cxl_bytes;
	return true;
}

enum dormouse_reason dormouse_build_geometry(const struct dormouse_device *device,
					     struct dormouse_geometry *geometry)
{
	*geometry = board;
	return dormouse_geometry_check(geometry);
}

bool dormouse_map_memory(void)
{
	return true;
}

void dormouse_set_tsc_khz(uint32_t khz)
{
}

uint64_t dormouse_now_ns(void)
{
	return ++clock_ns;
}

void dormouse_event(uint64_t t_ns, const char *phase, const char *name, const char *kind,
		    const char *key, uint64_t value)
{
}

/* handover.c: the SMI is a call. */
enum dormouse_reason dormouse_handover(const struct dormouse_geometry *geometry)
{
	memset(&handover, 0, sizeof(handover));
	if (geometry) {
		handover.magic = DORMOUSE_HANDOVER_MAGIC;
		handover.facs = (uintptr_t)&facs;
		handover.tsc_khz = 1;
		handover.geometry = *geometry;
	}
	sim_smi();
	return geometry ? handover.status : DORMOUSE_E_NOT_READY;
}

int get_save_state_reg(enum cpu_reg reg, int node, void *out, uint8_t bytes)
{
	struct dormouse_handover *pointer = &handover;

	memcpy(out, &pointer, bytes);
	return 0;
}

void printk(int level, const char *format, ...)
{
	char line[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	sim_line(line);
}

void __noreturn acpi_resume(void *wake_vector)
{
	sim_stop((uint64_t)(uintptr_t)wake_vector == facs.firmware_waking_vector ? SIM_RESUMED
										 : SIM_RETURNED);
}

void __noreturn dormouse_board_power_off(void)
{
	sim_stop(SIM_OFF);
}
