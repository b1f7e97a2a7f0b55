// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * changes_while_filled: splits its memory with mprotect(2), merges it again and moves pieces of it
 * about, and leaves the pages alone: only whoever brings them after a restore can bring them.
 * Then it compares all of them, each with its number, and says "ok N". Meanwhile children look at
 * memory that is wiped for them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define PAGE 4096ul
#define PIECE (256 * PAGE)
#define PIECES 96
#define BYTES (PIECES * PIECE)
/* Odd, so that mappings end within whatever is brought at once. */
#define SPLIT (37 * PAGE)
#define CHANGING_S 1.5

static char *pieces[PIECES];
static char *secret;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	printf("FAILED %s: %s\n", what, strerror(errno));
	fflush(stdout);
	abort();
}

static void protect(char *from, size_t bytes, int protection)
{
	must(!mprotect(from, bytes, protection), "mprotect");
}

static void split_and_merge(char *piece)
{
	for (size_t at = SPLIT; at + PAGE < PIECE; at += 2 * SPLIT)
		protect(piece + at, PAGE, PROT_READ);
	usleep(100);
	protect(piece, PIECE, PROT_READ | PROT_WRITE);
}

/* To a place that was free a moment ago. */
static void move(size_t number)
{
	char *to = mmap(NULL, PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(to != MAP_FAILED, "mmap");
	to = mremap(pieces[number], PIECE, PIECE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	must(to != MAP_FAILED, "mremap");
	pieces[number] = to;
}

/* A child sees nothing of what its parent keeps to itself. */
static void fork_and_check(size_t page)
{
	pid_t child = fork();
	int status;

	must(child >= 0, "fork");
	if (child == 0)
		_exit(secret[page * PAGE] != 0);
	must(waitpid(child, &status, 0) == child, "waitpid");
	if (!status)
		return;
	printf("DIFFERS in a child: page %zu is not wiped, status %x\n", page, status);
	fflush(stdout);
	abort();
}

int main(void)
{
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	must(memory != MAP_FAILED, "mmap");
	secret = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(secret != MAP_FAILED, "mmap");
	must(!madvise(secret, PIECE, MADV_WIPEONFORK), "madvise");
	memset(secret, 1, PIECE);
	for (size_t number = 0; number < PIECES; number++) {
		pieces[number] = memory + number * PIECE;
		for (size_t at = 0; at < PIECE; at += PAGE)
			*(uint64_t *)(pieces[number] + at) = number * PIECE + at + 1;
	}
	for (unsigned long round = 1;; round++) {
		double until = now() + CHANGING_S;

		for (size_t turn = 0; now() < until; turn++) {
			size_t number = turn * 29 % PIECES;

			if (turn % 16 == 0)
				fork_and_check(turn / 16 % (PIECE / PAGE));
			if (turn % 3)
				split_and_merge(pieces[number]);
			else
				move(number);
		}
		for (size_t number = 0; number < PIECES; number++)
			for (size_t at = 0; at < PIECE; at += PAGE) {
				uint64_t is = *(uint64_t *)(pieces[number] + at);
				uint64_t should = number * PIECE + at + 1;

				if (is == should)
					continue;
				printf("DIFFERS piece %zu at %#zx: %#lx, should be %#lx\n", number, at, is, should);
				fflush(stdout);
				abort();
			}
		for (size_t at = 0; at < PIECE; at++)
			if (secret[at] != 1) {
				printf("DIFFERS secret at %#zx\n", at);
				fflush(stdout);
				abort();
			}
		printf("ok %lu %d\n", round, getpid());
		fflush(stdout);
	}
}
