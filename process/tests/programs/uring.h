/* Rings of io_uring by system calls alone: every counter is where the kernel has it. */
#ifndef URING_H
#define URING_H

#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the headers of some distributions. */
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif

struct ring {
	int fd;
	struct io_uring_params params;
	unsigned char *queues, *entries;
};

static unsigned int *ring_word(struct ring *ring, unsigned int at)
{
	return (unsigned int *)(ring->queues + at);
}

#define SQ_HEAD(ring) (*(volatile unsigned int *)ring_word(ring, (ring)->params.sq_off.head))
#define SQ_TAIL(ring) (*(volatile unsigned int *)ring_word(ring, (ring)->params.sq_off.tail))
#define CQ_HEAD(ring) (*(volatile unsigned int *)ring_word(ring, (ring)->params.cq_off.head))
#define CQ_TAIL(ring) (*(volatile unsigned int *)ring_word(ring, (ring)->params.cq_off.tail))

static int ring_make(struct ring *ring, unsigned int entries, unsigned int flags,
		     unsigned int completions)
{
	struct io_uring_params *params = &ring->params;
	size_t bytes;

	memset(ring, 0, sizeof(*ring));
	params->flags = flags | (completions ? IORING_SETUP_CQSIZE : 0);
	params->cq_entries = completions;
	ring->fd = syscall(SYS_io_uring_setup, entries, params);
	if (ring->fd < 0)
		return -1;
	bytes = params->cq_off.cqes + (params->cq_entries * 16 << !!(flags & IORING_SETUP_CQE32));
	if (bytes < params->sq_off.array + params->sq_entries * 4)
		bytes = params->sq_off.array + params->sq_entries * 4;
	ring->queues = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	bytes = params->sq_entries * 64 << !!(flags & IORING_SETUP_SQE128);
	ring->entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd,
			     IORING_OFF_SQES);
	return ring->queues == MAP_FAILED || ring->entries == MAP_FAILED ? -1 : 0;
}

/* The next entry, cleared. It is submitted by the next call of ring_enter. */
static struct io_uring_sqe *ring_entry(struct ring *ring, int operation, unsigned long word)
{
	unsigned int place = SQ_TAIL(ring) & (ring->params.sq_entries - 1);
	int wide = !!(ring->params.flags & IORING_SETUP_SQE128);
	struct io_uring_sqe *entry = (void *)(ring->entries + (place * 64 << wide));

	memset(entry, 0, sizeof(*entry) << wide);
	entry->opcode = operation;
	entry->user_data = word;
	entry->fd = -1;
	if (!(ring->params.flags & IORING_SETUP_NO_SQARRAY))
		*ring_word(ring, ring->params.sq_off.array + place * 4) = place;
	__atomic_store_n(ring_word(ring, ring->params.sq_off.tail), SQ_TAIL(ring) + 1,
			 __ATOMIC_RELEASE);
	return entry;
}

static int ring_enter(struct ring *ring, unsigned int count, unsigned int wait)
{
	return syscall(SYS_io_uring_enter, ring->fd, count, wait,
		       wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

/* The completion at a place of the queue, counted from the first that was not read. */
static struct io_uring_cqe *ring_completion(struct ring *ring, unsigned int at)
{
	unsigned int place = (CQ_HEAD(ring) + at) & (ring->params.cq_entries - 1);
	int wide = !!(ring->params.flags & IORING_SETUP_CQE32);

	return (void *)(ring->queues + ring->params.cq_off.cqes + (place * 16 << wide));
}

static unsigned int ring_unread(struct ring *ring)
{
	return __atomic_load_n(ring_word(ring, ring->params.cq_off.tail), __ATOMIC_ACQUIRE) -
	       CQ_HEAD(ring);
}

static void ring_read(struct ring *ring, unsigned int count)
{
	__atomic_store_n(ring_word(ring, ring->params.cq_off.head), CQ_HEAD(ring) + count,
			 __ATOMIC_RELEASE);
}

/* One request, submitted and waited for; its result. */
static __attribute__((unused)) int ring_do(struct ring *ring)
{
	int result;

	if (ring_enter(ring, 1, 1) != 1)
		return -1000;
	result = ring_completion(ring, 0)->res;
	ring_read(ring, 1);
	return result;
}

#endif
