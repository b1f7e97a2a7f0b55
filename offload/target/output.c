// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Output through semihosting, and what a compiler wants of a C library. */
#include <stdbool.h>
#include <stddef.h>

#include "runtime/target.h"
#include "target.h"

uint32_t semihost(uint32_t operation, const void *argument);

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE0 = 4, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT = 0x18 };

/* Collected, so that a line is one call. */
static char line[2048];
static uint32_t length;

void print(const char *text)
{
	for (; *text; text++) {
		if (length < sizeof(line) - 1)
			line[length++] = *text;
		if (*text == '\n') {
			line[length] = 0;
#ifdef TARGET_HANDOVER
			write_line(line, length);
#else
			semihost(SYS_WRITE0, line);
#endif
			length = 0;
		}
	}
}

void print_decimal(uint32_t value)
{
	char digits[11];
	int at = 10;

	digits[at] = 0;
	do {
		digits[--at] = '0' + value % 10;
		value /= 10;
	} while (value);
	print(&digits[at]);
}

void print_hex(uint32_t value)
{
	char digits[9];

	for (int i = 7; i >= 0; i--, value >>= 4)
		digits[i] = "0123456789abcdef"[value & 15];
	digits[8] = 0;
	print(digits);
}

void print_number(const char *name, uint32_t value)
{
	print(name);
	print(" ");
	print_decimal(value);
}

uint32_t open_file(const char *name, bool write)
{
	uint32_t length = 0;

	while (name[length])
		length++;
	uint32_t open[3] = { (uint32_t)name, write ? 5 : 1, length };	/* "wb", "rb" */

	return semihost(SYS_OPEN, open);
}

bool transfer(uint32_t file, const void *at, uint32_t bytes, bool write)
{
	uint32_t arguments[3] = { file, (uint32_t)at, bytes };

	/* The answer is how many bytes are left. */
	return !semihost(write ? SYS_WRITE : SYS_READ, arguments);
}

void dump(const char *name, uint32_t address, uint32_t bytes)
{
	uint32_t file = open_file(name, true);

	transfer(file, (void *)address, bytes, true);
	semihost(SYS_CLOSE, &file);
}

void leave(uint32_t failed)
{
	/* ADP_Stopped_ApplicationExit, or an internal error. */
	semihost(SYS_EXIT, (void *)(failed ? 0x20024 : 0x20026));
	for (;;)
		;
}

void *memset(void *to, int value, size_t bytes)
{
	uint8_t *at = to;

	while (bytes--)
		*at++ = value;
	return to;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
	uint8_t *at = to;
	const uint8_t *source = from;

	while (bytes--)
		*at++ = *source++;
	return to;
}
