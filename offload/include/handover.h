/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The hand-over between Linux on the big core (linux/) and the firmware of the small core (target/handover.c), in
 * memory that both see and neither caches. The firmware's resource table says where it is.
 *
 * The big core writes a job, rings, cleans its caches, and writes a new number into offer: the last answer's and one.
 * The small core writes the number into taken, reads whether it still is the offer (offer.h), runs the job, writes how
 * it ended, and the number into answer. To withdraw an offer the big core writes the last answer's number into it, and
 * then reads taken: if that is the number, the small core answers, or takes it back.
 */
#ifndef OFFLOAD_HANDOVER_H
#define OFFLOAD_HANDOVER_H

#include "job.h"

#define HANDOVER_MAGIC 0x314f4844u	/* "DHO1" */
/* Of the entry in the resource table: the first number that remoteproc leaves to vendors. */
#define HANDOVER_RESOURCE 128

struct offload_handover {
	/* The firmware's, written when it has begun: this structure, and what a job must have on this board. */
	uint32_t magic;
	uint32_t bytes;
	uint32_t state;		/* host address of struct offload_state */
	uint32_t table;
	uint32_t memory;	/* host address of guest memory, and the most there may be */
	uint32_t memory_max;
	uint32_t cache_bytes;
	uint32_t systick_mhz;
	uint32_t devices;	/* host addresses of devices, from here to there */
	uint32_t devices_end;
	/* The big core's. */
	uint32_t timer_khz;	/* frequency of the counter that both cores read */
	uint32_t offer;
	/* The firmware's. */
	uint32_t taken;
	uint32_t answer;
	uint32_t stop;		/* enum offload_stop */
	uint32_t stop_address;	/* what was accessed, if the stop is about an access */
	uint32_t registers[16];
	uint32_t status;	/* CPSR: flags, IT, GE, A, I, F, T, mode */
	/* The big core's. */
	struct target_job job;
};

/* An entry of the resource table. */
struct handover_resource {
	uint32_t type;		/* HANDOVER_RESOURCE */
	uint32_t magic;
	uint32_t address;	/* of struct offload_handover, as the small core sees it */
	uint32_t bytes;
};

#endif
