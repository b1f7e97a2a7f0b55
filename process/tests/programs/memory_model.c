/*
 * memory_model [SEED [PAGES]]: maps, moves, drops, forks and grows memory at random, and PAGES
 * huge pages of hugetlbfs with it, and knows what each page must hold: a
 * shadow table has one number a page, 0 for zeros. Prints "ok N" after each comparison of
 * everything, and aborts at the first page that differs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (512 * PAGE)
#define REGIONS 24
#define MAX_PAGES 2048u
/* Regions of hugetlbfs: pages of 2 MiB, as many as the second argument says. */
#define RESERVED_REGIONS 4
#define MAX_RESERVED 16u

struct region {
	char *base;
	size_t pages;
	int huge;
	uint32_t shadow[MAX_PAGES];
};

/* A page of hugetlbfs has one mark for each of its 512 parts, too. */
_Static_assert(MAX_RESERVED / RESERVED_REGIONS * 512 <= MAX_PAGES, "room for reserved pages");

static struct region regions[REGIONS];
static uint64_t state = 88172645463325252ull;
static char *heap_start;
static size_t heap_pages;
static struct region reserved[RESERVED_REGIONS];
static size_t reserved_pages;
static uint32_t heap_shadow[MAX_PAGES];

/* What cannot fail has failed: says what and why, so that a lost mapping is not a silent end. */
#define MUST(what) must((what), #what, __LINE__)

static void must(int holds, const char *what, int line)
{
	if (holds)
		return;
	printf("FAILED line %d: %s: %s\n", line, what, strerror(errno));
	fflush(stdout);
	abort();
}

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t word_of(uint32_t mark, size_t word)
{
	return mark ? (mark * 0x9e3779b97f4a7c15ull) ^ word : 0;
}

static void fill(char *page, uint32_t mark)
{
	uint64_t *words = (uint64_t *)page;

	for (size_t i = 0; i < PAGE / 8; i++)
		words[i] = word_of(mark, i);
}

static void check(const char *page, uint32_t mark, const char *what, size_t index)
{
	const uint64_t *words = (const uint64_t *)page;

	for (size_t i = 0; i < PAGE / 8; i++) {
		if (words[i] == word_of(mark, i))
			continue;
		printf("DIFFERS %s page %zu at %p word %zu: %lx, should be %lx\n", what, index,
		       (const void *)page, i, words[i], word_of(mark, i));
		fflush(stdout);
		abort();
	}
}

static void check_region(const struct region *r)
{
	for (size_t i = 0; i < r->pages; i++)
		check(r->base + i * PAGE, r->shadow[i], "region", i);
}

static void check_all(void)
{
	for (size_t i = 0; i < REGIONS; i++)
		check_region(&regions[i]);
	for (size_t i = 0; i < RESERVED_REGIONS; i++)
		check_region(&reserved[i]);
	for (size_t i = 0; i < heap_pages; i++)
		check(heap_start + i * PAGE, heap_shadow[i], "heap", i);
}

static void map_region(struct region *r)
{
	r->huge = rnd() % 3 == 0;
	r->pages = r->huge ? 512 * (1 + rnd() % 3) : 1 + rnd() % 600;
	size_t bytes = r->pages * PAGE;
	char *at = mmap(NULL, bytes + (r->huge ? HUGE : 0), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(at != MAP_FAILED);
	r->base = at;
	if (r->huge) {
		r->base = (char *)(((uintptr_t)at + HUGE - 1) & ~(HUGE - 1));
		if (r->base > at)
			munmap(at, r->base - at);
		if (r->base < at + HUGE)
			munmap(r->base + bytes, at + HUGE - r->base);
		madvise(r->base, bytes, MADV_HUGEPAGE);
	}
	memset(r->shadow, 0, sizeof(r->shadow));
}

static void write_pages(struct region *r)
{
	size_t from = rnd() % r->pages, count = 1 + rnd() % 64;

	for (size_t i = from; i < r->pages && i < from + count; i++) {
		r->shadow[i] = (uint32_t)rnd() | 1;
		fill(r->base + i * PAGE, r->shadow[i]);
	}
}

static void map_reserved(struct region *r)
{
	size_t most = reserved_pages / RESERVED_REGIONS;

	r->pages = 512 * (1 + rnd() % most);
	r->base = mmap(NULL, r->pages * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	MUST(r->base != MAP_FAILED);
	memset(r->shadow, 0, sizeof(r->shadow));
}

static void change_reserved(void)
{
	struct region *r = &reserved[rnd() % RESERVED_REGIONS];
	size_t from;

	if (!reserved_pages)
		return;
	switch (rnd() % 8) {
	case 0:
		munmap(r->base, r->pages * PAGE);
		map_reserved(r);
		break;
	case 1:
		from = rnd() % (r->pages / 512) * 512;
		MUST(!madvise(r->base + from * PAGE, HUGE, MADV_DONTNEED));
		memset(&r->shadow[from], 0, 512 * sizeof(r->shadow[0]));
		break;
	default:
		write_pages(r);
	}
}

static void drop_pages(struct region *r)
{
	size_t from = rnd() % r->pages, count = 1 + rnd() % 100;

	if (r->huge && rnd() % 2) {
		from = from / 512 * 512;
		count = 512;
	}
	if (from + count > r->pages)
		count = r->pages - from;
	MUST(!madvise(r->base + from * PAGE, count * PAGE, MADV_DONTNEED));
	memset(&r->shadow[from], 0, count * sizeof(r->shadow[0]));
}

static void move_region(struct region *r)
{
	size_t pages = 1 + rnd() % (r->huge ? 1500 : 700);
	char *at = mremap(r->base, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);

	MUST(at != MAP_FAILED);
	if (pages > r->pages)
		memset(&r->shadow[r->pages], 0, (pages - r->pages) * sizeof(r->shadow[0]));
	r->base = at;
	r->pages = pages;
	if (rnd() % 2) {
		/* To a place of its own, so that it really moves. */
		char *to = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		at = mremap(r->base, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		MUST(at != MAP_FAILED);
		r->base = at;
	}
	r->huge = r->huge && ((uintptr_t)r->base & (HUGE - 1)) == 0 && pages % 512 == 0;
}

static void fork_once(void)
{
	pid_t child = fork();

	MUST(child >= 0);
	if (child == 0) {
		check_all();
		for (size_t i = 0; i < 4; i++)
			write_pages(&regions[rnd() % REGIONS]);
		check_all();
		_exit(0);
	}
	int status;

	if (waitpid(child, &status, 0) != child || status) {
		printf("DIFFERS in a child: status %x\n", status);
		fflush(stdout);
		abort();
	}
}

static void change_heap(void)
{
	size_t pages = rnd() % 500;

	MUST(!brk(heap_start + pages * PAGE));
	if (pages > heap_pages)
		memset(&heap_shadow[heap_pages], 0, (pages - heap_pages) * sizeof(heap_shadow[0]));
	heap_pages = pages;
	for (size_t i = 0; pages && i < 10; i++) {
		size_t page = rnd() % pages;

		heap_shadow[page] = (uint32_t)rnd() | 1;
		fill(heap_start + page * PAGE, heap_shadow[page]);
	}
}

static void protect(struct region *r)
{
	MUST(!mprotect(r->base, r->pages * PAGE, PROT_NONE));
	usleep(500);
	MUST(!mprotect(r->base, r->pages * PAGE, PROT_READ | PROT_WRITE));
	check_region(r);
}

static void step(void)
{
	struct region *r = &regions[rnd() % REGIONS];

	switch (rnd() % 40) {
	case 0:
		munmap(r->base, r->pages * PAGE);
		map_region(r);
		break;
	case 1:
	case 2:
		drop_pages(r);
		break;
	case 3:
		move_region(r);
		break;
	case 4:
		change_heap();
		break;
	case 5:
		protect(r);
		break;
	case 6:
		check_region(r);
		break;
	case 7:
		change_reserved();
		break;
	default:
		write_pages(r);
	}
}

int main(int argc, char **argv)
{
	static char output[1 << 16];

	if (argc > 1)
		state ^= strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ull;
	if (argc > 2)
		reserved_pages = strtoul(argv[2], NULL, 10);
	if (reserved_pages > MAX_RESERVED)
		reserved_pages = MAX_RESERVED;
	setvbuf(stdout, output, _IOLBF, sizeof(output));
	heap_start = (char *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
	MUST(!brk(heap_start));
	for (size_t i = 0; i < REGIONS; i++)
		map_region(&regions[i]);
	if (reserved_pages) {
		for (size_t i = 0; i < RESERVED_REGIONS; i++)
			map_reserved(&reserved[i]);
		printf("huge pages\n");
	}
	for (unsigned long round = 1;; round++) {
		for (size_t i = 0; i < 200; i++)
			step();
		if (round % 8 == 0)
			fork_once();
		check_all();
		printf("ok %lu %d\n", round, getpid());
		usleep(1000);
	}
}
