/* SPDX-License-Identifier: GPL-2.0-only */
/* Time since reset, and the timeline lines on the console, for ramstage and SMM. */

#include <console/console.h>
#include <cpu/x86/tsc.h>
#include <types.h>

#include "dormouse.h"

#define LINE_BYTES 160

static uint32_t tsc_khz;

void dormouse_set_tsc_khz(uint32_t khz)
{
	tsc_khz = khz;
}

uint32_t dormouse_tsc_khz(void)
{
	return tsc_khz;
}

uint64_t dormouse_now_ns(void)
{
	const uint64_t ticks = rdtscll();

	if (!tsc_khz)
		return 0;
	/* Split, so that months of uptime do not overflow. */
	return ticks / tsc_khz * 1000000 + ticks % tsc_khz * 1000000 / tsc_khz;
}

#if !ENV_SMM
void dormouse_console_line(const char *line)
{
	printk(BIOS_NOTICE, "%s\n", line);
}
#endif

/* The SMM console has no printf; one small formatter serves both stages. */
struct line {
	char text[LINE_BYTES];
	size_t length;
};

static void put(struct line *line, const char *text)
{
	while (*text && line->length < LINE_BYTES - 1)
		line->text[line->length++] = *text++;
	line->text[line->length] = '\0';
}

static void put_number(struct line *line, uint64_t value)
{
	char digits[21];
	size_t at = sizeof(digits) - 1;

	digits[at] = '\0';
	do {
		digits[--at] = '0' + value % 10;
		value /= 10;
	} while (value);
	put(line, &digits[at]);
}

void dormouse_event(uint64_t t_ns, const char *phase, const char *name, const char *kind,
		    const char *key, uint64_t value)
{
	struct line line = { .length = 0 };

	put(&line, "dormouse: event t_ns=");
	put_number(&line, t_ns);
	put(&line, " phase=");
	put(&line, phase);
	put(&line, " name=");
	put(&line, name);
	put(&line, " kind=");
	put(&line, kind);
	if (key) {
		put(&line, " ");
		put(&line, key);
		put(&line, "=");
		put_number(&line, value);
	}
	dormouse_console_line(line.text);
}
