/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * QEMU's netduinoplus2: an STM32F405 with a Cortex-M4, 1 MiB of flash and 128 KiB of SRAM. Nothing can be written
 * at address 0, and there is no room for a target table: where code is, is in a hash table of the executor's.
 *
 *   host address   what
 *   0x08000000     flash, also at 0: vectors, the executor's code and constants
 *   0x20001000     (down from here) the executor's stack; an overflow leaves SRAM and faults
 *   0x20001000     a page with struct offload_state
 *   0x20001800     struct target_job
 *   0x20002000     the executor's data
 *   0x2000a000     code cache
 *   0x20010000     guest memory
 *
 * Also read by the assembler: definitions of constants only.
 */
#define TARGET_STACK 0x20001000
#define TARGET_STATE 0x20001100
#define TARGET_STATE_PAGE 0x20001000
#define TARGET_STATE_BYTES 0x00000800
/* What translated code reads beside its window of state: the rest of that page. */
#define TARGET_TABLE TARGET_STATE_PAGE
#define TARGET_TABLE_BYTES 0
#define TARGET_OTHER_TABLE TARGET_STATE_PAGE
#define TARGET_OTHER_TABLE_BYTES 0
#define TARGET_CACHE 0x2000a000
#define TARGET_CACHE_MAX 0x00006000
#define TARGET_CACHE_REGION 0x20008000
#define TARGET_CACHE_REGION_BYTES 0x00008000
#define TARGET_CACHE_DISABLED 0x03
#define TARGET_JOB 0x20001800
#define TARGET_MEMORY 0x20010000
#define TARGET_MEMORY_MAX 0x00010000
#define TARGET_FIRST_CODE 0
#define TARGET_DEVICES 0x40001000
#define TARGET_DEVICES_END 0x60000000
/* TIM2 counts up, here each 40 ns of QEMU's 1 GHz; on silicon by the clock that it gets. */
#define TARGET_TIMER 0x40000000
#define TARGET_TIMER_VALUE 9
#define TARGET_TIMER_PRESCALE 39
#define TARGET_SYSTICK_MHZ 168
/* Data has a copy in flash. */
#define TARGET_FLASH 1
