/*
 * Stores into a mapped file after an epoch, and before the epoch's files are synced.
 *
 * mapped DIRECTORY: fills a large file, which takes long to sync, and counts in a small one that is
 * mapped: cell N % CELLS holds the last count that fell into it. When the first pages of the large
 * file are written out, which is after the epoch, it counts on for a moment, and says "stored". At
 * each count, the cell must still hold an older one: a newer one was stored by a later life. A later
 * life that is as new as the file says "goes on".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CELLS 256
#define LARGE_BYTES (64UL << 20)
#define PIECE_BYTES (1UL << 20)
/* Counts after the epoch. */
#define MORE 20

static volatile uint64_t *cells;
static uint64_t count;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *map(const char *name, unsigned long bytes, int *fd)
{
	void *at;

	*fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (*fd < 0 || ftruncate(*fd, bytes))
		fail(name);
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (at == MAP_FAILED)
		fail(name);
	return at;
}

static void check(const volatile uint64_t *cell)
{
	if (*cell > count) {
		printf("newer: cell has %lu at %lu\n", *cell, count);
		fflush(stdout);
		exit(2);
	}
}

static void advance(void)
{
	volatile uint64_t *cell = &cells[(count + 1) % CELLS];

	check(cell);
	count++;
	*cell = count;
}

/* Of the mapping at this address, bytes that are to be written to its file. */
static unsigned long dirty_bytes(const void *at)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	unsigned long start, end, kib, sum = 0;
	char line[512];
	int ours = 0;

	if (!smaps)
		fail("smaps");
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = start == (unsigned long)at;
		else if (ours && (sscanf(line, "Shared_Dirty: %lu", &kib) == 1 ||
				  sscanf(line, "Private_Dirty: %lu", &kib) == 1))
			sum += kib << 10;
	}
	fclose(smaps);
	return sum;
}

static const char *fill(const char *name)
{
	static char piece[PIECE_BYTES];
	unsigned long done;
	const char *at;
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int reader = open(name, O_RDONLY);

	if (fd < 0 || reader < 0)
		fail(name);
	memset(piece, 'x', sizeof(piece));
	for (done = 0; done < LARGE_BYTES; done += PIECE_BYTES)
		if (pwrite(fd, piece, PIECE_BYTES, done) != PIECE_BYTES)
			fail(name);
	/* Only open for writing: it is not mapped for that. */
	at = mmap(NULL, LARGE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE, reader, 0);
	if (at == MAP_FAILED)
		fail(name);
	return at;
}

int main(int argc, char **argv)
{
	pid_t tracker = getppid();
	const char *large;
	int fd, more, at;

	if (argc != 2 || chdir(argv[1]))
		fail("mapped DIRECTORY");
	cells = map("small", CELLS * sizeof(*cells), &fd);
	close(fd);
	large = fill("large");
	printf("ready\n");
	fflush(stdout);
	do
		advance();
	while (dirty_bytes(large) >= LARGE_BYTES);
	for (more = 0; more < MORE; more++)
		advance();
	printf("stored\n");
	fflush(stdout);
	for (;; usleep(1000)) {
		for (at = 0; at < CELLS; at++)
			check(&cells[at]);
		if (getppid() != tracker) {
			tracker = getppid();
			printf("goes on\n");
			fflush(stdout);
		}
	}
}
