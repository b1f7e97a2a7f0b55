/*
 * Rare states of descriptors, sockets and children that are easily lost: locks of descriptions, epoll
 * instances that wait for closed numbers, clients that were not accepted, TCP that is half closed or
 * closed, shut-down UDP, unix sockets without a path, unlinked files, memfds that are executed, and
 * children that are stopped or have ended. Says "ready", waits until a file "go" appears in its
 * directory, and checks all of it. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static int own_port(int fd)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);

	return getsockname(fd, (void *)&address, &length) ? -1 : ntohs(address.sin_port);
}

static int tcp_state(int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) ? -1 : info.tcpi_state;
}

/* Locks of open file descriptions. */
static int locked;

static void make_locks(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10 };

	locked = open("ofd", O_RDWR | O_CREAT, 0600);
	CHECK(fcntl(locked, F_OFD_SETLK, &lock) == 0);
	lock.l_type = F_RDLCK;
	lock.l_start = 100;
	lock.l_len = 0;
	CHECK(fcntl(locked, F_OFD_SETLK, &lock) == 0);
}

static void check_locks(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 50 };
	int rival = open("ofd", O_RDWR);

	CHECK(fcntl(rival, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK);
	CHECK(lock.l_start == 10 && lock.l_len == 10 && lock.l_pid == -1);
	lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 50 };
	CHECK(fcntl(rival, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK);
	CHECK(lock.l_start == 100 && lock.l_len == 0);
}

/* One number, under which two pipes are waited for; it leads to neither any more. */
#define REUSED 300
static int epoll, pipes[2][2];

static void make_epoll(void)
{
	epoll = epoll_create1(0);
	for (int at = 0; at < 2; at++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u64 = 1000 + at };

		CHECK(pipe(pipes[at]) == 0 && dup2(pipes[at][0], REUSED) == REUSED);
		CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, REUSED, &event) == 0);
	}
	CHECK(dup2(epoll, REUSED) == REUSED);
}

static void check_epoll(void)
{
	struct epoll_event event;
	char byte;

	for (int at = 0; at < 2; at++) {
		CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
		CHECK(write(pipes[at][1], "x", 1) == 1);
		CHECK(epoll_wait(epoll, &event, 1, 0) == 1 && event.data.u64 == 1000u + at);
		CHECK(read(pipes[at][0], &byte, 1) == 1);
	}
	CHECK(epoll_wait(REUSED, &event, 1, 0) == 0);
	/* A pipe has the flags that it was made with. */
	CHECK(fcntl(pipes[0][0], F_GETFL) == O_RDONLY && fcntl(pipes[0][1], F_GETFL) == O_WRONLY);
}

/* Unix sockets: a client that was not accepted; a socket whose file is gone, and
 * one in the place of which another is. */
static int listener, client, removed, replaced, replacement;
static struct sockaddr_un path_listener, path_removed, path_replaced;

static void place(struct sockaddr_un *path, const char *name)
{
	char *directory = get_current_dir_name();

	path->sun_family = AF_UNIX;
	snprintf(path->sun_path, sizeof(path->sun_path), "%s/%s", directory, name);
	free(directory);
}

static int bound(struct sockaddr_un *path, int kind)
{
	int fd = socket(AF_UNIX, kind, 0);

	CHECK(bind(fd, (void *)path, sizeof(*path)) == 0);
	return fd;
}

static void make_unix(void)
{
	place(&path_listener, "listener");
	place(&path_removed, "removed");
	place(&path_replaced, "replaced");
	listener = bound(&path_listener, SOCK_STREAM);
	CHECK(listen(listener, 5) == 0);
	client = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(client, (void *)&path_listener, sizeof(path_listener)) == 0);
	removed = bound(&path_removed, SOCK_STREAM);
	CHECK(listen(removed, 5) == 0 && unlink(path_removed.sun_path) == 0);
	replaced = bound(&path_replaced, SOCK_DGRAM);
	CHECK(unlink(path_replaced.sun_path) == 0);
	replacement = bound(&path_replaced, SOCK_DGRAM);
}

static void check_unix(void)
{
	struct sockaddr_un name;
	socklen_t length = sizeof(name);
	char bytes[8];

	fcntl(listener, F_SETFL, O_NONBLOCK);
	int accepted = accept(listener, NULL, NULL);
	CHECK(accepted >= 0 && write(client, "hello", 5) == 5);
	CHECK(recv(accepted, bytes, sizeof(bytes), MSG_DONTWAIT) == 5);
	CHECK(accept(listener, NULL, NULL) < 0 && errno == EAGAIN);
	CHECK(getsockname(removed, (void *)&name, &length) == 0);
	CHECK(!strcmp(name.sun_path, path_removed.sun_path) && access(name.sun_path, F_OK) < 0);
	length = sizeof(name);
	CHECK(getsockname(replaced, (void *)&name, &length) == 0);
	CHECK(!strcmp(name.sun_path, path_replaced.sun_path));
	int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK(sendto(sender, "x", 1, 0, (void *)&path_replaced, sizeof(path_replaced)) == 1);
	CHECK(recv(replacement, bytes, sizeof(bytes), MSG_DONTWAIT) == 1);
	CHECK(recv(replaced, bytes, sizeof(bytes), MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

/* TCP: closed in one direction, in both, in both and done; not bound; shared ports; absent addresses. */
static int half[2], both[2], unbound, shared[2], absent;

static void pair(int ends[2])
{
	struct sockaddr_in address = loopback(0);
	int server = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(bind(server, (void *)&address, sizeof(address)) == 0 && listen(server, 1) == 0);
	address = loopback(own_port(server));
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (void *)&address, sizeof(address)) == 0);
	ends[1] = accept(server, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(server);
}

static void make_tcp(void)
{
	int on = 1, off = 0;

	pair(half);
	CHECK(write(half[0], "last words", 10) == 10 && shutdown(half[0], SHUT_WR) == 0);
	pair(both);
	CHECK(write(both[0], "rest", 4) == 4);
	CHECK(shutdown(both[0], SHUT_WR) == 0 && shutdown(both[1], SHUT_WR) == 0);
	while (tcp_state(both[1]) != TCP_CLOSE)
		poll(NULL, 0, 1);
	unbound = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in any = { .sin_family = AF_INET };
	for (int at = 0; at < 2; at++) {
		shared[at] = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(shared[at], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
		CHECK(bind(shared[at], (void *)&any, sizeof(any)) == 0 && listen(shared[at], 5) == 0);
		any.sin_port = htons(own_port(shared[at]));
	}
	CHECK(setsockopt(shared[0], SOL_SOCKET, SO_REUSEPORT, &off, sizeof(off)) == 0);
	/* An address for documentation (RFC 5737). */
	struct sockaddr_in nowhere = { .sin_family = AF_INET };
	nowhere.sin_addr.s_addr = htonl(0xc0000201);
	absent = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(setsockopt(absent, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on)) == 0);
	CHECK(bind(absent, (void *)&nowhere, sizeof(nowhere)) == 0 && listen(absent, 5) == 0);
	CHECK(setsockopt(absent, IPPROTO_IP, IP_FREEBIND, &off, sizeof(off)) == 0);
}

static void check_tcp(void)
{
	struct sockaddr_in name = loopback(0);
	socklen_t length = sizeof(int);
	char bytes[32];
	int value = -1;

	CHECK(recv(half[1], bytes, sizeof(bytes), MSG_WAITALL) == 10 && !memcmp(bytes, "last words", 10));
	CHECK(recv(half[1], bytes, sizeof(bytes), 0) == 0);
	CHECK(send(half[0], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	CHECK(send(half[1], "back", 4, MSG_NOSIGNAL) == 4);
	CHECK(recv(half[0], bytes, 4, MSG_WAITALL) == 4 && !memcmp(bytes, "back", 4));
	CHECK(recv(both[1], bytes, sizeof(bytes), 0) == 4 && !memcmp(bytes, "rest", 4));
	for (int at = 0; at < 2; at++) {
		CHECK(recv(both[at], bytes, sizeof(bytes), 0) == 0);
		CHECK(send(both[at], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	}
	CHECK(own_port(unbound) == 0 && bind(unbound, (void *)&name, sizeof(name)) == 0);
	CHECK(own_port(shared[0]) > 0 && own_port(shared[0]) == own_port(shared[1]));
	CHECK(getsockopt(shared[0], SOL_SOCKET, SO_REUSEPORT, &value, &length) == 0 && value == 0);
	CHECK(getsockopt(shared[1], SOL_SOCKET, SO_REUSEPORT, &value, &length) == 0 && value == 1);
	CHECK(getsockopt(shared[1], SOL_SOCKET, SO_REUSEADDR, &value, &length) == 0 && value == 0);
	CHECK(getsockopt(absent, IPPROTO_IP, IP_FREEBIND, &value, &length) == 0 && value == 0);
	length = sizeof(name);
	CHECK(getsockname(absent, (void *)&name, &length) == 0);
	CHECK(name.sin_addr.s_addr == htonl(0xc0000201));
}

/* UDP that is shut down, and netlink with a destination. */
static int udp[3], netlink;

static void make_datagrams(void)
{
	struct sockaddr_nl port = { .nl_family = AF_NETLINK, .nl_pid = getpid() };

	for (int how = 0; how < 3; how++) {
		struct sockaddr_in address = loopback(9);

		udp[how] = socket(AF_INET, SOCK_DGRAM, 0);
		CHECK(connect(udp[how], (void *)&address, sizeof(address)) == 0);
		CHECK(shutdown(udp[how], how) == 0);
	}
	netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
	CHECK(connect(netlink, (void *)&port, sizeof(port)) == 0);
}

static void check_datagrams(void)
{
	struct sockaddr_nl port;
	socklen_t length = sizeof(port);

	for (int how = 0; how < 3; how++) {
		if (how != SHUT_RD)
			CHECK(send(udp[how], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
		struct pollfd poll_of = { .fd = udp[how], .events = POLLRDHUP };
		CHECK(poll(&poll_of, 1, 0) == (how != SHUT_WR));
	}
	CHECK(getpeername(netlink, (void *)&port, &length) == 0 && port.nl_pid == (unsigned)getpid());
}

/* Files without a name. */
static int unlinked, temporary, memory, script, direct[2];

static void make_files(void)
{
	struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };

	unlinked = open("unlinked", O_RDWR | O_CREAT, 0600);
	CHECK(write(unlinked, "contents", 8) == 8 && fchown(unlinked, 18943, 58467) == 0);
	CHECK(fchmod(unlinked, 06751) == 0 && unlink("unlinked") == 0);
	CHECK(futimens(unlinked, times) == 0);
	direct[0] = open("direct", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	direct[1] = open("direct", O_RDONLY | O_NOFOLLOW);
	CHECK(write(direct[0], "direct", 6) == 6 && unlink("direct") == 0);
	temporary = open(".", O_TMPFILE | O_RDWR | O_NOFOLLOW, 0640);
	CHECK(write(temporary, "tmp", 3) == 3);
	memory = memfd_create("changed", 0);
	CHECK(fchmod(memory, 0641) == 0);
	script = memfd_create("true", 0);
	CHECK(write(script, "#!/bin/true\n", 12) == 12);
}

static void check_files(void)
{
	struct stat stat;
	char bytes[16];
	int status = -1;

	CHECK(fstat(unlinked, &stat) == 0 && (stat.st_mode & 07777) == 06751);
	CHECK(stat.st_uid == 18943 && stat.st_gid == 58467 && stat.st_nlink == 0);
	CHECK(stat.st_mtim.tv_sec == 2000 && stat.st_mtim.tv_nsec == 7 && stat.st_atim.tv_sec == 1000);
	CHECK(pread(unlinked, bytes, 16, 0) == 8 && !memcmp(bytes, "contents", 8));
	for (int i = 0; i < 2; i++) {
		CHECK(fcntl(direct[i], F_GETFL) & O_NOFOLLOW);
		CHECK(pread(direct[i], bytes, 16, 0) == 6 && !memcmp(bytes, "direct", 6));
		CHECK(fstat(direct[i], &stat) == 0 && stat.st_nlink == 0);
	}
	CHECK((fcntl(temporary, F_GETFL) & O_TMPFILE) == O_TMPFILE && fcntl(temporary, F_GETFL) & O_NOFOLLOW);
	CHECK(pread(temporary, bytes, 16, 0) == 3 && !memcmp(bytes, "tmp", 3));
	CHECK(fstat(memory, &stat) == 0 && (stat.st_mode & 07777) == 0641);
	pid_t child = fork();
	if (!child) {
		char *arguments[] = { "true", NULL };

		execveat(script, "", arguments, environ, AT_EMPTY_PATH);
		_exit(errno);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Children: stopped by a signal that is not SIGSTOP; ended in groups of their own and of others. */
static pid_t stopped, leader, member;

static void make_children(void)
{
	siginfo_t info;

	/* In a group of its own: its parent's may be orphaned, and the kernel discards SIGTTIN there. */
	stopped = fork();
	if (!stopped) {
		setpgid(0, 0);
		for (;;)
			pause();
	}
	while (getpgid(stopped) != stopped)
		poll(NULL, 0, 1);
	CHECK(kill(stopped, SIGTTIN) == 0);
	CHECK(waitid(P_PID, stopped, &info, WSTOPPED | WNOWAIT) == 0);
	CHECK(info.si_status == SIGTTIN);
	leader = fork();
	if (!leader) {
		setpgid(0, 0);
		pause();
		_exit(3);
	}
	while (getpgid(leader) != leader)
		poll(NULL, 0, 1);
	member = fork();
	if (!member) {
		setpgid(0, leader);
		_exit(5);
	}
	CHECK(waitid(P_PID, member, &info, WEXITED | WNOWAIT) == 0);
	CHECK(kill(leader, SIGUSR2) == 0);
	CHECK(waitid(P_PID, leader, &info, WEXITED | WNOWAIT) == 0);
}

static void check_children(void)
{
	siginfo_t info;
	int status = -1;

	CHECK(getpgid(member) == leader && getpgid(leader) == leader);
	memset(&info, 0, sizeof(info));
	CHECK(waitid(P_PID, stopped, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0);
	CHECK(info.si_pid == stopped && info.si_status == SIGTTIN);
	CHECK(waitpid(member, &status, 0) == member && WEXITSTATUS(status) == 5);
	CHECK(waitpid(leader, &status, 0) == leader && WTERMSIG(status) == SIGUSR2);
	kill(stopped, SIGKILL);
	CHECK(waitpid(stopped, &status, 0) == stopped);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	make_locks();
	make_epoll();
	make_unix();
	make_tcp();
	make_datagrams();
	make_files();
	make_children();
	printf("ready\n");
	while (access("go", F_OK))
		poll(NULL, 0, 10);
	check_locks();
	check_epoll();
	check_unix();
	check_tcp();
	check_datagrams();
	check_files();
	check_children();
	printf("%d failures\n", failures);
	return failures > 99 ? 99 : failures;
}
