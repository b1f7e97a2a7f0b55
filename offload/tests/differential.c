// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Compares translated code with an oracle: Unicorn's Cortex-A15 runs the guest's instructions,
 * Unicorn's Cortex-M3 what the translator made of them; registers, flags and memory must agree.
 *
 *   differential WHAT COUNT [SEED [OPTIONS [CACHE]]]
 *
 *   instructions, thumb-instructions    each line of a table, with N encodings and states
 *   blocks, thumb-blocks                random blocks of 1 to 40 instructions
 *   loops, thumb-loops                  random loops over pointers
 *   hand-back                           blocks of both; at one instruction of each the executor hands
 *                                       back, and the oracle goes on
 *   interrupted                         blocks and loops of both; behind a random number of host instructions the
 *                                       executor hands back, where an interrupt would come
 *   kept                                blocks and loops of both, with a code cache that is kept while code
 *                                       changes
 *   caches                              the hand-over from a big core with caches to the small core and back, and
 *                                       with each of its steps left out
 *   directed                            what these have hit upon only once, with N states
 *   wild-stores                         stores to where the executor's own memory is
 *   modes                               all six without any optimisation, and without one each;
 *                                       20 blocks and loops for each instruction
 *   seeds                               all of these in small, with N seeds from the system's random
 *                                       numbers; a SEED is not taken
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "differential.h"

static int check_modes(uint32_t wanted)
{
	int bad = 0;

	for (uint32_t without = 1; without <= OPTIONS_ALL + 1u; without <<= 1) {
		uint32_t options = without > OPTIONS_ALL ? 0 : OPTIONS_ALL & ~without;

		printf("options %x\n", options);
		bad |= check_instructions(wanted, options);
		bad |= check_thumb_instructions(wanted, options);
		bad |= check_blocks(20 * wanted, options, TEST_CACHE, false);
		bad |= check_thumb_blocks(20 * wanted, options, TEST_CACHE, false);
		bad |= check_loops(20 * wanted, options, TEST_CACHE, false);
		bad |= check_loops(20 * wanted, options, TEST_CACHE, true);
	}
	return bad;
}

static int check_hand_back(uint32_t wanted, uint32_t options, uint32_t cache)
{
	return check_blocks(wanted, options, cache, true) | check_thumb_blocks(wanted, options, cache, true);
}

static int check_interrupted(uint32_t wanted, uint32_t options, uint32_t cache)
{
	int bad = 0;

	interrupting = true;
	bad |= check_blocks(wanted, options, cache, false);
	bad |= check_thumb_blocks(wanted, options, cache, false);
	bad |= check_loops(wanted, options, cache, false);
	bad |= check_loops(wanted, options, cache, true);
	interrupting = false;
	return bad;
}

/* What is done begins with its seed, so that each can be made again alone. */
static void begin_with(uint64_t seed)
{
	printf("seed %llu, ", (unsigned long long)seed);
	/* With a crash, too. */
	fflush(stdout);
	handed_back = 0;
	dice_state = seed * 0x9e3779b97f4a7c15ull + 1;
}

static int check(const char *what, uint32_t wanted, uint32_t options, uint32_t cache)
{
	if (!strcmp(what, "instructions"))
		return check_instructions(wanted, options);
	if (!strcmp(what, "blocks"))
		return check_blocks(wanted, options, cache, false);
	if (!strcmp(what, "thumb-instructions"))
		return check_thumb_instructions(wanted, options);
	if (!strcmp(what, "thumb-blocks"))
		return check_thumb_blocks(wanted, options, cache, false);
	if (!strcmp(what, "loops") || !strcmp(what, "thumb-loops"))
		return check_loops(wanted, options, cache, what[0] == 't');
	if (!strcmp(what, "hand-back"))
		return check_hand_back(wanted, options, cache);
	if (!strcmp(what, "interrupted"))
		return check_interrupted(wanted, options, cache);
	if (!strcmp(what, "kept"))
		return check_kept(wanted, options, cache);
	if (!strcmp(what, "caches"))
		return check_caches(wanted);
	if (!strcmp(what, "directed"))
		return check_directed(wanted, options, cache);
	if (!strcmp(what, "wild-stores"))
		return check_wild_stores(wanted);
	if (!strcmp(what, "modes"))
		return check_modes(wanted);
	return 2;
}

static int check_seeds(uint32_t wanted)
{
	static const struct { const char *what; uint32_t count; } parts[] = {
		{ "instructions", 40 }, { "thumb-instructions", 30 }, { "blocks", 1000 },
		{ "thumb-blocks", 1000 }, { "loops", 1000 }, { "thumb-loops", 1000 },
		{ "hand-back", 500 }, { "interrupted", 500 }, { "kept", 500 }, { "caches", 100 }, { "directed", 2 },
		{ "wild-stores", 1000 }, { "modes", 2 },
	};
	FILE *source = fopen("/dev/urandom", "rb");
	uint32_t failed = 0;

	if (!source) {
		perror("/dev/urandom");
		return 1;
	}
	for (uint32_t i = 0; i < wanted; i++) {
		uint32_t seed;
		int bad = 0;

		if (fread(&seed, sizeof(seed), 1, source) != 1) {
			perror("/dev/urandom");
			return 1;
		}
		for (size_t part = 0; part < sizeof(parts) / sizeof(*parts); part++) {
			begin_with(seed);
			printf("%s %u: ", parts[part].what, parts[part].count);
			bad |= check(parts[part].what, parts[part].count, OPTIONS_ALL, TEST_CACHE);
		}
		failed += bad != 0;
	}
	fclose(source);
	printf("%u seeds, %u with differences\n", wanted, failed);
	return failed != 0;
}

int main(int count, char **arguments)
{
	uint32_t wanted, options = OPTIONS_ALL, cache = TEST_CACHE;
	const char *what;

	if (count < 3)
		return 2;
	what = arguments[1];
	wanted = strtoul(arguments[2], NULL, 0);
	if (!strcmp(what, "seeds"))
		return check_seeds(wanted);
	if (count > 4)
		options = strtoul(arguments[4], NULL, 0);
	if (count > 5)
		cache = strtoul(arguments[5], NULL, 0);
	begin_with(count > 3 ? strtoull(arguments[3], NULL, 0) : (uint64_t)time(NULL));
	return check(what, wanted, options, cache);
}
