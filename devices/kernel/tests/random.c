// SPDX-License-Identifier: GPL-2.0-only
#include "random.h"

static uint64_t random_state;
uint64_t this_seed;

void begin_random(uint64_t seed)
{
	this_seed = seed;
	random_state = seed;
}

/* splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t random_word(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint32_t random_below(uint32_t below)
{
	return random_word() % below;
}

void *allocate(size_t count, size_t bytes)
{
	void *memory = calloc(count ? count : 1, bytes);

	if (!memory) {
		perror("graph_core_test");
		exit(1);
	}
	return memory;
}
