/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The small core of the hand-over: takes offers as the firmware does (include/offer.h); the executor runs its jobs. */
#ifndef OFFLOAD_TESTS_CACHES_SMALL_CORE_H
#define OFFLOAD_TESTS_CACHES_SMALL_CORE_H

#include "big_core.h"

struct small_core {
	struct big_core *big;
	struct edge *edge;
	enum { WAITS, FINDS, TAKES, RUNS } state;
	uint32_t number;
	uint32_t one_in;		/* one of so many times that it may go on, it does; 0: it never does */
	uint32_t runs, taken_back, late_answers;	/* of the last: when the offer had been withdrawn */
};

/* memory is the edge's, without a cache. */
void small_core_new(struct small_core *small, struct big_core *big, struct edge *edge);
/* again: it goes on where it is. */
void small_core_reset(struct small_core *small, uint32_t one_in, bool again);
/* It may take a step. */
void small_core_step(struct small_core *small);

#endif
