/*
 * A ring of io_uring with something that a restore could not give back, named by the first argument, or
 * with requests that end by themselves ("files"). Says "ready", waits until a file "go" appears in its
 * directory, and checks that the request that was under way ends as if nothing had happened. The number
 * of differences is the exit code.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "check.h"
#include "uring.h"

static struct ring ring;
static int ends[2];
static char byte;

static int is(const char *one, const char *other)
{
	return strcmp(one, other) == 0;
}

static int set_up(const char *what)
{
	unsigned int flags = 0;

	if (is(what, "sqpoll"))
		flags = IORING_SETUP_SQPOLL;
	if (is(what, "single"))
		flags = IORING_SETUP_SINGLE_ISSUER;
	if (is(what, "disabled"))
		flags = IORING_SETUP_R_DISABLED;
	return ring_make(&ring, 8, flags, 0);
}

/* What is registered with the ring. */
static void enrich(const char *what)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct iovec buffer = { page, sizeof(page) };
	struct io_uring_rsrc_update place = { .offset = -1, .data = ring.fd };
	int event = eventfd(0, 0);

	if (is(what, "registered-files"))
		CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &event, 1) == 0);
	if (is(what, "registered-buffers"))
		CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1) ==
		      0);
	if (is(what, "registered-eventfd"))
		CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &event, 1) ==
		      0);
	if (is(what, "registered-credentials"))
		CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_PERSONALITY, NULL, 0) >=
		      0);
	if (is(what, "registered-ring"))
		CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_RING_FDS, &place, 1) ==
		      1);
	if (is(what, "closed"))
		close(ring.fd);
}

static struct __kernel_timespec hour = { .tv_sec = 3600 };

/* Requests that do not end before "go". */
static int begin(const char *what)
{
	struct io_uring_sqe *entry = NULL;

	if (is(what, "poll") || is(what, "multishot")) {
		entry = ring_entry(&ring, IORING_OP_POLL_ADD, 1);
		entry->poll32_events = 1;
		entry->len = is(what, "multishot") ? IORING_POLL_ADD_MULTI : 0;
	}
	if (is(what, "read")) {
		entry = ring_entry(&ring, IORING_OP_READ, 1);
		entry->addr = (unsigned long)&byte;
		entry->len = 1;
	}
	if (is(what, "worker")) {
		/* Waits for somebody who opens it for writing. */
		CHECK(mkfifo("fifo", 0600) == 0);
		entry = ring_entry(&ring, IORING_OP_OPENAT, 1);
		entry->addr = (unsigned long)"fifo";
		entry->flags = IOSQE_ASYNC;
	}
	if (is(what, "timeout")) {
		entry = ring_entry(&ring, IORING_OP_TIMEOUT, 1);
		entry->addr = (unsigned long)&hour;
		entry->len = 1;
		entry->off = 1;
	}
	if (entry == NULL)
		return 0;
	if (!is(what, "timeout"))
		entry->fd = is(what, "worker") ? AT_FDCWD : ends[0];
	CHECK(ring_enter(&ring, 1, 0) == 1);
	return 1;
}

static void end(const char *what)
{
	if (is(what, "timeout")) {
		/* Ends with the next completion. */
		ring_entry(&ring, IORING_OP_NOP, 2);
		CHECK(ring_enter(&ring, 1, 2) == 1);
		CHECK(ring_unread(&ring) == 2);
		CHECK(ring_completion(&ring, 0)->res == 0 && ring_completion(&ring, 1)->res == 0);
		return;
	}
	if (is(what, "worker"))
		CHECK(open("fifo", O_WRONLY) >= 0);
	else
		CHECK(write(ends[1], "x", 1) == 1);
	CHECK(ring_enter(&ring, 0, 1) == 0);
	CHECK(ring_unread(&ring) == 1);
	/* A descriptor, a byte, or the event of a poll. */
	CHECK(ring_completion(&ring, 0)->user_data == 1 && ring_completion(&ring, 0)->res >= 1);
	if (ring_completion(&ring, 0)->res < 1)
		printf("result %d\n", ring_completion(&ring, 0)->res);
}

/* Writes and reads a file past the page cache without a pause: requests of the block layer. */
static void files(void)
{
	static char pages[8][4096] __attribute__((aligned(4096)));
	int file = open("data", O_RDWR | O_CREAT | O_DIRECT, 0600), rounds = 0;

	CHECK(file >= 0 && ftruncate(file, sizeof(pages)) == 0);
	printf("ready\n");
	fflush(stdout);
	while (!failures && (access("go", F_OK) || rounds < 100)) {
		for (int writes = 1; writes >= 0; writes--) {
			for (int at = 0; at < 8; at++) {
				int operation = writes ? IORING_OP_WRITE : IORING_OP_READ;
				struct io_uring_sqe *entry = ring_entry(&ring, operation, at);

				memset(pages[at], writes ? rounds + at : 0, 4096);
				entry->fd = file;
				entry->addr = (unsigned long)pages[at];
				entry->len = 4096;
				entry->off = 4096 * at;
				entry->flags = at & 1 ? IOSQE_ASYNC : 0;
			}
			CHECK(ring_enter(&ring, 8, 0) == 8);
			while (ring_unread(&ring) < 8)
				CHECK(ring_enter(&ring, 0, 8) == 0);
			for (int at = 0; at < 8; at++)
				CHECK(ring_completion(&ring, at)->res == 4096);
			ring_read(&ring, 8);
		}
		for (int at = 0; at < 8; at++)
			CHECK(pages[at][17] == (char)(rounds + at));
		rounds++;
	}
}

/* A thread waits for a completion that comes after "go": it must not notice how often it was stopped. */
static void *waiter(void *unused)
{
	CHECK(ring_enter(&ring, 0, 1) == 0);
	CHECK(ring_unread(&ring) == 1);
	return unused;
}

static void wait_in_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, waiter, NULL);
	printf("ready\n");
	fflush(stdout);
	while (access("go", F_OK))
		usleep(5000);
	ring_entry(&ring, IORING_OP_NOP, 1);
	CHECK(ring_enter(&ring, 1, 0) == 1);
	pthread_join(thread, NULL);
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	int under_way;

	CHECK(set_up(what) == 0);
	CHECK((is(what, "multishot") ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0);
	if (is(what, "files") || is(what, "wait")) {
		if (is(what, "files"))
			files();
		else
			wait_in_thread();
		fflush(stdout);
		return failures;
	}
	enrich(what);
	under_way = begin(what);
	printf("ready\n");
	fflush(stdout);
	while (access("go", F_OK))
		usleep(5000);
	if (under_way)
		end(what);
	fflush(stdout);
	return failures;
}
