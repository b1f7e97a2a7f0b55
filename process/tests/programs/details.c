/*
 * Details of a program's state that are easily lost: interval timers of CPU time, datagrams that
 * was not read, directions of sockets that are shut down, locks of files, owners of descriptors,
 * permissions of a memfd, the absence of a signal stack. Says "ready", waits until a file "go" appears
 * in its directory, and checks all of it. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif

static volatile sig_atomic_t prof, virtual, io_fd, io_signal, on_stack;

static void count(int signal)
{
	(void)signal;
	on_stack++;
}

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (signal == SIGPROF)
		prof++;
	if (signal == SIGVTALRM)
		virtual++;
	if (signal == SIGUSR1 || signal == SIGIO) {
		io_signal = signal;
		io_fd = info->si_fd;
	}
}

static int udp(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memset(address, 0, sizeof(*address));
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(fd, (void *)address, sizeof(*address)) == 0);
	CHECK(getsockname(fd, (void *)address, &length) == 0);
	return fd;
}

/* The kind of lock that another process would meet. */
static int lock_met(int fd, int command, long start)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1 };

	return fcntl(fd, command, &lock) ? -1 : lock.l_type;
}

static int lock_of_child(const char *path, long start)
{
	int status = -1;

	if (!fork())
		_exit(lock_met(open(path, O_RDWR), F_GETLK, start));
	wait(&status);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Unix datagrams, named and not, and streams that are shut down in one direction. */
struct sockets {
	int bound, stream[2], half[2], deaf[2], packets[2];
};

static void make_sockets(struct sockets *of)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX };

	snprintf(path.sun_path, sizeof(path.sun_path), "%s/datagrams", get_current_dir_name());
	of->bound = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK(bind(of->bound, (void *)&path, sizeof(path)) == 0);
	int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK(sendto(sender, "one", 3, 0, (void *)&path, sizeof(path)) == 3);
	CHECK(sendto(sender, "three", 5, 0, (void *)&path, sizeof(path)) == 5);
	close(sender);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, of->half) == 0);
	CHECK(write(of->half[0], "last", 4) == 4 && write(of->half[1], "words", 5) == 5);
	CHECK(shutdown(of->half[0], SHUT_WR) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, of->deaf) == 0);
	CHECK(shutdown(of->deaf[0], SHUT_RDWR) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, of->packets) == 0);
	CHECK(write(of->packets[0], "packet", 6) == 6 && shutdown(of->packets[0], SHUT_WR) == 0);
}

static void check_sockets(struct sockets *of)
{
	char bytes[64];

	CHECK(recv(of->bound, bytes, sizeof(bytes), MSG_DONTWAIT) == 3 && !memcmp(bytes, "one", 3));
	CHECK(recv(of->bound, bytes, sizeof(bytes), MSG_DONTWAIT) == 5 && !memcmp(bytes, "three", 5));
	CHECK(recv(of->bound, bytes, sizeof(bytes), MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(recv(of->half[1], bytes, sizeof(bytes), MSG_DONTWAIT) == 4);
	CHECK(recv(of->half[1], bytes, sizeof(bytes), MSG_DONTWAIT) == 0);
	CHECK(send(of->half[0], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	CHECK(recv(of->half[0], bytes, sizeof(bytes), MSG_DONTWAIT) == 5);
	CHECK(send(of->half[1], "back", 4, MSG_NOSIGNAL) == 4);
	CHECK(recv(of->half[0], bytes, sizeof(bytes), MSG_DONTWAIT) == 4);
	CHECK(recv(of->deaf[1], bytes, sizeof(bytes), MSG_DONTWAIT) == 0);
	CHECK(send(of->deaf[1], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	CHECK(recv(of->packets[1], bytes, sizeof(bytes), MSG_DONTWAIT) == 6);
	CHECK(recv(of->packets[1], bytes, sizeof(bytes), MSG_DONTWAIT) == 0);
}

struct locks {
	int posix, shared, exclusive, pipe[2];
	pid_t child;
};

static void make_locks(struct locks *of)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10 };

	of->posix = open("posix", O_RDWR | O_CREAT, 0600);
	CHECK(fcntl(of->posix, F_SETLK, &lock) == 0);
	lock.l_type = F_RDLCK;
	lock.l_start = 15;
	lock.l_len = 50;
	CHECK(fcntl(of->posix, F_SETLK, &lock) == 0);
	of->shared = open("flock", O_RDWR | O_CREAT, 0600);
	of->exclusive = open("flock-exclusive", O_RDWR | O_CREAT, 0600);
	CHECK(flock(of->shared, LOCK_SH) == 0 && flock(of->exclusive, LOCK_EX) == 0);
	/* A child has a lock of its own through the same description. */
	CHECK(pipe(of->pipe) == 0);
	of->child = fork();
	if (!of->child) {
		char byte;

		lock.l_type = F_WRLCK;
		lock.l_start = 100;
		lock.l_len = 1;
		CHECK(fcntl(of->posix, F_SETLK, &lock) == 0);
		CHECK(write(of->pipe[1], "x", 1) == 1);
		for (;;)
			pause();
		_exit(read(of->pipe[0], &byte, 1));
	}
	char byte;
	CHECK(read(of->pipe[0], &byte, 1) == 1);
}

static void check_locks(struct locks *of)
{
	CHECK(lock_of_child("posix", 9) == F_UNLCK && lock_of_child("posix", 10) == F_WRLCK);
	CHECK(lock_of_child("posix", 14) == F_WRLCK && lock_of_child("posix", 15) == F_RDLCK);
	CHECK(lock_of_child("posix", 64) == F_RDLCK && lock_of_child("posix", 65) == F_UNLCK);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 1 };
	CHECK(fcntl(of->posix, F_GETLK, &lock) == 0 && lock.l_pid == of->child);
	int rival = open("flock", O_RDWR);
	CHECK(flock(rival, LOCK_EX | LOCK_NB) < 0 && flock(rival, LOCK_SH | LOCK_NB) == 0);
	rival = open("flock-exclusive", O_RDWR);
	CHECK(flock(rival, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	kill(of->child, SIGKILL);
	CHECK(waitpid(of->child, NULL, 0) == of->child);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval often = { .it_value = { .tv_usec = 5000 }, .it_interval = { .tv_usec = 5000 } };
	struct sockaddr_in from, to;
	struct sockets sockets;
	struct locks locks;
	struct stat stat;
	char bytes[256];

	setvbuf(stdout, NULL, _IONBF, 0);
	sigaction(SIGPROF, &action, NULL);
	sigaction(SIGVTALRM, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGIO, &action, NULL);
	sigaction(SIGUSR2, &(struct sigaction){ .sa_handler = count, .sa_flags = SA_ONSTACK }, NULL);
	make_locks(&locks);
	make_sockets(&sockets);

	/* Datagrams of UDP, to a socket that is connected and to one that is not. */
	int sender = udp(&from), receiver = udp(&to);
	CHECK(sendto(sender, "first", 5, 0, (void *)&to, sizeof(to)) == 5);
	CHECK(sendto(sender, "second one", 10, 0, (void *)&to, sizeof(to)) == 10);
	struct sockaddr_in connected_to;
	int connected = udp(&connected_to);
	CHECK(connect(connected, (void *)&from, sizeof(from)) == 0);
	CHECK(sendto(sender, "third", 5, 0, (void *)&connected_to, sizeof(to)) == 5);

	/* The receiver of SIGIO. */
	int pipes[2];
	CHECK(pipe(pipes) == 0 && fcntl(pipes[0], F_SETOWN, getpid()) == 0);
	CHECK(fcntl(pipes[0], F_SETSIG, SIGUSR1) == 0);
	CHECK(fcntl(pipes[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
	int urgent[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, urgent) == 0);
	CHECK(fcntl(urgent[0], F_SETOWN, getpid()) == 0);

	/* Memory. */
	int plain = memfd_create("plain", MFD_ALLOW_SEALING);
	int noexec = memfd_create("noexec", MFD_NOEXEC_SEAL | MFD_ALLOW_SEALING);
	CHECK(plain >= 0 && noexec >= 0 && ftruncate(noexec, 4096) == 0);
	char *droppable = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
	if (droppable != MAP_FAILED)
		strcpy(droppable, "is gone");

	CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
	CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);

	printf("ready\n");
	while (access("go", F_OK))
		poll(NULL, 0, 10);

	/* No signal stack, and a handler that would stand on one, as CPython installs them. */
	stack_t stack;
	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == SS_DISABLE);
	CHECK(raise(SIGUSR2) == 0 && on_stack == 1);

	/* A second of CPU time is two hundred periods. */
	prof = virtual = 0;
	for (long i = 0; i < 4000000000L && (prof < 3 || virtual < 3); i++)
		__asm__ volatile("");
	CHECK(prof >= 3 && virtual >= 3);
	struct itimerval left;
	CHECK(getitimer(ITIMER_PROF, &left) == 0 && left.it_interval.tv_usec == 5000);
	CHECK(left.it_value.tv_usec > 0);
	memset(&often, 0, sizeof(often));
	setitimer(ITIMER_PROF, &often, NULL);
	setitimer(ITIMER_VIRTUAL, &often, NULL);

	struct sockaddr_in said;
	socklen_t length = sizeof(said);
	CHECK(recvfrom(receiver, bytes, 256, MSG_DONTWAIT, (void *)&said, &length) == 5);
	CHECK(!memcmp(bytes, "first", 5) && said.sin_port == from.sin_port);
	CHECK(said.sin_addr.s_addr == from.sin_addr.s_addr);
	CHECK(recv(receiver, bytes, 256, MSG_DONTWAIT) == 10 && !memcmp(bytes, "second one", 10));
	CHECK(recv(receiver, bytes, 256, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(recv(connected, bytes, 256, MSG_DONTWAIT) == 5 && !memcmp(bytes, "third", 5));
	CHECK(recv(sender, bytes, 256, MSG_DONTWAIT) < 0 && errno == EAGAIN);

	check_sockets(&sockets);
	check_locks(&locks);

	CHECK(fcntl(pipes[0], F_GETOWN) == getpid() && fcntl(pipes[0], F_GETSIG) == SIGUSR1);
	CHECK(fcntl(pipes[0], F_GETFL) & O_ASYNC);
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(io_signal == SIGUSR1 && io_fd == pipes[0]);
	CHECK(fcntl(urgent[0], F_GETOWN) == getpid() && fcntl(urgent[1], F_GETOWN) == 0);

	CHECK(fstat(plain, &stat) == 0 && (stat.st_mode & 07777) == 0777);
	CHECK(fstat(noexec, &stat) == 0 && (stat.st_mode & 07777) == 0666);
	CHECK(fcntl(noexec, F_GET_SEALS) == 0x20 && pwrite(noexec, "w", 1, 0) == 1);
	if (droppable != MAP_FAILED) {
		int found = 0;
		unsigned long start = 0, at, end;
		FILE *smaps = fopen("/proc/self/smaps", "r");

		CHECK(!droppable[0]);
		while (fgets(bytes, sizeof(bytes), smaps)) {
			if (sscanf(bytes, "%lx-%lx", &at, &end) == 2)
				start = at;
			if (start == (unsigned long)droppable && !strncmp(bytes, "VmFlags:", 8))
				found = !!strstr(bytes, " dp");
		}
		fclose(smaps);
		CHECK(found);
	}
	printf("%d failures\n", failures);
	return failures > 99 ? 99 : failures;
}
