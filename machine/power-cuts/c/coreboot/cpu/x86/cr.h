/* SPDX-License-Identifier: GPL-2.0-only */
#define CRx_TYPE unsigned long
static inline CRx_TYPE read_cr3(void) { return 0; }
static inline void write_cr3(CRx_TYPE tables) { }
