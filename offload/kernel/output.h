/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the first program writes. */
#ifndef DORMOUSE_OUTPUT_H
#define DORMOUSE_OUTPUT_H

/* Writes a file; how many bytes, or an error. */
long put(const char *path, const char *text, long bytes);
/* One line in the kernel's log: what, and which cycle. */
void report(const char *what, unsigned int cycle);

#endif
