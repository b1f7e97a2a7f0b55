/* SPDX-License-Identifier: GPL-2.0-only */
/* The type information of the running kernel. */
#ifndef _DPM_TYPES_H
#define _DPM_TYPES_H

#include <linux/types.h>

struct dpm_types {
	const void *base;
	u32 type_bytes;
	const char *strings;
	u32 string_bytes;
	/* Type 0 is void and has no record. */
	u32 count;
	u32 *at;
};

struct dpm_text {
	char text[160];
};

int dpm_types_open(struct dpm_types *types);
void dpm_types_close(struct dpm_types *types);

/* A function as C declares it; false if the kernel's types do not have it. */
bool dpm_types_declare(const struct dpm_types *types, const char *name, struct dpm_text *text);

#endif
