/*
 * A socket that cannot be restored, of the kind that the argument names. Says "ready", waits until a file
 * "go" appears in its directory, and checks that nothing was taken from it. The number of differences is
 * the exit code.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char got[100];

static struct sockaddr_in address_of(int made)
{
	struct sockaddr_in address;
	socklen_t bytes = sizeof(address);

	CHECK(getsockname(made, (void *)&address, &bytes) == 0);
	return address;
}

static int bound(int kind)
{
	struct sockaddr_in address = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	int made = socket(AF_INET, kind, 0);

	CHECK(bind(made, (void *)&address, sizeof(address)) == 0);
	return made;
}

static int connected_to(int listener)
{
	struct sockaddr_in address = address_of(listener);
	int made = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(connect(made, (void *)&address, sizeof(address)) == 0);
	return made;
}

static void wait_for_go(void)
{
	puts("ready");
	fflush(stdout);
	while (access("go", F_OK))
		usleep(10000);
}

static int receives(int from, const char *text)
{
	ssize_t bytes = recv(from, got, sizeof(got), MSG_DONTWAIT);

	return bytes == (ssize_t)strlen(text) && !memcmp(got, text, bytes);
}

static void send_urgent(int to)
{
	CHECK(send(to, "abc", 3, 0) == 3 && send(to, "U", 1, MSG_OOB) == 1);
	CHECK(send(to, "def", 3, 0) == 3);
}

static void urgent(int to, int from)
{
	send_urgent(to);
	wait_for_go();
	CHECK(recv(from, got, 1, MSG_OOB) == 1 && got[0] == 'U');
	CHECK(receives(from, "abc") && receives(from, "def"));
}

/* The urgent byte was read, the place where it was was not reached. */
static void mark(int to, int from)
{
	send_urgent(to);
	CHECK(recv(from, got, 1, MSG_OOB) == 1 && got[0] == 'U');
	wait_for_go();
	CHECK(receives(from, "abc") && receives(from, "def"));
}

static void credentials(void)
{
	int ends[2], on = 1;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
	CHECK(send(ends[0], "mine", 4, 0) == 4);
	wait_for_go();
	CHECK(receives(ends[1], "mine"));
}

static void held_back(void)
{
	int to = bound(SOCK_DGRAM), from = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in address = address_of(to);

	CHECK(connect(from, (void *)&address, sizeof(address)) == 0);
	CHECK(send(from, "one", 3, MSG_MORE) == 3);
	wait_for_go();
	CHECK(send(from, "two", 3, 0) == 3 && receives(to, "onetwo"));
}

static void error_queue(void)
{
	int closed = bound(SOCK_DGRAM), made = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	struct sockaddr_in address = address_of(closed);
	struct pollfd poll_of = { made, POLLIN, 0 };
	struct msghdr header = { 0 };

	CHECK(setsockopt(made, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)) == 0);
	CHECK(connect(made, (void *)&address, sizeof(address)) == 0);
	close(closed);
	CHECK(send(made, "x", 1, 0) == 1 && poll(&poll_of, 1, 10000) == 1);
	wait_for_go();
	CHECK(recvmsg(made, &header, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0);
}

/* A datagram that came before the error. */
static void error_and_datagram(void)
{
	int peer = bound(SOCK_DGRAM), made = bound(SOCK_DGRAM), error = 0;
	struct sockaddr_in its = address_of(peer), own = address_of(made);
	struct pollfd poll_of = { made, 0, 0 };
	socklen_t bytes = sizeof(error);

	CHECK(connect(made, (void *)&its, sizeof(its)) == 0);
	CHECK(sendto(peer, "first", 5, 0, (void *)&own, sizeof(own)) == 5);
	close(peer);
	CHECK(send(made, "x", 1, 0) == 1 && poll(&poll_of, 1, 10000) == 1);
	wait_for_go();
	CHECK(getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0);
	CHECK(error == ECONNREFUSED && receives(made, "first"));
}

static void not_accepted(int listener)
{
	int client = connected_to(listener);

	CHECK(send(client, "early", 5, 0) == 5);
	wait_for_go();
	int accepted = accept(listener, NULL, NULL);
	usleep(10000);
	CHECK(accepted >= 0 && receives(accepted, "early"));
}

static void elsewhere(void)
{
	int own = open("/proc/self/ns/net", O_RDONLY);

	CHECK(unshare(CLONE_NEWNET) == 0);
	int made = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(setns(own, CLONE_NEWNET) == 0 && made >= 0);
	close(own);
	wait_for_go();
}

static void keys(void)
{
	int listener = bound(SOCK_STREAM);
	struct tcp_md5sig key = { .tcpm_keylen = 3, .tcpm_key = "abc" };
	struct sockaddr_in address = address_of(listener);

	address.sin_port = 0;
	memcpy(&key.tcpm_addr, &address, sizeof(address));
	CHECK(setsockopt(listener, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof(key)) == 0);
	CHECK(listen(listener, 5) == 0);
	wait_for_go();
}

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "";
	int ends[2], listener = bound(SOCK_STREAM);

	CHECK(listen(listener, 5) == 0);
	if (!strcmp(kind, "urgent") || !strcmp(kind, "mark")) {
		ends[0] = connected_to(listener);
		ends[1] = accept(listener, NULL, NULL);
		(kind[0] == 'u' ? urgent : mark)(ends[0], ends[1]);
	} else if (!strcmp(kind, "unix-urgent")) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		urgent(ends[0], ends[1]);
	} else if (!strcmp(kind, "credentials")) {
		credentials();
	} else if (!strcmp(kind, "held-back")) {
		held_back();
	} else if (!strcmp(kind, "error-queue")) {
		error_queue();
	} else if (!strcmp(kind, "error-and-datagram")) {
		error_and_datagram();
	} else if (!strcmp(kind, "not-accepted")) {
		not_accepted(listener);
	} else if (!strcmp(kind, "elsewhere")) {
		elsewhere();
	} else if (!strcmp(kind, "keys")) {
		keys();
	} else {
		CHECK(!"a kind");
	}
	return failures;
}
