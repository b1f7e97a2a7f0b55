/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the boards have in common of which firmware hands jobs over: the low 32 KiB with the executor's stack and state,
 * no target table, and a job behind struct offload_handover.
 *
 * Also read by the assembler: definitions of constants only.
 */
#define TARGET_HANDOVER 1
#define TARGET_STACK 0x00007800
#define TARGET_STATE 0x00007900
#define TARGET_STATE_PAGE 0x00007800
#define TARGET_STATE_BYTES 0x00000800
#define TARGET_TABLE TARGET_STATE_PAGE
#define TARGET_TABLE_BYTES 0
#define TARGET_OTHER_TABLE TARGET_STATE_PAGE
#define TARGET_OTHER_TABLE_BYTES 0
#define TARGET_CACHE_DISABLED 0
#define TARGET_JOB (TARGET_HANDOVER_AT + 132)
#define TARGET_FIRST_CODE 0
