/*
 * A thread whose stack lies in a huge page, above 1 MiB of data in the same one. "ok ROUND PID"
 * while the data is what it was, "DIFFERS" once it is not. More is written elsewhere, so that a
 * restore does not copy all of it at once.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = 2 << 20, DATA = HUGE / 2, MORE = 16 << 20 };

static unsigned char *stack, *more;

static unsigned char expected(size_t at)
{
	return (unsigned char)(at / 4096 * 7 + 1);
}

static int right(const unsigned char *data, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 512)
		if (data[at] != expected(at))
			return 0;
	return 1;
}

static void *body(void *unused)
{
	for (int round = 1;; round++) {
		if (right(stack, DATA) && right(more, MORE))
			printf("ok %d %d\n", round, getpid());
		else
			printf("DIFFERS %d\n", round);
		fflush(stdout);
		usleep(50000);
	}
	return unused;
}

static unsigned char *filled(unsigned char *data, size_t bytes)
{
	for (size_t at = 0; at < bytes; at++)
		data[at] = expected(at);
	return data;
}

int main(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *ground;

	ground = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ground == MAP_FAILED)
		abort();
	stack = (unsigned char *)(((uintptr_t)ground + HUGE - 1) & -(uintptr_t)HUGE);
	madvise(stack, HUGE, MADV_HUGEPAGE);
	filled(stack, DATA);
	more = filled(malloc(MORE), MORE);
	if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stack, HUGE) ||
	    pthread_create(&thread, &attributes, body, NULL))
		abort();
	pthread_join(thread, NULL);
	return 0;
}
