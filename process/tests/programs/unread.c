/*
 * Unread data of sockets in unusual states, and what comes after it. Says "ready", waits until a file
 * "go" appears in its directory, and checks all of it. The number of differences is the exit code.
 * With the argument "several", without what only the first of several epochs sees: empty messages.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { LARGE = 400000 };

static int full[3][2], messages[2], ended[2], large[2], reset[2], silent_reset[2];
static int listener, client, listener_of_two, one, other;
static ssize_t written[3];
static int empty = 1;
static char block[300000], image[LARGE];

static void pair(int kind, int *ends)
{
	CHECK(socketpair(AF_UNIX, kind | SOCK_NONBLOCK, 0, ends) == 0);
}

static int listening(struct sockaddr_in *address)
{
	socklen_t bytes = sizeof(*address);
	int made = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){ AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	CHECK(bind(made, (void *)address, sizeof(*address)) == 0 && listen(made, 5) == 0);
	CHECK(getsockname(made, (void *)address, &bytes) == 0);
	return made;
}

static int connected(const struct sockaddr_in *address)
{
	int made = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(connect(made, (const void *)address, sizeof(*address)) == 0);
	return made;
}

static void make_unix(void)
{
	static const int sizes[] = { 1, 65536, 200000 };
	int room = 4 << 20;

	/* As much as the kernel takes. */
	for (int i = 0; i < 3; i++) {
		ssize_t wrote;

		pair(SOCK_STREAM, full[i]);
		while ((wrote = write(full[i][0], block, sizes[i])) > 0)
			written[i] += wrote;
		CHECK(errno == EAGAIN);
	}
	pair(SOCK_SEQPACKET, messages);
	pair(SOCK_SEQPACKET, ended);
	for (int i = 0; i < 2; i++) {
		int to = i ? ended[1] : messages[1];

		CHECK(send(to, "one", 3, 0) == 3 && (!empty || send(to, "", 0, 0) == 0));
		CHECK(send(to, "two", 3, 0) == 3);
	}
	close(ended[1]);
	pair(SOCK_DGRAM, large);
	for (int i = 0; i < LARGE; i++)
		image[i] = i * 7;
	CHECK(setsockopt(large[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) == 0);
	CHECK((!empty || send(large[1], "", 0, 0) == 0) && send(large[1], image, LARGE, 0) == LARGE);
	CHECK(send(large[1], "after", 5, 0) == 5);
	/* The other end has gone without reading what it was sent. */
	pair(SOCK_STREAM, reset);
	CHECK(write(reset[1], "last", 4) == 4 && write(reset[0], "unread", 6) == 6);
	close(reset[1]);
	pair(SOCK_STREAM, silent_reset);
	CHECK(write(silent_reset[0], "unread", 6) == 6);
	close(silent_reset[1]);
}

static void make_tcp(void)
{
	struct sockaddr_in address;
	int on = 1;

	listener = listening(&address);
	client = connected(&address);
	/* The connection has the option, the socket that accepted it has not. */
	listener_of_two = listening(&address);
	one = connected(&address);
	other = accept(listener_of_two, NULL, NULL);
	CHECK(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	CHECK(setsockopt(one, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) == 0);
	CHECK(write(other, "came", 4) == 4);
}

static void check_unix(void)
{
	static char got[LARGE + 1];
	ssize_t bytes;

	for (int i = 0; i < 3; i++) {
		socklen_t length = sizeof(int);
		int room = 0, fresh = 0, ends[2];

		pair(SOCK_STREAM, ends);
		CHECK(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &fresh, &length) == 0);
		CHECK(getsockopt(full[i][0], SOL_SOCKET, SO_SNDBUF, &room, &length) == 0);
		CHECK(room == fresh);
		while ((bytes = read(full[i][1], got, LARGE)) > 0)
			written[i] -= bytes;
		CHECK(written[i] == 0);
	}
	for (int i = 0; i < 2; i++) {
		int from = i ? ended[0] : messages[0];

		CHECK(recv(from, got, LARGE, 0) == 3 && !memcmp(got, "one", 3));
		CHECK(!empty || recv(from, got, LARGE, 0) == 0);
		CHECK(recv(from, got, LARGE, 0) == 3 && !memcmp(got, "two", 3));
	}
	CHECK(recv(messages[0], got, LARGE, 0) < 0 && errno == EAGAIN);
	CHECK(recv(ended[0], got, LARGE, 0) == 0);
	CHECK(!empty || recv(large[0], got, sizeof(got), 0) == 0);
	CHECK(recv(large[0], got, sizeof(got), 0) == LARGE && !memcmp(got, image, LARGE));
	CHECK(recv(large[0], got, sizeof(got), 0) == 5 && !memcmp(got, "after", 5));
	CHECK(recv(reset[0], got, LARGE, 0) == 4 && !memcmp(got, "last", 4));
	CHECK(recv(reset[0], got, LARGE, 0) < 0 && errno == ECONNRESET);
	CHECK(recv(reset[0], got, LARGE, 0) == 0);
	CHECK(recv(silent_reset[0], got, LARGE, 0) < 0 && errno == ECONNRESET);
	CHECK(recv(silent_reset[0], got, LARGE, 0) == 0);
}

static void check_tcp(void)
{
	int value = 1, accepted;
	char got[8];
	socklen_t length = sizeof(value);

	accepted = accept(listener, NULL, NULL);
	CHECK(accepted >= 0 && write(client, "late", 4) == 4);
	CHECK(read(accepted, got, sizeof(got)) == 4 && !memcmp(got, "late", 4));
	CHECK(getsockopt(listener_of_two, SOL_SOCKET, SO_REUSEADDR, &value, &length) == 0);
	CHECK(value == 0);
	CHECK(getsockopt(other, SOL_SOCKET, SO_REUSEADDR, &value, &length) == 0 && value == 1);
	CHECK(read(one, got, sizeof(got)) == 4 && !memcmp(got, "came", 4));
	CHECK(write(one, "held", 4) == 4);
	CHECK(recv(other, got, sizeof(got), MSG_DONTWAIT) < 0 && errno == EAGAIN);
	value = 0;
	CHECK(setsockopt(one, IPPROTO_TCP, TCP_CORK, &value, sizeof(value)) == 0);
	CHECK(read(other, got, sizeof(got)) == 4 && !memcmp(got, "held", 4));
}

int main(int count, char **arguments)
{
	empty = count < 2 || strcmp(arguments[1], "several");
	make_unix();
	make_tcp();
	puts("ready");
	fflush(stdout);
	while (access("go", F_OK))
		usleep(10000);
	check_unix();
	check_tcp();
	return failures;
}
