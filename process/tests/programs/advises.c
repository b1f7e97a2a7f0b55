// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * advises: gives advice about its large memory again and again, takes it back, and compares what
 * the kernel has noted with what it has said. "ok N" after every twenty rounds.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Beyond what is read of a stopped program page by page. */
#define BYTES (96ul << 20)

static char *memory;

static int noted(const char *name)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	unsigned long start = 0, end = 0;
	char line[512];
	int found = -1;

	if (!smaps)
		abort();
	while (found < 0 && fgets(line, sizeof(line), smaps)) {
		sscanf(line, "%lx-%lx ", &start, &end);
		if (start <= (unsigned long)memory && (unsigned long)memory < end &&
		    !strncmp(line, "VmFlags:", 8))
			found = strstr(line, name) != NULL;
	}
	fclose(smaps);
	return found;
}

static void check(unsigned long round, int advised)
{
	const char *const names[] = {" dc", " dd", " wf"};

	for (size_t i = 0; i < 3; i++) {
		int is = noted(names[i]);

		if (is == advised)
			continue;
		printf("DIFFERS in round %lu: advised %d, %s %d\n", round, advised, names[i], is);
		fflush(stdout);
		abort();
	}
}

int main(void)
{
	const int give[] = {MADV_DONTFORK, MADV_DONTDUMP, MADV_WIPEONFORK};
	const int take[] = {MADV_DOFORK, MADV_DODUMP, MADV_KEEPONFORK};
	const struct timespec pause = {.tv_nsec = 1000000};
	char *ground = mmap(NULL, 3 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (ground == MAP_FAILED)
		abort();
	/* Between inaccessible pages: it stays one mapping with the same borders. */
	memory = ground + BYTES;
	if (mprotect(memory, BYTES, PROT_READ | PROT_WRITE))
		abort();
	memset(memory, 1, BYTES);
	for (unsigned long round = 0;; round++) {
		int advised = round % 2;

		for (size_t i = 0; i < 3; i++)
			if (madvise(memory, BYTES, advised ? give[i] : take[i]))
				abort();
		check(round, advised);
		nanosleep(&pause, NULL);
		check(round, advised);
		if (round % 20 == 0) {
			printf("ok %lu\n", round);
			fflush(stdout);
		}
	}
}
