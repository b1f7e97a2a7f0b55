/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * One hand-over between a big core with caches and the small core: the big core runs a block, hands over by the code of
 * offload/linux, the small core runs a part of another block, and the big core the rest. Registers and memory must be
 * those of a core without caches that ran all of it.
 */
#ifndef OFFLOAD_TESTS_CACHES_TRIAL_H
#define OFFLOAD_TESTS_CACHES_TRIAL_H

#include "small_core.h"

/* How soon the small core does something. */
struct timing {
	uint32_t one_in;		/* as struct small_core's, when it is awake */
	uint32_t step_us;	/* time grows by up to so much each time it is read */
	bool sleeps;		/* until the offer is about to be withdrawn */
	bool again;		/* the hand-over's memory and the small core are what the last one left */
	uint32_t steps;		/* that it takes then, before that; the others when one_in lets it */
};

/* What has been done since it was cleared. */
struct trial_counts {
	uint64_t hand_overs, by_small, withdrawn, taken_back, late_answers, maintenance, write_backs, speculated;
};

extern struct trial_counts trial_counts;

/* Makes and runs one with a random instruction set; the reason why the outcome is not right, or NULL. */
const char *trial_run(enum fault fault, const struct timing *timing);
/* How often the small core ran the last one's job; the instruction set, "A32" or "T32". */
uint32_t trial_runs(void);
const char *trial_set(void);
/* A big core of an instruction set, with random data in its memory; its caches are warm. */
struct big_core *trial_big_core(bool thumb, uint8_t *memory);

#endif
