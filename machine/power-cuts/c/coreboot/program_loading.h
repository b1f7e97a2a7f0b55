/* SPDX-License-Identifier: GPL-2.0-only */
static inline void arch_bootstate_coreboot_exit(void) { }
