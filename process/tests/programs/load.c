/*
 * What the benchmark persists: memory that does not compress, a heartbeat, and orders.
 *
 *   load hold FILE MIB         fills MIB, beats, and does what it is ordered to
 *   load churn FILE MIB RATE   the same, and writes to RATE MiB of pages a second, here and there
 *   load passes MIB COUNT      maps MIB, fills it and unmaps it COUNT times; prints seconds a pass
 *
 * FILE is mapped shared. It shows the time of the last beat and takes orders: to write to a number
 * of pages, or to compare all of them with their expected contents.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define WORDS (PAGE / 8)
#define BEAT_US 200

enum order { NOTHING, WRITE_PAGES, COMPARE };

struct desk {
	volatile uint64_t beat_ns;	/* CLOCK_REALTIME of the last beat; 0: not filled yet */
	volatile uint64_t asked;	/* number of the last order */
	volatile uint64_t order;
	volatile uint64_t argument;
	volatile uint64_t done;		/* number of the last order that was followed */
	volatile uint64_t result;	/* of COMPARE: pages that are wrong */
};

static uint64_t chance = 88172645463325252ull;

static uint64_t rnd(void)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return chance;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Words that look random, and follow from a page's number and how often it was written. */
static uint64_t first_word(uint64_t page, uint64_t version)
{
	return (page + 1) * 0x9e3779b97f4a7c15ull ^ (version + 1) * 0xd1342543de82ef95ull;
}

static uint64_t next_word(uint64_t word)
{
	return word * 6364136223846793005ull + 1442695040888963407ull;
}

static void fill(uint64_t *words, uint64_t page, uint64_t version)
{
	uint64_t word = first_word(page, version);

	for (size_t i = 0; i < WORDS; i++) {
		words[i] = word;
		word = next_word(word);
	}
}

static int differs(const uint64_t *words, uint64_t page, uint64_t version)
{
	uint64_t word = first_word(page, version);
	uint64_t wrong = 0;

	for (size_t i = 0; i < WORDS; i++) {
		wrong |= words[i] ^ word;
		word = next_word(word);
	}
	return wrong != 0;
}

static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("load: mmap");
		exit(1);
	}
	return memory;
}

static struct desk *open_desk(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	void *desk;

	if (fd < 0 || ftruncate(fd, PAGE)) {
		perror(path);
		exit(1);
	}
	desk = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (desk == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	close(fd);
	return desk;
}

/* Writes go to pages at a constant distance, so that they are spread and all different. */
static void write_pages(uint64_t *memory, uint32_t *versions, size_t pages, size_t count)
{
	size_t step = count ? pages / count : 0;
	size_t start = step ? rnd() % step : 0;

	for (size_t i = 0; i < count && step; i++) {
		size_t page = start + i * step;

		fill(memory + page * WORDS, page, ++versions[page]);
	}
}

static uint64_t compare(const uint64_t *memory, const uint32_t *versions, size_t pages)
{
	uint64_t wrong = 0;

	for (size_t page = 0; page < pages; page++)
		wrong += differs(memory + page * WORDS, page, versions[page]);
	return wrong;
}

static void hold(struct desk *desk, size_t pages, size_t rate_pages)
{
	uint64_t *memory = map(pages * PAGE);
	uint32_t *versions = map((pages * sizeof(uint32_t) + PAGE - 1) & ~(PAGE - 1));
	uint64_t last_ns, backlog = 0;

	for (size_t page = 0; page < pages; page++)
		fill(memory + page * WORDS, page, 0);
	last_ns = now_ns(CLOCK_MONOTONIC);
	for (;;) {
		uint64_t asked = desk->asked;
		uint64_t now = now_ns(CLOCK_MONOTONIC);

		/* After a pause it does not make up for what it did not write. */
		backlog += (now - last_ns > 20000000 ? 20000000 : now - last_ns) * rate_pages;
		last_ns = now;
		for (; backlog >= 1000000000; backlog -= 1000000000) {
			size_t page = rnd() % pages;

			fill(memory + page * WORDS, page, ++versions[page]);
		}
		if (desk->done != asked) {
			if (desk->order == WRITE_PAGES)
				write_pages(memory, versions, pages, desk->argument);
			else if (desk->order == COMPARE)
				desk->result = compare(memory, versions, pages);
			__sync_synchronize();
			desk->done = asked;
		}
		desk->beat_ns = now_ns(CLOCK_REALTIME);
		usleep(BEAT_US);
	}
}

static void passes(size_t pages, int count)
{
	for (int pass = 0; pass < count; pass++) {
		uint64_t start_ns = now_ns(CLOCK_MONOTONIC);
		uint64_t *memory = map(pages * PAGE);

		for (size_t page = 0; page < pages; page++)
			fill(memory + page * WORDS, page, pass);
		munmap(memory, pages * PAGE);
		printf("pass %.9f\n", (now_ns(CLOCK_MONOTONIC) - start_ns) / 1e9);
		fflush(stdout);
	}
}

int main(int count, char **words)
{
	const size_t mib = (1 << 20) / PAGE;

	if (count == 4 && !strcmp(words[1], "hold"))
		hold(open_desk(words[2]), strtoul(words[3], NULL, 0) * mib, 0);
	else if (count == 5 && !strcmp(words[1], "churn"))
		hold(open_desk(words[2]), strtoul(words[3], NULL, 0) * mib,
		     strtoul(words[4], NULL, 0) * mib);
	else if (count == 4 && !strcmp(words[1], "passes"))
		passes(strtoul(words[2], NULL, 0) * mib, atoi(words[3]));
	else
		fprintf(stderr, "usage: load hold FILE MIB | churn FILE MIB RATE | passes MIB COUNT\n");
	return count < 4;
}
