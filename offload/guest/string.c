// SPDX-License-Identifier: GPL-2.0-only
/* lib/string.c: copies, comparisons and searches of short texts and of memory. */
#include "programs.h"

char *strcpy(char *to, const char *from);
char *strncpy(char *to, const char *from, size_t most);
char *strcat(char *to, const char *from);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t most);
char *strchr(const char *text, int c);
char *strrchr(const char *text, int c);
char *strstr(const char *text, const char *part);
size_t strspn(const char *text, const char *accept);
size_t strcspn(const char *text, const char *reject);
void *memchr(const void *from, int c, size_t bytes);

static char one[128], two[128], three[256];

static void fill(char *text, u32 length, u32 *seed)
{
	for (u32 i = 0; i < length; i++)
		text[i] = 'a' + dice(seed) % 3;
	text[length] = 0;
}

static u32 place(const char *found, const char *text)
{
	return found ? (u32)(found - text) : 0xffff;
}

u32 run_string(u32 seed, u32 rounds)
{
	u32 digest = seed;

	/* Every run gives the same. */
	memset(three, 0, sizeof(three));
	while (rounds--) {
		fill(one, dice(&seed) % 100, &seed);
		fill(two, dice(&seed) % 6, &seed);
		digest = mix(digest, strlen(one));
		digest = mix(digest, place(strstr(one, two), one));
		digest = mix(digest, place(strchr(one, 'c'), one));
		digest = mix(digest, place(strrchr(one, 'b'), one));
		strcpy(three, one);
		strcat(three, two);
		digest = mix(digest, strcmp(three, one));
		digest = mix(digest, strncmp(three, one, strlen(one)));
		digest = mix(digest, strspn(one, "ab"));
		digest = mix(digest, strcspn(one, "c"));
		memmove(three + 3, three, 60);
		memset(three + 90, dice(&seed), 17);
		memcpy(three + 111, three + 5, 40);
		digest = mix(digest, memcmp(three, one, 64));
		digest = mix(digest, place(memchr(three, 'c', sizeof(three)), three));
		for (u32 i = 0; i < 64; i++)
			digest = mix(digest, (u8)three[i]);
	}
	return digest;
}
