/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * How the fuzzer's input is laid out; shared with the program that makes the seeds.
 *
 *   0    struct fuzz_input
 *   …    bytes of the DRAM bitmap, then of the CXL bitmap, then of the table of user pages'
 *        digests, as far as the input goes
 *
 * The header is a valid one, XOR the input's mask: an input of zeros is a good image,
 * and each bit that the fuzzer sets is one lie.
 */
#ifndef DORMOUSE_FUZZ_IMAGE_H
#define DORMOUSE_FUZZ_IMAGE_H

#include "dormouse_image.h"

/* The header up to its reserved bytes. */
#define FUZZ_HEADER_BYTES	568

enum fuzz_control {
	FUZZ_SEAL_HEADER = 1,	/* a right header digest after all changes */
	FUZZ_SEAL_BITMAPS = 2,	/* right bitmap digests */
	FUZZ_SEAL_COUNTS = 4,	/* right numbers of pages */
	FUZZ_OWN_GEOMETRY = 8,	/* the geometry comes from the input */
	FUZZ_FLIP_CXL = 16,	/* input bits are free pages, not occupied ones */
};

struct fuzz_input {
	dm_u8 control;		/* enum fuzz_control */
	dm_u8 machine;		/* which of the known geometries */
	dm_u8 state;
	dm_u8 allowed;
	dm_u32 range_count;
	struct dormouse_range range[4];
	dm_u64 cxl_base;
	dm_u64 cxl_bytes;
	dm_u64 reserved_bytes;
	dm_u8 header_mask[FUZZ_HEADER_BYTES];
};

#endif /* DORMOUSE_FUZZ_IMAGE_H */
