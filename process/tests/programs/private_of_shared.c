/*
 * Private mappings of memory that is itself shared: of a memfd, of a file of tmpfs with and without
 * a name, and of shared anonymous memory (opened through map_files). Each object also has a shared
 * mapping. Says "ready", waits until a file "go" appears in its directory, and compares every page
 * of every mapping with what it must hold. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 8UL
#define OBJECTS 6
#define VIEWS 6

/* The parts of an object that are mapped privately: first page and number of pages. */
static const struct {
	unsigned long page, pages;
} views[VIEWS] = { { 0, PAGES }, { 0, 1 }, { 0, PAGES }, { 3, 4 }, { 7, 1 }, { 0, PAGES } };

static char *shared[OBJECTS], *private[OBJECTS][VIEWS];
static const char *names[OBJECTS] = { "memfd", "named file of tmpfs", "unlinked file of tmpfs",
				      "shared anonymous memory", "closed memfd",
				      "memfd without a shared mapping" };

/* Pages 2 and 5 of an object are never written to: they read as zeros. */
static char object_byte(int object, unsigned long page)
{
	return page == 2 || page == 5 ? 0 : (char)(1 + object * 16 + page);
}

/* Which pages of a private view are private copies. The first page, others, all, or none. */
static int is_private_copy(int view, unsigned long page)
{
	switch (view) {
	case 0:
		return page == 0;
	case 1:
		return 1;
	case 2:
		return page == 1 || page == 2 || page == 7;
	case 3:
		return page != 4;
	case 4:
		return 0;
	default:
		return 0;
	}
}

static char private_byte(int object, int view, unsigned long page)
{
	return (char)(0x80 | (object * 31 + view * 7 + page * 3));
}

static int differs(const char *at, char first, char last)
{
	return at[0] != first || at[PAGE / 2] != last || at[PAGE - 1] != last;
}

static void *map(int fd, unsigned long page, unsigned long pages, int kind)
{
	void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, kind, fd, page * PAGE);

	if (at == MAP_FAILED) {
		perror("mmap");
		exit(100);
	}
	return at;
}

static int object(int number, const char *directory)
{
	char path[256];
	int fd = -1;

	switch (number) {
	case 1:
	case 2:
		snprintf(path, sizeof(path), "%s/dormouse-private-%d-%d", directory, getpid(), number);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (number == 2)
			unlink(path);
		break;
	case 3:
		shared[number] = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx",
			 (unsigned long)shared[number],
			 (unsigned long)shared[number] + PAGES * PAGE);
		fd = open(path, O_RDWR);
		break;
	default:
		fd = memfd_create("private", 0);
	}
	if (fd < 0) {
		perror(path);
		exit(101);
	}
	if (number != 3 && ftruncate(fd, PAGES * PAGE)) {
		perror("ftruncate");
		exit(102);
	}
	return fd;
}

int main(int count, char **arguments)
{
	const char *directory = count > 1 ? arguments[1] : "/dev/shm";
	char path[256];
	int failures = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	for (int i = 0; i < OBJECTS; i++) {
		int fd = object(i, directory);

		if (!shared[i])
			shared[i] = map(fd, 0, PAGES, MAP_SHARED);
		for (unsigned long page = 0; page < PAGES; page++)
			if (object_byte(i, page))
				memset(shared[i] + page * PAGE, object_byte(i, page), PAGE);
		for (int v = 0; v < VIEWS; v++) {
			private[i][v] = map(fd, views[v].page, views[v].pages, MAP_PRIVATE);
			for (unsigned long p = 0; p < views[v].pages; p++) {
				unsigned long page = views[v].page + p;

				if (is_private_copy(v, page))
					memset(private[i][v] + p * PAGE, private_byte(i, v, page), PAGE);
			}
		}
		/* The last view has one word of its own in its first page, and may only be read. */
		private[i][VIEWS - 1][0] = 'w';
		mprotect(private[i][VIEWS - 1], PAGES * PAGE, PROT_READ);
		if (i == 4 || i == 5)
			close(fd);
		if (i == 5) {
			munmap(shared[i], PAGES * PAGE);
			shared[i] = NULL;
		}
	}

	printf("ready\n");
	while (access("go", F_OK))
		usleep(10000);

	for (int i = 0; i < OBJECTS; i++) {
		for (unsigned long page = 0; shared[i] && page < PAGES; page++) {
			char wanted = object_byte(i, page);

			if (differs(shared[i] + page * PAGE, wanted, wanted)) {
				printf("%s: shared page %lu differs\n", names[i], page);
				failures++;
			}
		}
		for (int v = 0; v < VIEWS; v++) {
			for (unsigned long p = 0; p < views[v].pages; p++) {
				unsigned long page = views[v].page + p;
				char wanted = is_private_copy(v, page) ? private_byte(i, v, page) :
									 object_byte(i, page);
				char first = v == VIEWS - 1 && page == 0 ? 'w' : wanted;
				const char *at = private[i][v] + p * PAGE;

				if (differs(at, first, wanted)) {
					printf("%s: view %d, page %lu: %#x %#x %#x\n", names[i], v, page,
					       at[0] & 0xff, at[PAGE / 2] & 0xff, at[PAGE - 1] & 0xff);
					failures++;
				}
			}
		}
		/* Shared pages that the private mapping has no copy of are still seen through it. */
		if (shared[i]) {
			shared[i][6 * PAGE] = 'n';
			if (private[i][0][6 * PAGE] != 'n') {
				printf("%s: a page without a copy is not the object's\n", names[i]);
				failures++;
			}
		}
	}
	snprintf(path, sizeof(path), "%s/dormouse-private-%d-1", directory, getpid());
	unlink(path);
	printf("%d failures\n", failures);
	return failures > 99 ? 99 : failures;
}
