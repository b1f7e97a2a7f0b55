/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the program of the big core and the test share, outside of cached memory. */
#ifndef OFFLOAD_TESTS_CACHES_CONTROL_H
#define OFFLOAD_TESTS_CACHES_CONTROL_H

#include <stdint.h>

enum {
	PROGRAM = 0xd0000,		/* the program's offset in guest memory; it begins with struct program_head */
	PROGRAM_BYTES = 0x10000,
};
#define PROGRAM_BASE 0xc0000000u	/* of guest memory */
#define SHARED_AT 0x40000000u		/* struct offload_handover */
#define CONTROL_AT 0x40010000u
#define CONTROL ((volatile struct control *)CONTROL_AT)

struct control {
	uint32_t microseconds;	/* grows when it is read */
	uint32_t entry;		/* of the function that is called */
	uint32_t mailbox;	/* a word of the guest's memory that ringing counts in */
	uint32_t rings_late;	/* 1: ringing is done when the offer is there */
};

struct program_head {
	uint32_t prepare;	/* void prepare(void): once for each hand-over */
	uint32_t handover_entry;
	/* Of cache-v7.S: */
	uint32_t flush_area, map_area, unmap_area, invalidate_first;
};

#endif
