/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The Cortex-M4 of an STM32MP15: firmware that Linux' stm32_rproc loads. Both cores see DDR at 0xc0000000, which is
 * where a kernel with VMSPLIT_3G has its linear memory: the identity map. A kernel's code is larger than a target
 * table covers, and SRAM has no room for one: where code is, is in a hash table of the executor's.
 *
 *   host address   what
 *   0x00000000     RETRAM: vectors; the executor's stack, down from 0x7800
 *   0x00007800     a page with struct offload_state
 *   0x00008000     the executor's data
 *   0x10000000     MCU SRAM: code and constants
 *   0x10018000     struct offload_handover and the trace
 *   0x10020000     code cache
 *   0xc0000000     guest memory, up to 512 MiB
 *
 * RETRAM and the first 256 KiB of MCU SRAM are the memory regions retram and mcuram2 of the boards' device trees in
 * Linux 6.12; that of a mailbox, IPCC, is in the same trees. The number of the Cortex-M4's interrupt is from memory
 * of ST's header and has not been checked. Nothing here has run on silicon.
 *
 * Also read by the assembler: definitions of constants only.
 */
#include "firmware.h"

#define TARGET_HANDOVER_AT 0x10018000
#define TARGET_CACHE 0x10020000
#define TARGET_CACHE_MAX 0x00020000
#define TARGET_CACHE_REGION 0x10020000
#define TARGET_CACHE_REGION_BYTES 0x00020000
#define TARGET_MEMORY 0xc0000000
#define TARGET_MEMORY_MAX 0x20000000
#define TARGET_DEVICES 0x40000000
#define TARGET_DEVICES_END 0x60000000
/* STGENR, the read-only view of the counter that the big core's timer has, too: CNTCVL. */
#define TARGET_TIMER 0x5a005000
#define TARGET_TIMER_VALUE 0
#define TARGET_TIMER_COUNTER 1
/* The most that the core can have; a slower one waits longer than it is asked to. */
#define TARGET_SYSTICK_MHZ 209
/* IPCC, the second processor's registers: C2CR, C2MR, C2SCR. Linux rings on any of the first two channels. */
#define TARGET_MAILBOX 0x4c001000
#define TARGET_MAILBOX_CONTROL 4
#define TARGET_MAILBOX_ENABLE 1
#define TARGET_MAILBOX_MASK 5
#define TARGET_MAILBOX_CLEAR 6
#define TARGET_MAILBOX_CHANNELS 3u
#define TARGET_MAILBOX_INTERRUPT 103
