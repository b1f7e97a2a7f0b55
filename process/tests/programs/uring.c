/*
 * Rings of io_uring in which no request is under way: of all sizes and layouts, with entries that were
 * not submitted and completions that were not read, whose counters differ, shared with a child, and
 * watched by epoll. Says "ready", waits until a file "go" appears in its directory, and checks that
 * each is as it was and works. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "check.h"
#include "uring.h"

#define KINDS 6
/* Not a multiple of the sizes: the queues begin somewhere. */
#define PASSES 1003

static const struct {
	unsigned int entries, flags, completions;
} kinds[KINDS] = {
	{ 8, 0, 0 },
	{ 4, IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 64 },
	{ 8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32, 0 },
	{ 2, IORING_SETUP_NO_SQARRAY, 4 },
	{ 512, IORING_SETUP_CLAMP, 4096 },
	{ 1, 0, 1 },
};

static struct ring rings[KINDS];
static unsigned int heads[KINDS][4], unread[KINDS];
static int file;

static void counters(struct ring *ring, unsigned int *into)
{
	into[0] = SQ_HEAD(ring);
	into[1] = SQ_TAIL(ring);
	into[2] = CQ_HEAD(ring);
	into[3] = CQ_TAIL(ring);
}

static void nops(struct ring *ring, int passes)
{
	for (int i = 0; i < passes; i++) {
		ring_entry(ring, IORING_OP_NOP, i);
		CHECK(ring_do(ring) == 0);
	}
}

static void make(int kind)
{
	struct ring *ring = &rings[kind];

	CHECK(ring_make(ring, kinds[kind].entries, kinds[kind].flags, kinds[kind].completions) == 0);
	nops(ring, PASSES + kind);
	/* As many as fit are left unread, but for one place; then one entry is not submitted. */
	unread[kind] = ring->params.cq_entries - (ring->params.cq_entries > 1);
	if (unread[kind] > 100)
		unread[kind] = 100;
	for (unsigned int i = 0; i < unread[kind]; i++) {
		ring_entry(ring, IORING_OP_NOP, 70000 + i);
		CHECK(ring_enter(ring, 1, 0) == 1);
	}
	ring_entry(ring, IORING_OP_NOP, 4711);
	counters(ring, heads[kind]);
}

static void check(int kind)
{
	struct ring *ring = &rings[kind];
	unsigned int now[4], more = ring->params.cq_entries - unread[kind];

	counters(ring, now);
	CHECK(memcmp(now, heads[kind], sizeof(now)) == 0);
	CHECK(ring_unread(ring) == unread[kind]);
	/* Fills the queue: what is unread must not be overwritten. */
	if (more > 0) {
		CHECK(ring_enter(ring, 1, 0) == 1);
		for (unsigned int i = 1; i < more; i++) {
			ring_entry(ring, IORING_OP_NOP, 80000 + i);
			CHECK(ring_enter(ring, 1, 0) == 1);
		}
	}
	CHECK(ring_unread(ring) == ring->params.cq_entries);
	for (unsigned int i = 0; i < unread[kind]; i++)
		CHECK(ring_completion(ring, i)->user_data == 70000 + i);
	if (more > 0)
		CHECK(ring_completion(ring, unread[kind])->user_data == 4711);
	ring_read(ring, ring->params.cq_entries);
	if (more == 0) {
		CHECK(ring_do(ring) == 0);
	}
	nops(ring, 3 * ring->params.cq_entries + 1);
}

/* Entries without a completion: afterwards no request waits for others. */
static struct ring silent;

static void make_silent(void)
{
	CHECK(ring_make(&silent, 8, 0, 0) == 0);
	for (int i = 0; i < 7; i++) {
		ring_entry(&silent, IORING_OP_NOP, i)->flags = IOSQE_CQE_SKIP_SUCCESS;
		CHECK(ring_enter(&silent, 1, 0) == 1);
	}
	nops(&silent, 5);
	CHECK(SQ_HEAD(&silent) == 12 && CQ_TAIL(&silent) == 5);
}

static void check_silent(void)
{
	CHECK(SQ_HEAD(&silent) == 12 && CQ_TAIL(&silent) == 5);
	ring_entry(&silent, IORING_OP_NOP, 9)->flags = IOSQE_IO_DRAIN;
	CHECK(ring_do(&silent) == -EOPNOTSUPP);
	nops(&silent, 20);
}

/* Completions without an entry: of a poll that reports more than once, and was cancelled. */
static struct ring many;

static void make_many(void)
{
	unsigned long word = 1;
	int event = eventfd(0, 0);
	struct io_uring_sqe *entry;

	CHECK(ring_make(&many, 8, 0, 64) == 0);
	entry = ring_entry(&many, IORING_OP_POLL_ADD, 1);
	entry->fd = event;
	entry->poll32_events = 1;
	entry->len = IORING_POLL_ADD_MULTI;
	CHECK(ring_enter(&many, 1, 0) == 1);
	for (int i = 0; i < 20; i++) {
		CHECK(write(event, &word, 8) == 8);
		CHECK(ring_enter(&many, 0, 1) == 0);
		CHECK(ring_completion(&many, 0)->user_data == 1);
		ring_read(&many, 1);
	}
	ring_entry(&many, IORING_OP_POLL_REMOVE, 2)->addr = 1;
	CHECK(ring_enter(&many, 1, 2) == 1);
	ring_read(&many, 2);
	CHECK(SQ_HEAD(&many) == 2 && CQ_TAIL(&many) == 22);
	close(event);
}

static void check_many(void)
{
	CHECK(SQ_HEAD(&many) == 2 && CQ_TAIL(&many) == 22);
	/* Here a request may wait for others. */
	ring_entry(&many, IORING_OP_NOP, 9)->flags = IOSQE_IO_DRAIN;
	CHECK(ring_do(&many) == 0);
	nops(&many, 200);
}

/* A ring that works on a file, that epoll watches, and that a child has, too. */
static struct ring work;
static int epoll, parent_tells, child_tells;
static pid_t child;

static void write_and_read(char letter, int at)
{
	struct io_uring_sqe *entry = ring_entry(&work, IORING_OP_WRITE, 1);
	char is = 0;

	entry->fd = file;
	entry->addr = (unsigned long)&letter;
	entry->len = 1;
	entry->off = at;
	CHECK(ring_do(&work) == 1);
	/* By a worker thread. */
	entry = ring_entry(&work, IORING_OP_READ, 2);
	entry->flags = IOSQE_ASYNC;
	entry->fd = file;
	entry->addr = (unsigned long)&is;
	entry->len = 1;
	entry->off = at;
	CHECK(ring_do(&work) == 1);
	CHECK(is == letter);
}

static void make_work(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 815 };
	int down[2], up[2];
	char byte;

	file = open("data", O_RDWR | O_CREAT, 0600);
	CHECK(ring_make(&work, 16, 0, 0) == 0);
	for (int i = 0; i < 20; i++)
		write_and_read('a' + i, i);
	epoll = epoll_create1(0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, work.fd, &event) == 0);
	CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
	CHECK(pipe(down) == 0 && pipe(up) == 0);
	parent_tells = down[1];
	child_tells = up[0];
	fflush(stdout);
	child = fork();
	if (child == 0) {
		failures = 0;
		close(down[1]);
		if (read(down[0], &byte, 1) == 1) {
			ring_entry(&work, IORING_OP_NOP, 31);
			CHECK(ring_enter(&work, 1, 0) == 1);
			CHECK(write(up[1], "x", 1) == 1);
		}
		_exit(failures);
	}
	close(down[0]);
	close(up[1]);
}

static void check_work(void)
{
	struct epoll_event event;
	char byte;
	int status;

	for (int i = 0; i < 20; i++)
		write_and_read('A' + i, i);
	CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
	CHECK(write(parent_tells, "x", 1) == 1 && read(child_tells, &byte, 1) == 1);
	CHECK(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.u32 == 815);
	CHECK(ring_unread(&work) == 1 && ring_completion(&work, 0)->user_data == 31);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	for (int kind = 0; kind < KINDS; kind++)
		make(kind);
	make_silent();
	make_many();
	make_work();
	printf("ready\n");
	fflush(stdout);
	while (access("go", F_OK) && !failures)
		usleep(5000);
	for (int kind = 0; kind < KINDS; kind++)
		check(kind);
	check_silent();
	check_many();
	check_work();
	fflush(stdout);
	return failures;
}
