// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * grow_and_move: a small mapping gives way to a large one at the same address, which then moves,
 * again and again. mremap(2) takes one whole mapping: whoever splits it makes the program fail.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define SMALL (64 * PAGE)
#define LARGE (1024 * PAGE)

static char *map(void *at, size_t bytes)
{
	return mmap(at, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
}

int main(void)
{
	char *place = mmap(NULL, 2 * LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned long round = 1;; round++) {
		memset(map(place, SMALL), 1, SMALL);
		memset(map(place, LARGE), 2, SMALL);
		char *moved = mremap(place, LARGE, 2 * LARGE, MREMAP_MAYMOVE);

		if (moved == MAP_FAILED) {
			printf("FAILED %lu: %s\n", round, strerror(errno));
			fflush(stdout);
			return 1;
		}
		munmap(moved, 2 * LARGE);
		if (round % 1000 == 0) {
			printf("ok %lu %d\n", round, getpid());
			fflush(stdout);
		}
	}
}
