/*
 * Eight threads, each in another kind of interruptible wait: waits [seconds [thread that only waits]].
 * A wait that ends early or with an error that the program should never see is reported on standard
 * output, and is the exit code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

static int seconds;
static int failed;
static long left_out;

static void check(const char *what, int result, int wanted, double started)
{
	if (result != wanted || now() - started < seconds * 0.95) {
		printf("%s: result %d, errno %d, after %.3f s\n", what, result, errno,
		       now() - started);
		failed = 1;
	}
}

static void *wait_in(void *argument)
{
	struct timespec ts = { .tv_sec = seconds };
	struct timeval tv = { .tv_sec = seconds };
	double started = now();
	int pipes[2], word = 0, event;
	struct pollfd pfd = { .events = POLLIN };
	struct epoll_event ev;
	char byte;

	if (pipe(pipes))
		abort();
	pfd.fd = pipes[0];
	switch ((long)argument == left_out ? 8 : (long)argument) {
	case 0:
		check("nanosleep", nanosleep(&ts, NULL), 0, started);
		break;
	case 1:
		check("poll", poll(&pfd, 1, seconds * 1000), 0, started);
		break;
	case 2:
		check("ppoll", ppoll(&pfd, 1, &ts, NULL), 0, started);
		break;
	case 3:
		check("select", select(0, NULL, NULL, NULL, &tv), 0, started);
		break;
	case 4:
		check("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 0, &ts, NULL, 0), -1,
		      started);
		if (errno != ETIMEDOUT) {
			printf("futex: errno %d\n", errno);
			failed = 1;
		}
		break;
	case 5:
		event = epoll_create1(0);
		started = now();
		check("epoll_wait", epoll_wait(event, &ev, 1, seconds * 1000), 0, started);
		break;
	case 6:
		if (!fork()) {
			sleep(seconds);
			if (write(pipes[1], "x", 1) != 1)
				_exit(1);
			_exit(0);
		}
		check("read", read(pipes[0], &byte, 1), 1, started);
		break;
	default:
		while (now() - started < seconds)
			;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];

	seconds = argc > 1 ? atoi(argv[1]) : 1;
	left_out = argc > 2 ? atol(argv[2]) : -1;
	for (long i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, wait_in, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	return failed;
}
