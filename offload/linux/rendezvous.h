/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The module's way of a call to the small core and back. tests/caches runs these files on an emulated big core, too,
 * under a model of its caches.
 */
#ifndef OFFLOAD_LINUX_RENDEZVOUS_H
#define OFFLOAD_LINUX_RENDEZVOUS_H

#include <linux/io.h>
#include <linux/types.h>

#include "handover.h"
#include "offload.h"

/* What is handed over, and how; the module has one. */
struct rendezvous {
	struct offload_handover __iomem *shared;	/* not cached */
	struct target_job job;
	void (*ring)(void);
	/* v7_flush_dcache_all(): cleans and invalidates this core's data and unified caches. It accesses no memory. */
	void (*flush_dcache)(void);
	u32 entry;		/* guest address of the function that is called, bit 0 as in BLX */
	const char *name;
	bool goes_alone;	/* the big core runs the function itself: it is called again */
};

extern struct rendezvous rendezvous;

/* --- rendezvous.c --- */

/* Runs the job; false: the small core has not taken it, and will not. */
bool run_on_small_core(void);

/* --- caches.S --- */

/*
 * Switches the data cache off and empties it: what this core has written is in memory, and from here on it reads and
 * writes memory, and brings no line of data in.
 */
void caches_off(void (*flush_dcache)(void));
/* Drops what the caches hold meanwhile, instructions and branch predictions, too, and switches the data cache on. */
void caches_on(void (*flush_dcache)(void));

/* --- call.c, called by switch.S --- */

/* What switch.S pushes, and what it goes on with. */
struct handover_frame {
	u32 registers[13];
	u32 link;
};

struct handover_context {
	u32 registers[16];	/* the last is PC, which switch.S takes from the stack */
};

struct handover_context *handover_call(struct handover_frame *frame, u32 status);

/* --- switch.S --- */

void handover_entry(void);

#endif
