// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What the executor prints as firmware: a buffer in shared memory, which Linux shows as trace0. */
#include "runtime/target.h"
#include "target.h"

/* Behind what is handed over (boards/firmware.ld); the resource table says where. Only Linux reads it. */
__attribute__((section(".handover.trace"))) static volatile char trace[TRACE_BYTES];

void clear_trace(void)
{
	for (uint32_t i = 0; i < TRACE_BYTES; i++)
		trace[i] = 0;
}

void write_line(const char *line, uint32_t length)
{
	static uint32_t at;

	/* It begins again when it is full; the last byte stays 0. */
	if (at + length >= TRACE_BYTES)
		at = 0;
	for (uint32_t i = 0; i < length; i++)
		trace[at++] = line[i];
	trace[at] = 0;
}
