// SPDX-License-Identifier: GPL-2.0-only
/* lib/crc32.c: little-endian, big-endian and Castagnoli, at odd offsets. */
#include "programs.h"

u32 crc32_le(u32 crc, const unsigned char *data, size_t bytes);
u32 crc32_be(u32 crc, const unsigned char *data, size_t bytes);
u32 __crc32c_le(u32 crc, const unsigned char *data, size_t bytes);

static u8 data[512];

u32 run_crc32(u32 seed, u32 rounds)
{
	u32 digest = seed;

	for (u32 i = 0; i < sizeof(data); i++)
		data[i] = dice(&seed);
	while (rounds--) {
		u32 offset = dice(&seed) % 16, bytes = dice(&seed) % (sizeof(data) - 16);

		digest = crc32_le(digest, data + offset, bytes);
		digest = crc32_be(digest, data + offset, bytes / 2);
		digest = __crc32c_le(digest, data, bytes / 4);
	}
	return digest;
}
