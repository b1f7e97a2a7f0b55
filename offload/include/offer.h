/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How the small core takes what is offered in struct offload_handover, in steps between which the big core may withdraw
 * it. The firmware takes these steps, and so does the test of the hand-over (tests/caches).
 */
#ifndef OFFLOAD_OFFER_H
#define OFFLOAD_OFFER_H

#include <stdbool.h>

#include "handover.h"

/* Whether there is a new offer, and its number. One that was withdrawn is the last answer, or older. */
static inline bool offer_is_new(const volatile struct offload_handover *shared, uint32_t *number)
{
	*number = shared->offer;
	return (int32_t)(*number - shared->answer) > 0;
}

static inline void offer_take(volatile struct offload_handover *shared, uint32_t number)
{
	shared->taken = number;
}

/*
 * Behind offer_take() and a barrier: whether the offer stands. The big core, which withdraws before it reads whether
 * the job is taken, leaves an offer that stands to the small core.
 */
static inline bool offer_stands(volatile struct offload_handover *shared, uint32_t number)
{
	if (shared->offer == number)
		return true;
	shared->taken = shared->answer;
	return false;
}

#endif
