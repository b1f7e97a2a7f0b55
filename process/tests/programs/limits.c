/*
 * Waits with a time limit that the kernel does not restart after a stop, each in a thread of its own,
 * several times in a row from the same place. The exit code is 1 if one ends before its limit, or
 * otherwise than by it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define LIMIT_MS 400
#define TIMES 3
#define KINDS 8

static const struct timespec limit = { .tv_nsec = LIMIT_MS * 1000000L };
static int poller, reader, writer[2], listener, semaphore;
static aio_context_t context;
static int failed;

static long wait_once(long kind)
{
	struct sembuf down = { .sem_op = -1 };
	struct epoll_event event;
	struct io_event done;
	char bytes[65536] = "";
	sigset_t none;

	switch (kind) {
	case 0:
		return epoll_wait(poller, &event, 1, LIMIT_MS);
	case 1:
		return syscall(SYS_epoll_pwait2, poller, &event, 1, &limit, NULL, 0);
	case 2:
		sigemptyset(&none);
		sigaddset(&none, SIGUSR1);
		return sigtimedwait(&none, NULL, &limit);
	case 3:
		return recv(reader, bytes, sizeof(bytes), 0);
	case 4:
		return accept(listener, NULL, NULL);
	case 5:
		return semtimedop(semaphore, &down, 1, &limit);
	case 6:
		return syscall(SYS_io_getevents, context, 1, 1, &done, &limit);
	default:
		return send(writer[0], bytes, sizeof(bytes), 0);
	}
}

static void *wait_often(void *argument)
{
	long kind = (long)argument, result;
	int is_zero = kind < 2 || kind == 6;
	double started;

	for (int i = 0; i < TIMES; i++) {
		started = now();
		result = wait_once(kind);
		if (now() - started < LIMIT_MS * 0.95e-3 || result != (is_zero ? 0 : -1) ||
		    (!is_zero && errno != EAGAIN)) {
			printf("kind %ld: result %ld, errno %d after %.3f s\n", kind, result, errno,
			       now() - started);
			failed = 1;
		}
	}
	return NULL;
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval tv = { .tv_usec = LIMIT_MS * 1000 };
	pthread_t threads[KINDS];
	char bytes[65536] = "";
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	poller = epoll_create1(0);
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	reader = socket(AF_INET, SOCK_DGRAM, 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (poller < 0 || semaphore < 0 || reader < 0 || listener < 0 ||
	    bind(reader, (void *)&any, sizeof(any)) || bind(listener, (void *)&any, sizeof(any)) ||
	    listen(listener, 1) || socketpair(AF_UNIX, SOCK_STREAM, 0, writer) ||
	    syscall(SYS_io_setup, 1, &context)) {
		perror("limits");
		return 2;
	}
	setsockopt(reader, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	while (send(writer[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	setsockopt(writer[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	for (long i = 0; i < KINDS; i++)
		pthread_create(&threads[i], NULL, wait_often, (void *)i);
	for (int i = 0; i < KINDS; i++)
		pthread_join(threads[i], NULL);
	semctl(semaphore, 0, IPC_RMID);
	return failed;
}
