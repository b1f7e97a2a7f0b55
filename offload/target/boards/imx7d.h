/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The Cortex-M4 of an i.MX7D: firmware that Linux' imx_rproc loads. Both cores see DDR at 0x80000000, which is where a
 * kernel with VMSPLIT_2G has its linear memory: the identity map. There is no target table, as on the STM32MP15.
 *
 *   host address   what
 *   0x00000000     OCRAM_S: vectors; the executor's stack, down from 0x7800
 *   0x00007800     a page with struct offload_state
 *   0x00900000     OCRAM: code and constants; Linux must leave it alone (mmio-sram of the device tree)
 *   0x00918000     code cache
 *   0x1fff8000     TCML: struct offload_handover and the trace
 *   0x20000000     TCMU: the executor's data
 *   0x80000000     guest memory, up to 1 GiB
 *
 * The memory is in imx_rproc_att_imx7d of Linux 6.12, the mailbox (MU, side B) in its device tree. The address of the
 * system counter has not been checked. Nothing here has run on silicon.
 *
 * Also read by the assembler: definitions of constants only.
 */
#include "firmware.h"

#define TARGET_HANDOVER_AT 0x1fff8000
#define TARGET_CACHE 0x00918000
#define TARGET_CACHE_MAX 0x00008000
#define TARGET_CACHE_REGION 0x00918000
#define TARGET_CACHE_REGION_BYTES 0x00008000
#define TARGET_MEMORY 0x80000000
#define TARGET_MEMORY_MAX 0x40000000
/* Not the big core's interrupt controller behind them. */
#define TARGET_DEVICES 0x30000000
#define TARGET_DEVICES_END 0x31000000
/* The read-only view of the system counter: CNTCV0. */
#define TARGET_TIMER 0x306a0000
#define TARGET_TIMER_VALUE 2
#define TARGET_TIMER_COUNTER 1
/* The most that the core can have; a slower one waits longer than it is asked to. */
#define TARGET_SYSTICK_MHZ 240
/* The message unit: control with RIE1, on which Linux sends; receive register 1. */
#define TARGET_MAILBOX 0x30ab0000
#define TARGET_MAILBOX_CONTROL 9
#define TARGET_MAILBOX_ENABLE (1 << 26)
#define TARGET_MAILBOX_RECEIVE 5
#define TARGET_MAILBOX_INTERRUPT 97
