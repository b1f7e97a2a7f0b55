/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Laboratory builds: stop for ever at a named point, so that a test can cut the
 * power exactly there. The points, in the order in which they are passed:
 *
 *   prepared        SMI entered, nothing changed yet
 *   saving          half of the pages copied to CXL
 *   before-commit   all pages copied, the header still says SAVING
 *   after-commit    SUSPENDED written, power still on
 *   restoring       the header says RESTORING, half of the pages copied back
 *   before-consume  all pages copied back, the header still says RESTORING
 *   after-consume   CONSUMED written, before the jump to the OS
 */

#include <arch/hlt.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"

static char selected[DORMOUSE_FAULT_NAME_BYTES];

void dormouse_fault_select(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(selected) - 1 && name[i]; i++)
		selected[i] = name[i];
	selected[i] = '\0';
}

void dormouse_fault_point(const char *name)
{
	char line[sizeof("dormouse: fault point  reached") + DORMOUSE_FAULT_NAME_BYTES];

	if (strcmp(name, selected))
		return;
	strcpy(line, "dormouse: fault point ");
	strcat(line, selected);
	strcat(line, " reached");
	dormouse_console_line(line);
	while (1)
		hlt();
}
