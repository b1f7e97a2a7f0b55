// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What is checked of the hand-over with caches: that it is right, and that each of its steps is needed. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "trial.h"

/* From a small core that takes a job at once to one that takes it while it is withdrawn, or never. */
static int check_right(uint32_t wanted)
{
	uint32_t bad = 0;

	memset(&trial_counts, 0, sizeof(trial_counts));
	for (uint32_t i = 0; i < wanted && bad < 5; i++) {
		struct timing timing = {
			.one_in = below(8) ? 1u << below(12) : 0,
			.step_us = below(4) ? 1000 : 100000,
		};
		const char *why;

		/* The big core waits for a small core that has taken a job, so one that never goes on begins anew. */
		timing.again = timing.one_in && below(4);
		why = trial_run(FAULT_NONE, &timing);
		if (!why)
			continue;
		bad++;
		fprintf(stderr, "hand-over %u, %s: %s\n", i, trial_set(), why);
	}
	printf("caches: %llu hand-overs, %llu run by the small core, %llu withdrawn, %llu of them when they were taken; "
	       "%llu lines maintained, %llu written back, %llu speculations; %u differences\n",
	       (unsigned long long)trial_counts.hand_overs, (unsigned long long)trial_counts.by_small,
	       (unsigned long long)trial_counts.withdrawn, (unsigned long long)trial_counts.taken_back,
	       (unsigned long long)trial_counts.maintenance, (unsigned long long)trial_counts.write_backs,
	       (unsigned long long)trial_counts.speculated, bad);
	return bad != 0;
}

/* Steps of the small core: it reads the offer, takes it, reads it again and runs the job, and answers. */
enum { ANSWERS = 4 };

/* The small core takes so many of its steps before an offer is withdrawn, and the others meanwhile or never. */
static int check_last_moment(uint32_t rounds)
{
	static const uint32_t chances[] = { 1, 4, 64 };
	uint32_t bad = 0;

	memset(&trial_counts, 0, sizeof(trial_counts));
	for (uint32_t i = 0; i < rounds; i++) {
		for (uint32_t steps = 0; steps <= ANSWERS; steps++) {
			struct timing timing = {
				.one_in = chances[i % 3], .step_us = 50000, .sleeps = true, .steps = steps,
			};
			const char *why;

			/* Only what has not begun to read may stay away. */
			if (!steps && i % 2)
				timing.one_in = 0;
			why = trial_run(FAULT_NONE, &timing);
			if (!why && steps == ANSWERS && trial_runs() != 1)
				why = "the answer of the last moment is lost";
			if (!why && !timing.one_in && trial_runs())
				why = "the small core runs a job that it never took";
			if (why)
				fprintf(stderr, "%u steps, one in %u: %s\n", steps, timing.one_in, why);
			bad += why != NULL;
		}
	}
	printf("caches: %llu offers at the last moment, %llu withdrawn, %llu of them when they were taken, %llu answered "
	       "behind their withdrawal, %u differences\n",
	       (unsigned long long)trial_counts.hand_overs, (unsigned long long)trial_counts.withdrawn,
	       (unsigned long long)trial_counts.taken_back, (unsigned long long)trial_counts.late_answers, bad);
	return bad != 0;
}

/* With a step left out a difference must be found; the rarest is in one of some two hundred hand-overs. */
static int check_faults(void)
{
	static const struct { const char *name; bool late; } faults[FAULTS] = {
		[FAULT_NO_FIRST_FLUSH] = { "the flush before the offer", false },
		[FAULT_NO_LAST_FLUSH] = { "the flush behind the answer", false },
		[FAULT_OFFER_FIRST] = { "the order of flush and offer", false },
		[FAULT_CLEAN_ONLY] = { "invalidation", false },
		[FAULT_FIRST_LEVEL] = { "the second level", false },
		[FAULT_NO_BARRIERS] = { "barriers", false },
		[FAULT_NO_LEVEL_BARRIER] = { "the barrier between levels", false },
		[FAULT_CACHES_ON] = { "switching the data cache off", false },
		[FAULT_LATE_RING] = { "ringing before the flush", false },
		[FAULT_READS_ONCE] = { "the small core's second look at the offer", true },
		[FAULT_TAKES_OLD] = { "the order of offers", true },
	};
	enum { MAX = 4000 };
	int missed = 0;

	for (int fault = FAULT_NONE + 1; fault < FAULTS; fault++) {
		const char *why = NULL;
		uint32_t i = 0;

		while (!why && i++ < MAX) {
			struct timing timing = { .one_in = 1, .step_us = 1000 };

			if (faults[fault].late)
				timing = (struct timing){
					.one_in = 1 + below(64), .step_us = 50000, .sleeps = true,
					.steps = below(ANSWERS + 1),
				};
			why = trial_run(fault, &timing);
		}
		if (why)
			printf("caches: without %s: found in hand-over %u: %s\n", faults[fault].name, i, why);
		else
			printf("caches: without %s: not found\n", faults[fault].name);
		missed |= !why;
	}
	return missed;
}

int check_caches(uint32_t wanted)
{
	int bad = check_maintenance(wanted / 8 + 16);

	bad |= check_right(wanted);
	bad |= check_last_moment(wanted / 32 + 6);
	bad |= check_faults();
	return bad;
}
