/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATED_CONSOLE_H
#define SIMULATED_CONSOLE_H

#define BIOS_NOTICE 5
void printk(int level, const char *format, ...);

#endif
