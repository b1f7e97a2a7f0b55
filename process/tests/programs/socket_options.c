/*
 * Options of sockets that few programs set. Says "ready", waits until a file "go" appears in its
 * directory, and compares each option with what it was. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { SETTINGS_MAX = 100 };

static struct setting {
	int line, socket, level, name;
	socklen_t bytes;
	char value[64];
} settings[SETTINGS_MAX];
static int count;

/* Remembers how the kernel shows an option. */
static void remember(int line, int socket, int level, int name)
{
	struct setting *it = &settings[count++];

	*it = (struct setting){ line, socket, level, name, sizeof(it->value), { 0 } };
	CHECK(getsockopt(socket, level, name, it->value, &it->bytes) == 0);
}

/* Sets an option to something else than what it was. */
static void set_to(int line, int socket, int level, int name, const void *value, socklen_t bytes)
{
	struct setting *it = &settings[count];
	char fresh[64] = { 0 };
	socklen_t fresh_bytes = sizeof(fresh);

	CHECK(getsockopt(socket, level, name, fresh, &fresh_bytes) == 0);
	if (setsockopt(socket, level, name, value, bytes)) {
		printf("line %d: cannot set it: errno %d\n", line, errno);
		failures++;
	}
	remember(line, socket, level, name);
	if (it->bytes == fresh_bytes && !memcmp(it->value, fresh, fresh_bytes)) {
		printf("line %d: it had that value before\n", line);
		failures++;
	}
}

#define SET(socket, level, name, ...)                                                              \
	do {                                                                                       \
		__typeof__(__VA_ARGS__) value_ = (__VA_ARGS__);                                    \
		set_to(__LINE__, socket, level, name, &value_, sizeof(value_));                    \
	} while (0)

static void set_on_tcp(int made)
{
	int room = 16 << 20;

	SET(made, SOL_SOCKET, SO_MAX_PACING_RATE, 123456ul);
	SET(made, SOL_SOCKET, SO_ZEROCOPY, 1);
	SET(made, SOL_SOCKET, SO_PREFER_BUSY_POLL, 1);
	SET(made, SOL_SOCKET, SO_TIMESTAMPNS_NEW, 1);
	/* Beyond the limit of what every program may set. */
	CHECK(setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) == 0);
	CHECK(setsockopt(made, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) == 0);
	remember(__LINE__, made, SOL_SOCKET, SO_RCVBUF);
	remember(__LINE__, made, SOL_SOCKET, SO_SNDBUF);
	SET(made, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
	SET(made, IPPROTO_TCP, TCP_SAVE_SYN, 1);
	SET(made, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1);
	SET(made, IPPROTO_TCP, TCP_INQ, 1);
	SET(made, IPPROTO_TCP, TCP_TX_DELAY, 1000);
	SET(made, IPPROTO_TCP, TCP_MAXSEG, 1000);
}

static void set_on_udp(int made)
{
	struct { int clock; unsigned flags; } when = { CLOCK_TAI, 1 };

	SET(made, SOL_SOCKET, SO_TXTIME, when);
	SET(made, SOL_SOCKET, SO_TIMESTAMP_NEW, 1);
	SET(made, SOL_SOCKET, 75 /* SO_RCVMARK */, 1);
	SET(made, IPPROTO_IP, IP_OPTIONS, (unsigned)htonl(0x94040000));
	SET(made, IPPROTO_IP, 50 /* IP_UNICAST_IF */, (unsigned)htonl(1));
	SET(made, IPPROTO_IP, 51 /* IP_LOCAL_PORT_RANGE */, 5000u << 16 | 4000);
	SET(made, IPPROTO_IP, IP_RECVOPTS, 1);
	SET(made, IPPROTO_IP, IP_MULTICAST_IF, (unsigned)htonl(INADDR_LOOPBACK));
	SET(made, IPPROTO_UDP, UDP_CORK, 1);
}

static void set_on_udp6(int made)
{
	static const unsigned char none[8] = { 59, 0, 1, 4 };

	set_to(__LINE__, made, IPPROTO_IPV6, IPV6_HOPOPTS, none, sizeof(none));
	set_to(__LINE__, made, IPPROTO_IPV6, IPV6_DSTOPTS, none, sizeof(none));
	SET(made, IPPROTO_IPV6, IPV6_UNICAST_IF, (unsigned)htonl(1));
	SET(made, IPPROTO_IPV6, IPV6_MULTICAST_IF, 1);
	SET(made, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
	SET(made, IPPROTO_IPV6, IPV6_ADDR_PREFERENCES, 2);
	SET(made, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
	SET(made, IPPROTO_IPV6, IPV6_MINHOPCOUNT, 7);
	SET(made, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
	SET(made, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1);
	SET(made, IPPROTO_UDP, 101 /* UDP_NO_CHECK6_TX */, 1);
	SET(made, IPPROTO_UDP, 102 /* UDP_NO_CHECK6_RX */, 1);
}

int main(void)
{
	int netlink = socket(AF_NETLINK, SOCK_RAW, 0), group = 1;
	struct sockaddr_nl address;
	socklen_t bytes = sizeof(address);

	set_on_tcp(socket(AF_INET, SOCK_STREAM, 0));
	set_on_udp(socket(AF_INET, SOCK_DGRAM, 0));
	set_on_udp6(socket(AF_INET6, SOCK_DGRAM, 0));
	SET(socket(AF_UNIX, SOCK_STREAM, 0), SOL_SOCKET, SO_MAX_PACING_RATE, 7ul);
	CHECK(setsockopt(netlink, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, 4) == 0);
	puts("ready");
	fflush(stdout);
	while (access("go", F_OK))
		usleep(10000);
	for (int i = 0; i < count; i++) {
		struct setting *was = &settings[i];
		char value[64] = { 0 };

		bytes = sizeof(value);
		CHECK(getsockopt(was->socket, was->level, was->name, value, &bytes) == 0);
		if (bytes != was->bytes || memcmp(value, was->value, bytes)) {
			printf("line %d: the option is another one\n", was->line);
			failures++;
		}
	}
	bytes = sizeof(address);
	CHECK(getsockname(netlink, (void *)&address, &bytes) == 0);
	CHECK(address.nl_pid == 0 && address.nl_groups == 1);
	return failures;
}
