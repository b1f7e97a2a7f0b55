/* Details of open files: O_PATH, owners of signals, times, watches and what was reported once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"

static void make(const char *path, const char *text)
{
	int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);

	CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
	close(file);
}

/* Whether the file behind a descriptor of any kind begins with a text. */
static int holds(int number, const char *text)
{
	char path[64], bytes[32] = "";

	sprintf(path, "/proc/self/fd/%d", number);
	int file = open(path, O_RDONLY);
	ssize_t got = read(file, bytes, strlen(text));
	close(file);
	return got > 0 && !strcmp(bytes, text);
}

static int owned(int number, int signal)
{
	struct f_owner_ex owner = { 0, 0 };

	CHECK(!fcntl(number, F_GETOWN_EX, &owner));
	return owner.type == F_OWNER_PID && owner.pid == getpid() &&
	       fcntl(number, F_GETSIG) == signal;
}

static void own(int number, int signal)
{
	CHECK(!fcntl(number, F_SETOWN, getpid()));
	CHECK(!fcntl(number, F_SETSIG, signal));
}

int main(void)
{
	struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
	struct stat about;
	char here[4096];
	int ends[2];

	setvbuf(stdout, NULL, _IONBF, 0);

	make("replaced", "old");
	int replaced = open("replaced", O_PATH);
	make("new", "NEW");
	CHECK(!rename("new", "replaced"));
	make("gone", "gone");
	int gone = open("gone", O_PATH);
	CHECK(!unlink("gone"));
	CHECK(!mkfifo("fifo", 0600));
	int fifo = open("fifo", O_PATH);
	CHECK(!mkdir("d (deleted)", 0755) && !chdir("d (deleted)"));

	int file = open("../replaced", O_RDWR), event = eventfd(0, 0);
	CHECK(!pipe(ends));
	own(file, SIGRTMIN + 3);
	own(ends[0], SIGUSR2);
	own(event, SIGUSR1);

	int memory = memfd_create("times", 0);
	CHECK(write(memory, "m", 1) == 1);
	CHECK(!geteuid() ? !fchown(memory, 1000, 1001) : 1);
	CHECK(!futimens(memory, times));
	int unlinked = open("unlinked", O_CREAT | O_RDWR, 0600);
	CHECK(write(unlinked, "u", 1) == 1 && !unlink("unlinked"));
	CHECK(!futimens(unlinked, times));
	/* Not every file system has attributes. */
	int has_attribute = !fsetxattr(unlinked, "user.a", "value", 5, 0);
	CHECK(fsetxattr(memory, "user.b", "", 0, 0) == 0 || errno == EOPNOTSUPP);
	int attributes = flistxattr(memory, NULL, 0);

	int watches = inotify_init1(IN_NONBLOCK);
	CHECK(inotify_add_watch(watches, "../replaced", IN_MODIFY | IN_ONESHOT) == 1);

	int poll = epoll_create1(0), other = eventfd(0, 0);
	struct epoll_event once = { EPOLLIN | EPOLLONESHOT, { .u64 = 7 } }, got;
	struct epoll_event later = { EPOLLIN | EPOLLET, { .u64 = 8 } };
	CHECK(!epoll_ctl(poll, EPOLL_CTL_ADD, other, &later));
	CHECK(!epoll_ctl(poll, EPOLL_CTL_ADD, ends[0], &once));
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(epoll_wait(poll, &got, 1, 0) == 1 && got.data.u64 == 7);
	CHECK(eventfd_write(other, 1) == 0);

	puts("ready");
	while (access("../go", F_OK))
		usleep(10000);

	CHECK(holds(replaced, "old"));
	CHECK(holds(gone, "gone"));
	CHECK(fcntl(fifo, F_GETFL) & O_PATH);
	CHECK(!fstat(fifo, &about) && S_ISFIFO(about.st_mode));
	CHECK(getcwd(here, sizeof(here)) && strstr(here, "/d (deleted)"));

	CHECK(owned(file, SIGRTMIN + 3));
	CHECK(owned(ends[0], SIGUSR2));
	CHECK(owned(event, SIGUSR1));

	CHECK(!fstat(memory, &about));
	CHECK(about.st_atim.tv_sec == 1000 && about.st_atim.tv_nsec == 5);
	CHECK(about.st_mtim.tv_sec == 2000 && about.st_mtim.tv_nsec == 7);
	CHECK(geteuid() || (about.st_uid == 1000 && about.st_gid == 1001));
	CHECK(!fstat(unlinked, &about) && about.st_atim.tv_sec == 1000);

	CHECK(!has_attribute || fgetxattr(unlinked, "user.a", here, 9) == 5);
	CHECK(flistxattr(memory, NULL, 0) == attributes);

	/* The first event takes the watch away. */
	for (int round = 0; round < 2; round++) {
		CHECK(pwrite(file, "x", 1, 0) == 1);
		ssize_t bytes = read(watches, here, sizeof(here));
		CHECK(round ? bytes < 0 : bytes == 2 * sizeof(struct inotify_event));
	}

	close(ends[1]);
	CHECK(epoll_wait(poll, &got, 1, 0) == 1 && got.data.u64 == 8);
	CHECK(epoll_wait(poll, &got, 1, 100) == 0);
	return failures;
}
