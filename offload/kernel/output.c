// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What the first program writes: into files, and into the kernel's log. */
#include "output.h"
#include "system_call.h"

long put(const char *path, const char *text, long bytes)
{
	long file = call(CALL_OPEN, (long)path, WRITE_ONLY, 0, 0, 0), written;

	if (file < 0)
		return file;
	written = call(CALL_WRITE, file, (long)text, bytes, 0, 0);
	call(CALL_CLOSE, file, 0, 0, 0, 0);
	return written;
}

/* One line in the kernel's log: what, and which cycle. */
void report(const char *what, unsigned int cycle)
{
	char line[96], digits[10];
	long length = 0, count = 0;

	while (what[length]) {
		line[length] = what[length];
		length++;
	}
	do {
		digits[count++] = '0' + cycle % 10;
		cycle /= 10;
	} while (cycle);
	while (count)
		line[length++] = digits[--count];
	line[length++] = '\n';
	put("/dev/kmsg", line, length);
}
