/*
 * Holds what has no name any more or is on its way: removed directories, pipes, links, devices and
 * files with another name; pidfds and files of /proc of processes that have ended; descriptors in a
 * message; leases; raw sockets and packet filters; filters of system calls. Says "ready", waits until
 * a file "go" appears in its directory, and checks all of it. The number of differences is the exit
 * code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/icmp.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "confined.h"

static int home;
static char place[64];

/* Names. */
static int gone_directory, below_gone, gone_pipe, gone_link, live_link, gone_device, other_name;
static struct stat other_stat;

static void make_names(void)
{
	home = open(".", O_DIRECTORY);
	CHECK(getcwd(place, sizeof(place)) != NULL);
	CHECK(mkdir("gone", 0750) == 0 && mkdir("gone/below", 0700) == 0);
	below_gone = open("gone/below", O_DIRECTORY);
	gone_directory = open("gone", O_DIRECTORY);
	CHECK(rmdir("gone/below") == 0 && rmdir("gone") == 0);
	CHECK(mkfifo("pipe", 0640) == 0);
	gone_pipe = open("pipe", O_RDWR);
	CHECK(write(gone_pipe, "in it", 5) == 5 && unlink("pipe") == 0);
	CHECK(symlink("to/nowhere", "link") == 0 && symlink("file", "live") == 0);
	gone_link = open("link", O_PATH | O_NOFOLLOW);
	live_link = open("live", O_PATH | O_NOFOLLOW);
	CHECK(unlink("link") == 0);
	CHECK(mknod("device", S_IFCHR | 0600, makedev(1, 3)) == 0);
	gone_device = open("device", O_RDWR);
	CHECK(unlink("device") == 0);
	other_name = open("first", O_RDWR | O_CREAT, 0600);
	CHECK(link("first", "second") == 0 && unlink("first") == 0);
	CHECK(write(other_name, "named", 5) == 5 && fstat(other_name, &other_stat) == 0);
	CHECK(mkdir("here", 0700) == 0 && chdir("here") == 0 && rmdir("../here") == 0);
}

static int is_removed(int fd, mode_t kind)
{
	char name[32], path[4096] = "";
	struct stat now;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return readlink(name, path, sizeof(path) - 1) > 0 && strstr(path, " (deleted)") &&
	       fstat(fd, &now) == 0 && (now.st_mode & S_IFMT) == kind;
}

static void check_names(void)
{
	char bytes[64] = "";
	struct stat now;

	CHECK(stat(".", &now) == 0 && S_ISDIR(now.st_mode) && now.st_nlink == 0);
	CHECK(open("new", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT);
	CHECK(is_removed(gone_directory, S_IFDIR) && is_removed(below_gone, S_IFDIR));
	CHECK(fstat(gone_directory, &now) == 0 && (now.st_mode & 0777) == 0750);
	CHECK(is_removed(gone_pipe, S_IFIFO));
	CHECK(read(gone_pipe, bytes, sizeof(bytes)) == 5 && !memcmp(bytes, "in it", 5));
	CHECK(is_removed(gone_link, S_IFLNK));
	CHECK(readlinkat(gone_link, "", bytes, sizeof(bytes)) == 10);
	CHECK(!memcmp(bytes, "to/nowhere", 10));
	CHECK(readlinkat(live_link, "", bytes, sizeof(bytes)) == 4 && !memcmp(bytes, "file", 4));
	CHECK(is_removed(gone_device, S_IFCHR) && write(gone_device, "x", 1) == 1);
	CHECK(is_removed(other_name, S_IFREG));
	CHECK(fstat(other_name, &now) == 0 && now.st_ino == other_stat.st_ino && now.st_nlink == 1);
	CHECK(lseek(other_name, 0, SEEK_CUR) == 5);
	CHECK(pread(other_name, bytes, 5, 0) == 5 && !memcmp(bytes, "named", 5));
	CHECK(fchdir(home) == 0);
	/* Nothing that was made for the restore is left. */
	for (const char **name = (const char *[]){ "gone", "pipe", "link", "device", "first", "here", 0 };
	     *name; name++)
		CHECK(lstat(*name, &now) < 0 && errno == ENOENT);
}

/* The dead. */
static int dead[3], dead_file;

static void make_dead(void)
{
	for (int at = 0; at < 2; at++) {
		pid_t child = fork();
		char path[64];

		if (!child) {
			pause();
			_exit(0);
		}
		dead[at] = syscall(SYS_pidfd_open, child, 0);
		if (at) {
			dead[2] = syscall(SYS_pidfd_open, child, 0);
			snprintf(path, sizeof(path), "/proc/%d/mountinfo", child);
			dead_file = open(path, O_RDONLY);
		}
		kill(child, SIGKILL);
		CHECK(waitpid(child, NULL, 0) == child);
	}
	CHECK(dead[0] >= 0 && dead[1] >= 0 && dead[2] >= 0 && dead_file >= 0);
}

static void check_dead(void)
{
	struct stat stats[3];

	for (int at = 0; at < 3; at++) {
		struct pollfd poller = { .fd = dead[at], .events = POLLIN };

		CHECK(fstat(dead[at], &stats[at]) == 0);
		CHECK(syscall(SYS_pidfd_send_signal, dead[at], 0, NULL, 0) < 0 && errno == ESRCH);
		CHECK(poll(&poller, 1, 0) == 1);
	}
	CHECK(stats[1].st_ino == stats[2].st_ino);
	CHECK(fcntl(dead_file, F_GETFD) == 0);
}

/* Descriptors under way. */
static int stream[2], datagrams[2];

static void pass(int fd, const char *text, const int *descriptors, int count)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = "";
	struct iovec vector = { (void *)text, strlen(text) };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };

	if (count) {
		header.msg_control = control;
		header.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *first = CMSG_FIRSTHDR(&header);
		first->cmsg_level = SOL_SOCKET;
		first->cmsg_type = SCM_RIGHTS;
		first->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(first), descriptors, count * sizeof(int));
	}
	CHECK(sendmsg(fd, &header, 0) == (ssize_t)strlen(text));
}

static int take(int fd, const char *text, int *descriptors)
{
	char control[CMSG_SPACE(4 * sizeof(int))], bytes[64];
	/* A stream gives no more than is wanted. */
	struct iovec vector = { bytes, strlen(text) };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1,
				 .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT);
	struct cmsghdr *first = CMSG_FIRSTHDR(&header);

	CHECK(got == (ssize_t)strlen(text) && !memcmp(bytes, text, got));
	if (!first || first->cmsg_type != SCM_RIGHTS)
		return 0;
	int count = (first->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(descriptors, CMSG_DATA(first), count * sizeof(int));
	return count;
}

static void make_under_way(void)
{
	int ends[2], poller = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 7 };

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
	CHECK(pipe(ends) == 0 && epoll_ctl(poller, EPOLL_CTL_ADD, stream[1], &event) == 0);
	pass(stream[0], "both", ends, 2);
	pass(stream[0], "after", NULL, 0);
	CHECK(shutdown(stream[0], SHUT_WR) == 0);
	/* A socket in its own queue, and an epoll instance that nobody else has. */
	pass(datagrams[0], "poller", &poller, 1);
	pass(datagrams[0], "self", &datagrams[1], 1);
	close(datagrams[0]);
	close(ends[0]);
	close(ends[1]);
	close(poller);
}

static void check_under_way(void)
{
	int got[4];
	char byte = 0;
	struct epoll_event event;

	CHECK(take(stream[1], "both", got) == 2);
	CHECK(write(got[1], "p", 1) == 1 && read(got[0], &byte, 1) == 1 && byte == 'p');
	CHECK(take(stream[1], "after", got) == 0);
	CHECK(recv(stream[1], &byte, 1, MSG_DONTWAIT) == 0);
	CHECK(take(datagrams[1], "poller", got) == 1);
	CHECK(epoll_wait(got[0], &event, 1, 0) == 1 && event.data.u32 == 7);
	CHECK(take(datagrams[1], "self", got) == 1);
	CHECK(syscall(SYS_kcmp, getpid(), getpid(), 0, got[0], datagrams[1]) == 0);
}

/* Leases. */
static int reads, writes, broken;

static void make_leases(void)
{
	signal(SIGIO, SIG_IGN);
	close(open("leased-r", O_CREAT | O_WRONLY, 0600));
	reads = open("leased-r", O_RDONLY);
	writes = open("leased-w", O_CREAT | O_RDWR, 0600);
	broken = open("leased-b", O_CREAT | O_RDWR, 0600);
	CHECK(fcntl(reads, F_SETLEASE, F_RDLCK) == 0);
	CHECK(fcntl(writes, F_SETLEASE, F_WRLCK) == 0);
	CHECK(fcntl(broken, F_SETLEASE, F_WRLCK) == 0 && fcntl(broken, F_SETSIG, SIGUSR2) == 0);
	signal(SIGUSR2, SIG_IGN);
	CHECK(open("leased-b", O_RDONLY | O_NONBLOCK) < 0 && errno == EWOULDBLOCK);
	signal(SIGUSR2, SIG_DFL);
	signal(SIGIO, SIG_DFL);
}

static void check_leases(void)
{
	CHECK(fcntl(reads, F_GETLEASE) == F_RDLCK && fcntl(writes, F_GETLEASE) == F_WRLCK);
	CHECK(fcntl(broken, F_GETLEASE) == F_RDLCK && fcntl(broken, F_GETSIG) == SIGUSR2);
	CHECK(fcntl(broken, F_SETLEASE, F_UNLCK) == 0);
}

/* Sockets. */
static int raw, filtered, astray[2];
static struct sock_filter odd[] = {
	{ BPF_LD | BPF_B | BPF_ABS, 0, 0, 8 },
	{ BPF_ALU | BPF_AND | BPF_K, 0, 0, 1 },
	{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 1 },
	{ BPF_RET | BPF_K, 0, 0, 0xffff },
	{ BPF_RET | BPF_K, 0, 0, 0 },
};

static void make_sockets(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct sock_fprog program = { 5, odd };
	struct icmp_filter { unsigned int data; } none = { ~0u };
	int one = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	struct sockaddr_un path = { AF_UNIX, "astray" };
	for (int at = 0; at < 2; at++)
		astray[at] = socket(AF_UNIX, SOCK_DGRAM, 0);
	snprintf(path.sun_path, sizeof(path.sun_path), "%s/astray", place);
	CHECK(bind(astray[0], (void *)&path, sizeof(path)) == 0);
	CHECK(connect(astray[1], (void *)&path, sizeof(path)) == 0);
	CHECK(unlink(path.sun_path) == 0);
	raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	CHECK(setsockopt(raw, SOL_RAW, 1, &none, sizeof(none)) == 0);
	CHECK(bind(raw, (void *)&address, sizeof(address)) == 0);
	filtered = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(bind(filtered, (void *)&address, sizeof(address)) == 0);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof(one)) == 0);
}

static void check_sockets(void)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	unsigned int filter = 0;
	int type = 0, zero = 0, sender = socket(AF_INET, SOCK_DGRAM, 0);
	char byte = 0;

	CHECK(send(astray[1], "to it", 5, 0) == 5 && recv(astray[0], &byte, 1, MSG_DONTWAIT) == 1);
	CHECK(byte == 't');
	CHECK(getsockname(raw, (void *)&address, &length) == 0);
	CHECK(address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	length = sizeof(filter);
	CHECK(getsockopt(raw, SOL_RAW, 1, &filter, &length) == 0 && filter == ~0u);
	length = sizeof(type);
	CHECK(getsockopt(raw, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_RAW);
	length = sizeof(address);
	CHECK(getsockname(filtered, (void *)&address, &length) == 0);
	CHECK(sendto(sender, "\2", 1, 0, (void *)&address, length) == 1);
	CHECK(sendto(sender, "\3", 1, 0, (void *)&address, length) == 1);
	CHECK(recv(filtered, &byte, 1, MSG_DONTWAIT) == 1 && byte == 3);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof(zero)) < 0);
	CHECK(errno == EPERM);
}

/* Filters: getppid fails with 77 in all threads, getpgid with 78 in the main thread only. */
static void *thread(void *unused)
{
	(void)unused;
	for (;;) {
		errno = 0;
		if (syscall(SYS_getppid) != -1 || errno != 77)
			_exit(11);
		if (syscall(SYS_getpgid, 0) < 0)
			_exit(12);
		poll(NULL, 0, 5);
	}
}

static void make_confined(void)
{
	CHECK(pipe(door) == 0);
	confined = fork();
	if (confined)
		return;
	pthread_t other;
	char byte;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(9);
	forbid(SYS_getppid, 77);
	/* What a tracker would have it call. */
	forbid(SYS_brk, 79);
	pthread_create(&other, NULL, thread, NULL);
	forbid(SYS_getpgid, 78);
	close(door[1]);
	if (read(door[0], &byte, 1) != 0)
		_exit(13);
	errno = 0;
	if (syscall(SYS_getppid) != -1 || errno != 77)
		_exit(14);
	if (syscall(SYS_getpgid, 0) != -1 || errno != 78)
		_exit(15);
	_exit(0);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	make_names();
	CHECK(fchdir(home) == 0);
	make_leases();
	make_confined();
	make_dead();
	make_under_way();
	make_sockets();
	CHECK(mkdir("here", 0700) == 0 && chdir("here") == 0 && rmdir("../here") == 0);
	printf("ready\n");
	while (faccessat(home, "go", F_OK, 0))
		poll(NULL, 0, 10);
	check_names();
	check_dead();
	check_under_way();
	check_leases();
	check_sockets();
	check_confined();
	printf("%d failures\n", failures);
	return failures > 99 ? 99 : failures;
}
