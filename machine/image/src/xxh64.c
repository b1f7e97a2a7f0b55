// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * XXH64, streaming, written from the algorithm's public specification. Uses general
 * purpose registers only, so firmware may call it in SMM.
 */
#include "internal.h"

#define STRIPE_BYTES 32

void dormouse_xxh64_init(struct dormouse_xxh64 *hash)
{
	dm_zero(hash, sizeof(*hash));
	hash->lane[0] = DM_XXH_P1 + DM_XXH_P2;
	hash->lane[1] = DM_XXH_P2;
	hash->lane[2] = 0;
	hash->lane[3] = 0 - DM_XXH_P1;
}

static const dm_u8 *hash_stripes(struct dormouse_xxh64 *hash, const dm_u8 *in, dm_u64 stripes)
{
	dm_u64 a = hash->lane[0], b = hash->lane[1], c = hash->lane[2], d = hash->lane[3];

	for (; stripes; stripes--) {
		a = dm_xxh64_round(a, dm_load64(in));
		b = dm_xxh64_round(b, dm_load64(in + 8));
		c = dm_xxh64_round(c, dm_load64(in + 16));
		d = dm_xxh64_round(d, dm_load64(in + 24));
		in += STRIPE_BYTES;
	}
	hash->lane[0] = a;
	hash->lane[1] = b;
	hash->lane[2] = c;
	hash->lane[3] = d;
	return in;
}

void dormouse_xxh64_update(struct dormouse_xxh64 *hash, const void *data, dm_u64 bytes)
{
	const dm_u8 *in = data;
	dm_u64 part;

	if (!bytes)
		return;
	hash->total_bytes += bytes;

	if (hash->tail_bytes) {
		part = dm_min(bytes, STRIPE_BYTES - hash->tail_bytes);
		dm_copy_bytes(hash->tail + hash->tail_bytes, in, part);
		hash->tail_bytes += (dm_u32)part;
		in += part;
		bytes -= part;
		if (hash->tail_bytes < STRIPE_BYTES)
			return;
		hash_stripes(hash, hash->tail, 1);
		hash->tail_bytes = 0;
	}

	in = hash_stripes(hash, in, bytes / STRIPE_BYTES);
	part = bytes % STRIPE_BYTES;
	dm_copy_bytes(hash->tail, in, part);
	hash->tail_bytes = (dm_u32)part;
}

DM_INLINE dm_u64 merge_lane(dm_u64 sum, dm_u64 lane)
{
	return (sum ^ dm_xxh64_round(0, lane)) * DM_XXH_P1 + DM_XXH_P4;
}

dm_u64 dormouse_xxh64_final(const struct dormouse_xxh64 *hash)
{
	const dm_u8 *in = hash->tail;
	dm_u32 left = hash->tail_bytes;
	dm_u64 sum;
	int i;

	if (hash->total_bytes >= STRIPE_BYTES) {
		sum = dm_rotl64(hash->lane[0], 1) + dm_rotl64(hash->lane[1], 7) +
		      dm_rotl64(hash->lane[2], 12) + dm_rotl64(hash->lane[3], 18);
		for (i = 0; i < 4; i++)
			sum = merge_lane(sum, hash->lane[i]);
	} else {
		sum = DM_XXH_P5;
	}
	sum += hash->total_bytes;

	for (; left >= 8; left -= 8, in += 8) {
		sum ^= dm_xxh64_round(0, dm_load64(in));
		sum = dm_rotl64(sum, 27) * DM_XXH_P1 + DM_XXH_P4;
	}
	if (left >= 4) {
		sum ^= dm_load32(in) * DM_XXH_P1;
		sum = dm_rotl64(sum, 23) * DM_XXH_P2 + DM_XXH_P3;
		left -= 4;
		in += 4;
	}
	for (; left; left--, in++) {
		sum ^= *in * DM_XXH_P5;
		sum = dm_rotl64(sum, 11) * DM_XXH_P1;
	}

	sum ^= sum >> 33;
	sum *= DM_XXH_P2;
	sum ^= sum >> 29;
	sum *= DM_XXH_P3;
	sum ^= sum >> 32;
	return sum;
}

dm_u64 dormouse_xxh64(const void *data, dm_u64 bytes)
{
	struct dormouse_xxh64 hash;

	dormouse_xxh64_init(&hash);
	dormouse_xxh64_update(&hash, data, bytes);
	return dormouse_xxh64_final(&hash);
}
