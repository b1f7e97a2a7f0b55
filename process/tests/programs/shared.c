/*
 * Holds what several processes share or what the kernel counts by itself: tables of descriptors
 * (CLONE_FILES), of a child and of its child, and a copy of one; an asynchronous I/O ring with unread
 * events that goes around its end; sockets with addresses in each other's queues; a pair of sockets
 * with a path that was removed; descriptors of namespaces; the directory of a process that has ended;
 * a filter of system calls whose program has given up the right to install it. Says "ready", waits
 * until a file "go" appears in its directory, and checks all of it. The number of differences is the
 * exit code.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "confined.h"

static int home;
static char place[64];

/* What all processes see: a step, and a descriptor that one of them has opened. */
static struct common {
	volatile int step, opened, faults;
} *common;

static void wait_for(int step)
{
	while (common->step < step)
		poll(NULL, 0, 5);
}

/* Tables of descriptors. */
static pid_t sharer;
static char stacks[3][65536];

static int has(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static int below(void *unused)
{
	(void)unused;
	wait_for(1);
	common->opened = open("/dev/null", O_RDONLY);
	wait_for(2);
	_exit(!has(common->opened));
}

static int copied(void *unused)
{
	(void)unused;
	wait_for(2);
	_exit(has(common->opened));
}

static int share(void *unused)
{
	(void)unused;
	pid_t own = clone(below, stacks[1] + sizeof(stacks[1]), CLONE_FILES | SIGCHLD, NULL);
	pid_t other = clone(copied, stacks[2] + sizeof(stacks[2]), SIGCHLD, NULL);
	int status, faults = 0;

	common->faults = -1;
	wait_for(2);
	faults += waitpid(own, &status, 0) != own || status;
	faults += waitpid(other, &status, 0) != other || status;
	faults += !has(common->opened);
	common->faults = faults;
	_exit(0);
}

static void make_sharers(void)
{
	sharer = clone(share, stacks[0] + sizeof(stacks[0]), CLONE_FILES | SIGCHLD, NULL);
	CHECK(sharer > 0);
	while (!common->faults)
		poll(NULL, 0, 5);
}

static void check_sharers(void)
{
	common->step = 1;
	while (common->opened <= 0)
		poll(NULL, 0, 5);
	CHECK(has(common->opened));
	common->step = 2;
	CHECK(waitpid(sharer, NULL, 0) == sharer && common->faults == 0);
	CHECK(close(common->opened) == 0);
}

/* Asynchronous I/O. */
enum { UNREAD = 5 };
static aio_context_t ring;
static struct header { unsigned int id, nr, head, tail; } before;

static void submit(unsigned long word)
{
	static int null = -1;
	static char byte;
	struct iocb request = { .aio_data = word, .aio_lio_opcode = IOCB_CMD_PWRITE,
				.aio_buf = (unsigned long)&byte, .aio_nbytes = 1 };
	struct iocb *all = &request;

	if (null < 0)
		null = open("/dev/null", O_WRONLY);
	request.aio_fildes = null;
	CHECK(syscall(SYS_io_submit, ring, 1, &all) == 1);
}

static unsigned long next(void)
{
	struct timespec at_once = { 0 };
	struct io_event event = { 0 };

	if (syscall(SYS_io_getevents, ring, 1, 1, &event, &at_once) != 1)
		return 0;
	CHECK(event.res == 1);
	return event.data;
}

static void make_ring(void)
{
	CHECK(syscall(SYS_io_setup, 20, &ring) == 0);
	volatile struct header *header = (void *)ring;
	unsigned int rounds = header->nr - 2;

	for (unsigned int at = 0; at < rounds; at++) {
		submit(1);
		CHECK(next() == 1);
	}
	for (int at = 0; at < UNREAD; at++)
		submit(100 + at);
	before = *header;
	CHECK(before.head > before.tail);
}

static void check_ring(void)
{
	volatile struct header *header = (void *)ring;

	CHECK(header->nr == before.nr && header->head == before.head && header->tail == before.tail);
	submit(200);
	for (int at = 0; at < UNREAD; at++)
		CHECK(next() == 100ul + at);
	CHECK(next() == 200 && next() == 0);
	CHECK(syscall(SYS_io_destroy, ring) == 0);
}

/* Sockets. */
static int named[2], removed[2];

static void pass(int fd, int descriptor)
{
	char control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec vector = { "x", 1 };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
				 .msg_controllen = sizeof(control) };
	struct cmsghdr *first = CMSG_FIRSTHDR(&header);

	first->cmsg_level = SOL_SOCKET;
	first->cmsg_type = SCM_RIGHTS;
	first->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(first), &descriptor, sizeof(int));
	CHECK(sendmsg(fd, &header, 0) == 1);
}

/* Takes a descriptor out of a queue; the sender's address must be that of the other one. */
static int take(int fd, int sender)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct sockaddr_un from = { 0 };
	struct iovec vector = { &byte, 1 };
	struct msghdr header = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &vector,
				 .msg_iovlen = 1, .msg_control = control,
				 .msg_controllen = sizeof(control) };
	int got = -1;

	CHECK(recvmsg(fd, &header, MSG_DONTWAIT) == 1 && byte == 'x');
	CHECK(!memcmp(from.sun_path, "\0dormouse-shared-", 17));
	CHECK(from.sun_path[17] == '0' + sender);
	struct cmsghdr *first = CMSG_FIRSTHDR(&header);
	CHECK(first && first->cmsg_type == SCM_RIGHTS);
	if (first)
		memcpy(&got, CMSG_DATA(first), sizeof(int));
	return got;
}

static void make_sockets(void)
{
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, named) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, removed) == 0);
	for (int at = 0; at < 2; at++) {
		struct sockaddr_un address = { .sun_family = AF_UNIX };

		/* In the abstract name space, with the number of this process: tests run side by side. */
		snprintf(address.sun_path + 1, 60, "dormouse-shared-%d-%d", at, getpid());
		CHECK(bind(named[at], (void *)&address, sizeof(address)) == 0);
		snprintf(address.sun_path, sizeof(address.sun_path), "%s/below/socket", place);
		CHECK(mkdir("below", 0700) == 0);
		CHECK(bind(removed[at], (void *)&address, sizeof(address)) == 0);
		CHECK(unlink(address.sun_path) == 0 && rmdir("below") == 0);
	}
	for (int at = 0; at < 2; at++) {
		pass(named[at], named[0]);
		pass(named[at], named[1]);
	}
}

static void check_sockets(void)
{
	char byte;

	for (int at = 0; at < 2; at++)
		for (int which = 0; which < 2; which++) {
			int got = take(named[at], 1 - at);
			CHECK(syscall(SYS_kcmp, getpid(), getpid(), 0, got, named[which]) == 0);
		}
	for (int at = 0; at < 2; at++) {
		CHECK(send(removed[at], "r", 1, 0) == 1);
		CHECK(recv(removed[1 - at], &byte, 1, MSG_DONTWAIT) == 1 && byte == 'r');
	}
}

/* Of namespaces, and of the dead. */
static int spaces[2];

static void make_places(void)
{
	spaces[0] = open("/proc/self/ns/net", O_RDONLY);
	spaces[1] = open("/proc/self/ns/uts", O_RDONLY);
	pid_t child = fork();
	char path[64];

	if (!child) {
		pause();
		_exit(0);
	}
	snprintf(path, sizeof(path), "/proc/%d", child);
	CHECK(chdir(path) == 0);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void check_places(void)
{
	char *kinds[] = { "net", "uts" }, path[64], link[64], own[64];

	for (int at = 0; at < 2; at++) {
		memset(link, 0, sizeof(link));
		memset(own, 0, sizeof(own));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", spaces[at]);
		CHECK(readlink(path, link, sizeof(link)) > 0);
		snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[at]);
		CHECK(readlink(path, own, sizeof(own)) > 0 && !strcmp(link, own));
	}
	CHECK(getcwd(path, sizeof(path)) == NULL && errno == ENOENT);
	CHECK(open("status", O_RDONLY) < 0);
	CHECK(fchdir(home) == 0);
}

/* A filter: getppid fails with 77. */
static void make_confined(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct now[2] = { 0 }, data[2] = { 0 };
	char byte;
	int ready[2];

	CHECK(pipe(door) == 0 && pipe(ready) == 0);
	confined = fork();
	if (confined) {
		/* Without this one, its end would not be seen. */
		close(ready[1]);
		CHECK(read(ready[0], &byte, 1) == 1);
		close(ready[0]);
		return;
	}
	close(door[1]);
	forbid(SYS_getppid, 77);
	/* What a tracker would have it call. */
	forbid(SYS_brk, 78);
	if (syscall(SYS_capset, &header, data) || write(ready[1], "r", 1) != 1)
		_exit(11);
	close(ready[1]);
	close(ready[0]);
	if (read(door[0], &byte, 1) != 0)
		_exit(13);
	errno = 0;
	if (syscall(SYS_getppid) != -1 || errno != 77)
		_exit(14);
	memset(now, 0xff, sizeof(now));
	if (syscall(SYS_capget, &header, now) || memcmp(now, data, sizeof(now)))
		_exit(15);
	if (syscall(SYS_brk, 0) != -1 || errno != 78)
		_exit(16);
	_exit(0);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	home = open(".", O_DIRECTORY);
	CHECK(getcwd(place, sizeof(place)) != NULL);
	common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make_confined();
	make_ring();
	make_sockets();
	make_places();
	make_sharers();
	printf("ready\n");
	while (faccessat(home, "go", F_OK, 0))
		poll(NULL, 0, 10);
	check_sharers();
	check_ring();
	check_sockets();
	check_places();
	check_confined();
	printf("%d failures\n", failures);
	return failures > 99 ? 99 : failures;
}
