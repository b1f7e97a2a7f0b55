/*
 * POSIX message queues and adjustments of System V semaphores (SEM_UNDO). Says "ready", waits until a
 * file "go" appears in its directory, and checks all of it. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char name[64], removed_name[64];
static mqd_t full, only_read, removed, waited, notified, silent;
static int events, set, child;
static pthread_t receiver;
static volatile int started;

static void operate(int semaphore, int by, int flags)
{
	struct sembuf operation = { semaphore, by, flags };

	CHECK(semop(set, &operation, 1) == 0);
}

/* Blocked all the time. */
static void *receive(void *unused)
{
	char text[16];
	unsigned priority;

	(void)unused;
	started = 1;
	CHECK(mq_receive(waited, text, sizeof(text), &priority) == 6 && !strcmp(text, "woken"));
	CHECK(priority == 9);
	return NULL;
}

static void make_queues(void)
{
	struct mq_attr small = { .mq_maxmsg = 5, .mq_msgsize = 16 };
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 };

	snprintf(name, sizeof(name), "/dormouse-test-%d", getpid());
	full = mq_open(name, O_CREAT | O_EXCL | O_WRONLY | O_NONBLOCK, 0640, &small);
	only_read = mq_open(name, O_RDONLY);
	CHECK(full >= 0 && only_read >= 0);
	CHECK(mq_send(full, "low 1", 6, 0) == 0 && mq_send(full, "high 1", 7, 32767) == 0);
	CHECK(mq_send(full, "low 2", 6, 0) == 0 && mq_send(full, "", 0, 4) == 0);
	CHECK(mq_send(full, "high 2", 7, 32767) == 0);
	CHECK(mq_send(full, "no room", 8, 1) < 0 && errno == EAGAIN);
	events = epoll_create1(0);
	CHECK(epoll_ctl(events, EPOLL_CTL_ADD, only_read, &event) == 0);

	snprintf(removed_name, sizeof(removed_name), "/dormouse-test-%d-removed", getpid());
	removed = mq_open(removed_name, O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
	CHECK(removed >= 0 && mq_unlink(removed_name) == 0);
	CHECK(mq_send(removed, "nobody finds it", 16, 2) == 0);
	/* Registered, one of them while it has a message. */
	struct sigevent by_signal = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3 };
	struct sigevent by_nothing = { .sigev_notify = SIGEV_NONE };
	by_signal.sigev_value.sival_ptr = (void *)0x123456789abcdef0;
	notified = mq_open(removed_name, O_CREAT | O_EXCL | O_RDWR, 0600, &small);
	CHECK(notified >= 0 && mq_unlink(removed_name) == 0);
	CHECK(mq_notify(notified, &by_signal) == 0);
	silent = mq_open(removed_name, O_CREAT | O_EXCL | O_RDWR, 0600, &small);
	CHECK(silent >= 0 && mq_unlink(removed_name) == 0);
	CHECK(mq_send(silent, "before", 7, 1) == 0 && mq_notify(silent, &by_nothing) == 0);
	waited = mq_open(removed_name, O_CREAT | O_EXCL | O_RDWR, 0600, &small);
	CHECK(waited >= 0);
	CHECK(pthread_create(&receiver, NULL, receive, NULL) == 0);
	while (!started)
		usleep(1000);
}

static void check_notifications(void)
{
	struct sigevent again = { .sigev_notify = SIGEV_NONE };
	struct timespec soon = { 10, 0 }, now = { 0, 0 };
	char text[16];
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(sigtimedwait(&set, &info, &now) < 0 && errno == EAGAIN);
	/* They are still registered. */
	CHECK(mq_notify(notified, &again) < 0 && errno == EBUSY);
	CHECK(mq_notify(silent, &again) < 0 && errno == EBUSY);
	CHECK(mq_send(notified, "wakes", 6, 5) == 0);
	CHECK(sigtimedwait(&set, &info, &soon) == SIGRTMIN + 3 && info.si_code == SI_MESGQ);
	CHECK(info.si_value.sival_ptr == (void *)0x123456789abcdef0 && info.si_pid == getpid());
	CHECK(mq_receive(notified, text, 16, NULL) == 6 && !strcmp(text, "wakes"));
	/* Once. */
	CHECK(mq_notify(notified, &again) == 0);
	CHECK(mq_receive(silent, text, 16, NULL) == 7 && !strcmp(text, "before"));
}

static void check_queues(void)
{
	static const char *const texts[] = { "high 1", "high 2", "", "low 1", "low 2" };
	static const unsigned priorities[] = { 32767, 32767, 4, 0, 0 };
	struct epoll_event event;
	struct mq_attr has;
	struct stat stat;
	char text[8192];
	unsigned priority;

	CHECK(fstat(full, &stat) == 0 && (stat.st_mode & 0777) == 0640 && stat.st_nlink == 1);
	CHECK(mq_getattr(full, &has) == 0 && has.mq_flags == O_NONBLOCK);
	CHECK(mq_getattr(only_read, &has) == 0 && has.mq_flags == 0);
	CHECK(has.mq_maxmsg == 5 && has.mq_msgsize == 16 && has.mq_curmsgs == 5);
	CHECK(mq_send(full, "no room", 8, 1) < 0 && errno == EAGAIN);
	CHECK(mq_send(only_read, "x", 1, 1) < 0 && errno == EBADF);
	CHECK(mq_receive(full, text, 16, NULL) < 0 && errno == EBADF);
	CHECK(epoll_wait(events, &event, 1, 0) == 1 && event.data.u64 == 77);
	for (int i = 0; i < 5; i++) {
		ssize_t got = mq_receive(only_read, text, sizeof(text), &priority);
		CHECK(got == (*texts[i] ? (ssize_t)strlen(texts[i]) + 1 : 0));
		CHECK(priority == priorities[i] && (got == 0 || !strcmp(text, texts[i])));
	}
	CHECK(epoll_wait(events, &event, 1, 0) == 0);
	/* The name leads to the same queue. */
	mqd_t again = mq_open(name, O_RDWR);
	CHECK(again >= 0 && mq_send(again, "named", 6, 0) == 0);
	CHECK(mq_receive(only_read, text, sizeof(text), NULL) == 6 && !strcmp(text, "named"));
	CHECK(mq_unlink(name) == 0);

	CHECK(fstat(removed, &stat) == 0 && stat.st_nlink == 0);
	CHECK(mq_receive(removed, text, sizeof(text), &priority) == 16 && priority == 2);
	CHECK(!strcmp(text, "nobody finds it"));
	CHECK(mq_getattr(waited, &has) == 0 && has.mq_curmsgs == 0);
	CHECK(mq_send(waited, "woken", 6, 9) == 0);
	CHECK(pthread_join(receiver, NULL) == 0);
	CHECK(mq_unlink(removed_name) == 0);
}

/* Semaphores: 0 and 1 are adjusted, 2 is as high as it can be and is adjusted, 3 is not. */
static void make_adjustments(void)
{
	unsigned short values[4] = { 10, 0, 32767, 6 };

	set = semget(IPC_PRIVATE, 4, 0600);
	CHECK(set >= 0 && semctl(set, 0, SETALL, values) == 0);
	operate(0, -4, SEM_UNDO);
	operate(1, 3, SEM_UNDO);
	operate(2, -32767, SEM_UNDO);
	operate(2, 32767, 0);
	operate(3, -1, 0);
	int started[2];
	CHECK(pipe(started) == 0);
	child = fork();
	if (child == 0) {
		/* It does not inherit those of its parent. */
		operate(0, -2, SEM_UNDO);
		CHECK(write(started[1], "", 1) == 1);
		while (access("go", F_OK))
			usleep(10000);
		/* The parent looks meanwhile. */
		while (access("gone", F_OK))
			usleep(10000);
		_exit(failures);
	}
	char byte;
	CHECK(read(started[0], &byte, 1) == 1);
	close(started[0]);
	close(started[1]);
}

static void check_values(int a, int b, int c, int d)
{
	unsigned short values[4];

	CHECK(semctl(set, 0, GETALL, values) == 0);
	CHECK(values[0] == a && values[1] == b && values[2] == c && values[3] == d);
}

static void check_adjustments(void)
{
	int status;

	check_values(4, 3, 32767, 5);
	/* The end of the child gives back what it took, and no more. */
	close(open("gone", O_CREAT | O_WRONLY, 0600));
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	check_values(6, 3, 32767, 5);
	/* The parent's are at their limit: 32767 was taken. */
	struct sembuf more = { 2, -1, SEM_UNDO | IPC_NOWAIT };
	CHECK(semop(set, &more, 1) < 0 && errno == ERANGE);
	operate(2, -32767, 0);
	/* A process that shares them, and is the last to end, gives all of it back. */
	fflush(stdout);
	int parent = getpid(), watcher = fork();
	if (watcher == 0) {
		while (getppid() == parent)
			usleep(10000);
		check_values(10, 0, 32767, 5);
		FILE *result = fopen("result.new", "w");
		fprintf(result, "%d differences at the end\n", failures);
		fclose(result);
		semctl(set, 0, IPC_RMID);
		rename("result.new", "result");
		_exit(0);
	}
}

int main(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	make_queues();
	make_adjustments();
	printf("ready\n");
	fflush(stdout);
	while (access("go", F_OK))
		usleep(10000);
	check_notifications();
	check_queues();
	check_adjustments();
	return failures;
}
