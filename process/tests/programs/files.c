/*
 * Opens one of everything, says "ready", waits until a file "go" appears in its directory, and
 * checks that everything is as it was. Each difference is reported by name; their number is the
 * exit code.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static volatile sig_atomic_t got_usr1, got_alarm, got_timer, on_stack;
static char stack[65536];

static void handler(int signal, siginfo_t *info, void *context)
{
	char here;

	(void)context;
	if (signal == SIGUSR1)
		got_usr1 = info->si_value.sival_int;
	if (signal == SIGALRM)
		got_alarm = 1;
	if (signal == SIGRTMIN + 3)
		got_timer = info->si_value.sival_int;
	on_stack = &here >= stack && &here < stack + sizeof(stack);
}

static int64_t now_ms(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static int read_is(int fd, const char *wanted)
{
	char bytes[256] = "";
	ssize_t got = read(fd, bytes, strlen(wanted));

	return got == (ssize_t)strlen(wanted) && !memcmp(bytes, wanted, got);
}

int main(void)
{
	char bytes[4096];
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);

	setvbuf(stdout, NULL, _IONBF, 0);

	/* Files. */
	int file = open("file", O_RDWR | O_CREAT, 0644);
	CHECK(write(file, "0123456789", 10) == 10);
	CHECK(lseek(file, 4, SEEK_SET) == 4);
	int twin = dup(file);
	int other = open("file", O_RDONLY | O_CLOEXEC);
	int append = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
	CHECK(write(append, "one\n", 4) == 4);
	int gone = open("gone", O_RDWR | O_CREAT, 0640);
	CHECK(write(gone, "still here", 10) == 10);
	CHECK(lseek(gone, 6, SEEK_SET) == 6);
	unlink("gone");
	int directory = open(".", O_RDONLY | O_DIRECTORY);
	int null = open("/dev/null", O_RDWR);
	int proc = open("/proc/self/comm", O_RDONLY);
	CHECK(flock(other, LOCK_SH) == 0);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3 };
	CHECK(fcntl(append, F_SETLK, &lock) == 0);
	int high = fcntl(file, F_DUPFD, 300);

	/* Pipes. */
	int pipes[2], full[2];
	CHECK(pipe(pipes) == 0 && write(pipes[1], "in the pipe", 11) == 11);
	CHECK(pipe2(full, O_NONBLOCK) == 0);
	fcntl(full[1], F_SETPIPE_SZ, 8192);
	memset(bytes, 'f', sizeof(bytes));
	while (write(full[1], bytes, 1000) > 0)
		;
	mkfifo("fifo", 0600);
	int fifo = open("fifo", O_RDWR);
	CHECK(write(fifo, "named", 5) == 5);
	int lonely[2];
	CHECK(pipe(lonely) == 0 && write(lonely[1], "last words", 10) == 10);
	close(lonely[1]);

	/* Events. */
	int event = eventfd(7, EFD_NONBLOCK);
	int semaphore = eventfd(3, EFD_SEMAPHORE);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct itimerspec soon = { .it_value = { .tv_sec = 3600 }, .it_interval = { .tv_sec = 7 } };
	CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
	sigset_t mask, old;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_BLOCK, &mask, &old);
	int signals = signalfd(-1, &mask, SFD_NONBLOCK);
	int watch = inotify_init1(IN_NONBLOCK);
	mkdir("watched", 0755);
	inotify_rm_watch(watch, inotify_add_watch(watch, "/", IN_CREATE));
	/* The end of that watch is an event, too. */
	CHECK(read(watch, bytes, sizeof(bytes)) > 0);
	int wd = inotify_add_watch(watch, "watched", IN_CREATE);
	int unread = inotify_init1(IN_NONBLOCK);
	int unread_wd = inotify_add_watch(unread, ".", IN_CREATE);
	close(open("unseen", O_CREAT, 0600));
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event want = { .events = EPOLLIN, .data.u64 = 0xdeadbeefcafe };
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &want) == 0);
	want.data.u64 = 5;
	want.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, high, &want) < 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &want) == 0);

	/* Memory. */
	int memfd = memfd_create("shared thing", MFD_ALLOW_SEALING);
	CHECK(ftruncate(memfd, 20000) == 0);
	char *shared = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	strcpy(shared + 9000, "in the memfd");
	CHECK(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	char *anonymous = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	strcpy(anonymous + 5000, "shared and nameless");
	char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	private[1] = 'X';
	char *of_gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, gone, 0);
	char *secret = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(secret, "behind a wall");
	mprotect(secret, 8192, PROT_NONE);
	char *zero = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(zero, 'z', 1 << 20);
	madvise(zero + 4096, 8192, MADV_DONTNEED);
	madvise(zero, 1 << 20, MADV_DONTFORK);

	/* Sockets. */
	int stream[2], datagram[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
	CHECK(write(stream[0], "hello ", 6) == 6 && write(stream[0], "there", 5) == 5);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram) == 0);
	CHECK(write(datagram[0], "first", 5) == 5 && write(datagram[0], "second", 6) == 6);
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	snprintf(path.sun_path, sizeof(path.sun_path), "%s/socket", get_current_dir_name());
	int local = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(local, (void *)&path, sizeof(path)) == 0 && listen(local, 9) == 0);
	int server = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	CHECK(setsockopt(server, SOL_SOCKET, SO_KEEPALIVE, &one, 4) == 0);
	CHECK(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, 4) == 0);
	CHECK(setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, 4) == 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(server, (void *)&address, sizeof(address)) == 0 && listen(server, 33) == 0);
	CHECK(getsockname(server, (void *)&address, &length) == 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(client, (void *)&address, sizeof(address)) == 0);
	int accepted = accept(server, NULL, NULL);
	CHECK(write(client, "to the server", 13) == 13 && write(accepted, "to the client", 13) == 13);
	/* As much as goes into it; only a part of that is under way. */
	int source = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(source, (void *)&address, sizeof(address)) == 0);
	int drain = accept(server, NULL, NULL);
	fcntl(source, F_SETFL, O_NONBLOCK);
	unsigned int sent = 0, received = 0;
	for (ssize_t got = 0; got >= 0; sent += got) {
		for (unsigned int i = 0; i < 1000; i++)
			bytes[i] = (sent + i) % 251;
		got = write(source, bytes, 1000);
		if (got < 0)
			break;
	}
	CHECK(sent > 100000);
	int udp = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	CHECK(bind(udp, (void *)&six, sizeof(six)) == 0);
	length = sizeof(six);
	CHECK(getsockname(udp, (void *)&six, &length) == 0);

	/* The process itself. */
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	CHECK(sigaltstack(&alternate, NULL) == 0);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGRTMIN + 3, &action, NULL);
	signal(SIGHUP, SIG_IGN);
	sigaddset(&mask, SIGUSR1);
	sigdelset(&mask, SIGUSR2);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	union sigval value = { .sival_int = 4711 };
	CHECK(sigqueue(getpid(), SIGUSR1, value) == 0);
	kill(getpid(), SIGUSR2);
	struct itimerval alarm_in = { .it_value = { .tv_sec = 3 } };
	setitimer(ITIMER_REAL, &alarm_in, NULL);
	timer_t skipped, posix;
	struct sigevent notify = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3 };
	notify.sigev_value.sival_int = 99;
	CHECK(timer_create(CLOCK_MONOTONIC, &notify, &skipped) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &notify, &posix) == 0);
	timer_delete(skipped);
	struct itimerspec in_three = { .it_value = { .tv_sec = 3 } };
	CHECK(timer_settime(posix, 0, &in_three, NULL) == 0);
	umask(0037);
	struct rlimit limit = { 1000, 2000 };
	setrlimit(RLIMIT_NOFILE, &limit);
	prctl(PR_SET_NAME, "odd (name) x");
	char *brk = sbrk(0);
	setpriority(PRIO_PROCESS, 0, 15);
	CHECK(chdir("watched") == 0);
	struct sockaddr_un relative = { .sun_family = AF_UNIX, .sun_path = "../relative" };
	int nearby = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(nearby, (void *)&relative, sizeof(relative)) == 0 && listen(nearby, 3) == 0);
	int64_t monotonic = now_ms(CLOCK_MONOTONIC), boot = now_ms(CLOCK_BOOTTIME);

	printf("ready\n");
	while (access("../go", F_OK))
		usleep(10000);

	int visitor = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(visitor, (void *)&relative, sizeof(relative)) == 0);
	CHECK(accept(nearby, NULL, NULL) > 0);
	memset(&relative, 0, sizeof(relative));
	length = sizeof(relative);
	CHECK(getsockname(nearby, (void *)&relative, &length) == 0);
	CHECK(!strcmp(relative.sun_path, "../relative"));
	CHECK(chdir("..") == 0);
	/* The clock goes on: no jump, in particular none backwards. */
	CHECK(now_ms(CLOCK_MONOTONIC) >= monotonic && now_ms(CLOCK_MONOTONIC) < monotonic + 30000);
	CHECK(now_ms(CLOCK_BOOTTIME) >= boot && now_ms(CLOCK_BOOTTIME) < boot + 60000);

	CHECK(read_is(file, "45") && read_is(twin, "67") && read_is(high, "89"));
	CHECK(read_is(other, "0123") && fcntl(other, F_GETFD) == FD_CLOEXEC);
	CHECK(write(append, "two\n", 4) == 4 && lseek(append, 0, SEEK_CUR) == 8);
	CHECK(read_is(gone, "here") && lseek(gone, 0, SEEK_SET) == 0 && read_is(gone, "still"));
	struct stat stat;
	CHECK(fstat(gone, &stat) == 0 && stat.st_nlink == 0 && (stat.st_mode & 0777) == 0640);
	CHECK(openat(directory, "file", O_RDONLY) > 0);
	CHECK(write(null, "x", 1) == 1);
	CHECK(lseek(proc, 0, SEEK_SET) == 0 && read_is(proc, "odd (name) x\n"));
	int rival = open("file", O_RDONLY);
	CHECK(flock(rival, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	if (!fork()) {
		lock.l_type = F_WRLCK;
		_exit(fcntl(append, F_SETLK, &lock) == 0);
	}
	int status = -1;
	CHECK(wait(&status) > 0 && status == 0);

	struct epoll_event events[4];
	CHECK(epoll_wait(epoll, events, 4, 0) == 1 && events[0].data.u64 == 0xdeadbeefcafe);
	CHECK(read_is(pipes[0], "in the pipe") && epoll_wait(epoll, events, 4, 0) == 0);
	CHECK(fcntl(full[1], F_GETPIPE_SZ) == 8192 && write(full[1], bytes, 4096) < 0);
	int taken = 0;
	while (read(full[0], bytes, 1) == 1 && bytes[0] == 'f')
		taken++;
	CHECK(taken >= 2000 && errno == EAGAIN);
	CHECK(read_is(fifo, "named"));
	CHECK(read_is(lonely[0], "last words") && read(lonely[0], bytes, 1) == 0);

	uint64_t count = 0;
	CHECK(read(event, &count, 8) == 8 && count == 7 && read(event, &count, 8) < 0);
	CHECK(read(semaphore, &count, 8) == 8 && count == 1);
	CHECK(timerfd_gettime(timer, &soon) == 0 && soon.it_interval.tv_sec == 7);
	CHECK(soon.it_value.tv_sec > 3500 && soon.it_value.tv_sec <= 3600);
	struct signalfd_siginfo siginfo;
	CHECK(read(signals, &siginfo, sizeof(siginfo)) > 0 && siginfo.ssi_signo == SIGUSR2);
	close(open("watched/new", O_CREAT, 0600));
	struct inotify_event *change = (void *)bytes;
	CHECK(read(watch, bytes, sizeof(bytes)) > 0 && change->wd == wd && !strcmp(change->name, "new"));

	/* Unread events are lost, with a warning. */
	CHECK(read(unread, bytes, sizeof(bytes)) >= 16 && change->mask == IN_Q_OVERFLOW);
	while (read(unread, bytes, sizeof(bytes)) > 0)
		;
	close(open("seen again", O_CREAT, 0600));
	CHECK(read(unread, bytes, sizeof(bytes)) > 0 && change->wd == unread_wd);
	CHECK(!strcmp(change->name, "seen again"));

	CHECK(!strcmp(shared + 9000, "in the memfd"));
	CHECK(pread(memfd, bytes, 12, 9000) == 12 && !memcmp(bytes, "in the memfd", 12));
	CHECK(fcntl(memfd, F_GET_SEALS) == F_SEAL_SHRINK && fstat(memfd, &stat) == 0);
	CHECK(stat.st_size == 20000);
	CHECK(!strcmp(anonymous + 5000, "shared and nameless"));
	if (!fork()) {
		strcpy(anonymous, "from the child");
		_exit(0);
	}
	wait(NULL);
	CHECK(!strcmp(anonymous, "from the child"));
	mapped[0] = 'M';
	CHECK(pread(other, bytes, 2, 0) == 2 && bytes[0] == 'M' && bytes[1] == '1');
	CHECK(private[1] == 'X' && private[2] == '2');
	CHECK(!memcmp(of_gone, "still here", 10));
	of_gone[0] = 'S';
	CHECK(pread(gone, bytes, 1, 0) == 1 && bytes[0] == 'S');
	mprotect(secret, 8192, PROT_READ);
	CHECK(!strcmp(secret, "behind a wall"));
	CHECK(zero[4095] == 'z' && zero[4096] == 0 && zero[12287] == 0 && zero[12288] == 'z');
	madvise(zero, 4096, MADV_DONTNEED);
	CHECK(zero[0] == 0 && zero[4095] == 0);

	CHECK(read_is(stream[1], "hello there") && write(stream[1], "back", 4) == 4);
	CHECK(read_is(stream[0], "back"));
	CHECK(read(datagram[1], bytes, 100) == 5 && read(datagram[1], bytes, 100) == 6);
	int caller = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(caller, (void *)&path, sizeof(path)) == 0 && accept(local, NULL, NULL) > 0);
	/* Both ends are here: nothing has happened to them. */
	CHECK(read_is(client, "to the client") && read_is(accepted, "to the server"));
	CHECK(write(client, "more", 4) == 4 && read_is(accepted, "more"));
	CHECK(write(accepted, "less", 4) == 4 && read_is(client, "less"));
	while (received < sent) {
		ssize_t got = read(drain, bytes, sizeof(bytes));

		CHECK(got > 0);
		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got; i++, received++)
			failures += (unsigned char)bytes[i] != received % 251;
	}
	CHECK(received == sent && write(source, "end", 3) == 3 && read_is(drain, "end"));
	close(source);
	CHECK(read(drain, bytes, 1) == 0);
	int again = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(again, (void *)&address, sizeof(address)) == 0);
	CHECK(accept(server, NULL, NULL) > 0);
	int set = 0;
	length = sizeof(set);
	CHECK(getsockopt(server, SOL_SOCKET, SO_KEEPALIVE, &set, &length) == 0 && set);
	CHECK(getsockopt(server, IPPROTO_TCP, TCP_NODELAY, &set, &length) == 0 && set);
	CHECK(getsockopt(server, SOL_SOCKET, SO_REUSEADDR, &set, &length) == 0 && set);
	CHECK(sendto(udp, "u", 1, 0, (void *)&six, sizeof(six)) == 1 && read_is(udp, "u"));

	sigpending(&mask);
	CHECK(sigismember(&mask, SIGUSR1) && !got_usr1);
	sigprocmask(SIG_SETMASK, &old, NULL);
	CHECK(got_usr1 == 4711 && on_stack);
	CHECK(signal(SIGHUP, SIG_DFL) == SIG_IGN);
	for (int i = 0; i < 1000 && !(got_alarm && got_timer); i++)
		usleep(10000);
	CHECK(got_alarm && got_timer == 99);
	CHECK(umask(0) == 0037);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 1000);
	CHECK(limit.rlim_max == 2000);
	CHECK(sbrk(0) == brk && sbrk(1 << 20) == brk);
	memset(brk, 1, 1 << 20);
	CHECK(getpriority(PRIO_PROCESS, 0) == 15);
	CHECK(readlink("/proc/self/exe", bytes, sizeof(bytes)) > 5);
	/* Nothing of the restorer is left. */
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(bytes, sizeof(bytes), maps))
		CHECK(strncmp(bytes, "1000", 4) || bytes[12] != '-');
	int descriptors = 0;
	for (int fd = 0; fd < 1000; fd++)
		descriptors += fcntl(fd, F_GETFD) >= 0;
	CHECK(descriptors < 60);
	printf("%d failures\n", failures);
	return failures;
}
