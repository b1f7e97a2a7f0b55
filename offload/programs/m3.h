/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included before everything else where the kernel's lib/ is compiled for a Cortex-M3: masking of interrupts
 * as the kernel does it on ARMv7-M, and a current task without coprocessor registers.
 */
#ifndef OFFLOAD_PROGRAMS_M3_H
#define OFFLOAD_PROGRAMS_M3_H

#define CONFIG_OFFLOAD_M3 1

#ifndef __ASSEMBLY__
#define CONFIG_CPU_V7M 1
#include <asm/irqflags.h>
#undef CONFIG_CPU_V7M

#define _ASM_ARM_CURRENT_H
struct task_struct;
extern struct task_struct *__current;
#define get_current() __current
#define current __current
#endif

#endif
