/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of coreboot that the driver's files use, for the simulated machine. */
#ifndef SIMULATED_TYPES_H
#define SIMULATED_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define __noreturn	__attribute__((noreturn))
#define __packed	__attribute__((packed))
#define __weak		__attribute__((weak))
#define GiB		(1ULL << 30)
#define MIN(a, b)	((a) < (b) ? (a) : (b))
#define USECS_PER_SEC	1000000ULL

/* No lab build, no other CPUs. */
#define CONFIG(option)	0
#define CONFIG_CPU_PT_ROM_MAP_GB	512
#define CONFIG_DORMOUSE_SMI_COMMAND	0xd0

enum cb_err { CB_SUCCESS = 0, CB_ERR = -1 };

#endif
