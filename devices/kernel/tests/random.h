/* SPDX-License-Identifier: GPL-2.0-only */
/* Random numbers that a seed gives again, and checks that name the seed. */
#ifndef RANDOM_H
#define RANDOM_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What is drawn from here on depends on this seed alone. */
void begin_random(uint64_t seed);
/* From 0 to below; below is not 0. */
uint32_t random_below(uint32_t below);
/* Zeroed; ends the program if there is none. */
void *allocate(size_t count, size_t bytes);

extern uint64_t this_seed;

#define CHECK(condition, ...)							\
	do {									\
		if (!(condition)) {						\
			fprintf(stderr, "graph with seed %" PRIu64 ", line %d: ",	\
				this_seed, __LINE__);				\
			fprintf(stderr, __VA_ARGS__);				\
			fputc('\n', stderr);					\
			exit(1);						\
		}								\
	} while (0)

#endif
