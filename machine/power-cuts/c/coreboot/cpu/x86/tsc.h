/* SPDX-License-Identifier: GPL-2.0-only */
static inline unsigned long tsc_freq_mhz(void) { return 1000; }
