// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Writes the fuzzer's first inputs into a folder: good images of each machine and state,
 * and one lie for each 64-bit word of the header.
 */
#include <stdio.h>
#include <string.h>

#include "fuzz_image.h"

#define BITMAP_BYTES 4608

struct seed {
	struct fuzz_input input;
	dm_u8 bitmaps[BITMAP_BYTES];
};

static int write_seed(const char *folder, const char *name, unsigned int number,
		      const struct seed *seed)
{
	char path[4096];
	FILE *file;
	int failed;

	snprintf(path, sizeof(path), "%s/%s-%u", folder, name, number);
	file = fopen(path, "wb");
	if (!file) {
		perror(path);
		return 1;
	}
	failed = fwrite(seed, sizeof(*seed), 1, file) != 1;
	failed |= fclose(file) != 0;
	if (failed)
		perror(path);
	return failed;
}

static struct seed good_seed(dm_u8 machine, dm_u8 state)
{
	struct seed seed;

	memset(&seed, 0, sizeof(seed));
	seed.input.control = FUZZ_SEAL_HEADER | FUZZ_SEAL_BITMAPS | FUZZ_SEAL_COUNTS;
	seed.input.machine = machine;
	seed.input.state = state;
	seed.input.allowed = (dm_u8)(1U << state);
	/* Pages 0x10…, the wake vector's page 0x99, pages 0x100…; all of them RAM. */
	seed.bitmaps[2] = 0xff;
	seed.bitmaps[0x99 / 8] = 1 << (0x99 % 8);
	seed.bitmaps[0x100 / 8] = machine == 2 ? 0 : 0x5a;
	seed.bitmaps[BITMAP_BYTES - 9] = 0xf0;
	return seed;
}

int main(int argc, char **argv)
{
	unsigned int machine, state, word;
	struct seed seed;
	int failed = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	for (machine = 0; machine < 3; machine++) {
		for (state = 0; state < DORMOUSE_STATE_COUNT; state++) {
			seed = good_seed((dm_u8)machine, (dm_u8)state);
			failed |= write_seed(argv[1], "good", machine * 10 + state, &seed);
			seed.input.allowed = 1 << DORMOUSE_STATE_SUSPENDED;
			failed |= write_seed(argv[1], "state", machine * 10 + state, &seed);
			seed.input.allowed = (dm_u8)(1U << state);
			seed.input.control |= FUZZ_FLIP_CXL;
			failed |= write_seed(argv[1], "full", machine * 10 + state, &seed);
		}
	}
	for (word = 0; word < FUZZ_HEADER_BYTES / 8; word++) {
		seed = good_seed(0, DORMOUSE_STATE_SUSPENDED);
		seed.input.header_mask[word * 8] = 0x18;
		failed |= write_seed(argv[1], "lie", word, &seed);
		memset(seed.input.header_mask + word * 8, 0xff, 8);
		failed |= write_seed(argv[1], "wild", word, &seed);
	}
	seed = good_seed(0, DORMOUSE_STATE_SUSPENDED);
	seed.input.control |= FUZZ_OWN_GEOMETRY;
	seed.input.range_count = 2;
	seed.input.range[0].bytes = 0xa0000;
	seed.input.range[1].base = 0x100000;
	seed.input.range[1].bytes = 0x100000;
	seed.input.cxl_base = 4ULL << 30;
	seed.input.cxl_bytes = DORMOUSE_BLOCK_BYTES;
	seed.input.reserved_bytes = DORMOUSE_BLOCK_BYTES;
	failed |= write_seed(argv[1], "own", 0, &seed);
	return failed;
}
