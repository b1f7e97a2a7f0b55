/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * QEMU's mps2-an385: a Cortex-M3 with much memory, from address 0 on.
 *
 *   host address   what
 *   0x00000000     vectors; struct offload_state at 0x7900, a stack below it
 *   0x00008000     target table of the guest's instruction set, by offset in guest memory: one word for
 *                  each word of A32, or for each halfword of T32. Nothing behind it can be read, so a
 *                  branch to code that it does not reach faults
 *   0x20000000     target table of the other instruction set; only the executor reads it
 *   0x20200000     code cache
 *   0x20300000     the executor itself: code, constants, data
 *   0x20380000     struct target_job
 *   0x203a0000     struct executor: its end, and the code cache, are kept from job to job
 *   0x20400000     (down from here) the executor's stack
 *   0x21000000     guest memory
 *
 * No entry of the target table that is read at an odd address is an address of the code cache: such a
 * branch faults, and the executor decides.
 *
 * Also read by the assembler: definitions of constants only.
 */
#define TARGET_STACK 0x20400000
#define TARGET_STATE 0x00007900
#define TARGET_STATE_PAGE 0x00007800
#define TARGET_STATE_BYTES 0x00000800
/* The linker script has struct executor's address. No section: the emulator would load zeros over what is there. */
#define TARGET_RETAINED 1
#define TARGET_TABLE 0x00000000
#define TARGET_TABLE_BYTES 0x00400000
#define TARGET_OTHER_TABLE 0x20000000
#define TARGET_OTHER_TABLE_BYTES 0x00200000
#define TARGET_CACHE 0x20200000
#define TARGET_CACHE_MAX 0x00100000
/* The protection unit's region with the cache, and which eighths of it are not the cache's. */
#define TARGET_CACHE_REGION 0x20000000
#define TARGET_CACHE_REGION_BYTES 0x00400000
#define TARGET_CACHE_DISABLED 0xcf
#define TARGET_JOB 0x20380000
#define TARGET_MEMORY 0x21000000
#define TARGET_MEMORY_MAX 0x01000000
/* Where code may begin in guest memory: the target table's first words are the vectors. */
#define TARGET_FIRST_CODE 0x8000
/* Behind the timer that counts for the executor, up to the end of peripherals. */
#define TARGET_DEVICES 0x40001000
#define TARGET_DEVICES_END 0x60000000
/* The CMSDK timer counts down at 25 MHz, and so does SysTick. */
#define TARGET_TIMER 0x40000000
#define TARGET_TIMER_VALUE 1
#define TARGET_TIMER_DOWN 1
#define TARGET_SYSTICK_MHZ 25
