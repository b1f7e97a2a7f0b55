/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SMM writes its few lines to the first UART as it finds it. coreboot's own SMM
 * console would initialise the port on every SMI and take it away from the OS.
 */

#include <arch/io.h>
#include <types.h>

#include "dormouse.h"

#define UART_THR		0
#define UART_LSR		5
#define UART_LSR_THRE		0x20
/* No UART there reads as all ones; one that hangs must not hang the sleep. */
#define UART_POLLS		100000

static void put_byte(uint8_t byte)
{
#if CONFIG(DRIVERS_UART_8250IO)
	for (unsigned int i = 0; i < UART_POLLS; i++)
		if (inb(CONFIG_TTYS0_BASE + UART_LSR) & UART_LSR_THRE)
			break;
	outb(byte, CONFIG_TTYS0_BASE + UART_THR);
#endif
}

void dormouse_console_line(const char *line)
{
	while (*line)
		put_byte(*line++);
	put_byte('\r');
	put_byte('\n');
}
