// SPDX-License-Identifier: GPL-2.0-only
/* lib/sort.c: heap sort of words and of records, with a comparison through a pointer. */
#include <linux/sort.h>

#include "programs.h"

struct record {
	u32 key;
	u16 a;
	u8 b[6];
};

static u32 words[64];
static struct record records[48];

static int compare_words(const void *a, const void *b)
{
	u32 one = *(const u32 *)a, two = *(const u32 *)b;

	return one < two ? -1 : one > two;
}

static int compare_records(const void *a, const void *b)
{
	const struct record *one = a, *two = b;

	if (one->a != two->a)
		return one->a < two->a ? -1 : 1;
	return (int)(one->key >> 1) - (int)(two->key >> 1);
}

u32 run_sort(u32 seed, u32 rounds)
{
	u32 digest = seed;

	while (rounds--) {
		u32 count = 1 + dice(&seed) % ARRAY_SIZE(records);

		for (u32 i = 0; i < ARRAY_SIZE(words); i++)
			words[i] = dice(&seed);
		sort(words, ARRAY_SIZE(words), sizeof(words[0]), compare_words, NULL);
		for (u32 i = 0; i < ARRAY_SIZE(words); i++)
			digest = mix(digest, words[i]);
		for (u32 i = 0; i < count; i++)
			records[i] = (struct record){ dice(&seed), dice(&seed) % 8, { (u8)i } };
		sort(records, count, sizeof(records[0]), compare_records, NULL);
		for (u32 i = 0; i < count; i++)
			digest = mix(digest, records[i].key ^ records[i].b[0]);
	}
	return digest;
}
