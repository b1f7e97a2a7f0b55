/*
 * What a parent sees of its children: the signal at their end, the user of one that has ended. Directories
 * that are outside of the root, and directories of /proc. Says "ready", waits until a file "go" appears in
 * its directory, and checks all of it. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define USER 1234
#define PIDFD_THREAD_FLAG O_EXCL

static volatile sig_atomic_t got;
static int here;

static void handler(int signal)
{
	got = signal;
}

static pid_t child_with_signal(int signal)
{
	struct clone_args arguments = { .exit_signal = signal };
	pid_t child = syscall(SYS_clone3, &arguments, sizeof(arguments));

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child;
}

static void wait_for_go(void)
{
	while (faccessat(here, "go", F_OK, 0))
		usleep(10000);
}

/* A child that checks where it is; its failures are its exit code. */
static pid_t child_in(const char *root, const char *directory)
{
	pid_t child = fork();
	struct stat before, after;

	if (child)
		return child;
	if (root)
		CHECK(chroot(root) == 0);
	CHECK(chdir(directory) == 0);
	if (root)
		CHECK(fchdir(here) == 0 && chdir("jailed") == 0);
	CHECK(stat(".", &before) == 0);
	wait_for_go();
	CHECK(stat(".", &after) == 0);
	if (root)
		CHECK(before.st_ino == after.st_ino);
	else
		CHECK(access("status", F_OK) == 0 || access("0", F_OK) == 0);
	fflush(stdout);
	_exit(failures);
}

static void check_end(pid_t child)
{
	int status = -1;

	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void check_signals(pid_t usr1, pid_t silent)
{
	siginfo_t info;

	got = 0;
	kill(usr1, SIGKILL);
	CHECK(waitid(P_PID, usr1, &info, WEXITED | __WALL) == 0 && got == SIGUSR1);
	got = 0;
	kill(silent, SIGKILL);
	CHECK(waitpid(silent, NULL, 0) < 0 && errno == ECHILD);
	CHECK(waitpid(silent, NULL, __WALL) == silent && got == 0);
}

/* Timers of absolute times: the flags, and the time of day of one. */
static int make_timer(int clock, int flags, time_t after)
{
	struct itimerspec at = { { 0 } };
	int timer = timerfd_create(clock, 0);

	clock_gettime(clock, &at.it_value);
	at.it_value.tv_sec += after;
	CHECK(timerfd_settime(timer, flags, &at, NULL) == 0);
	return timer;
}

static int flags_of(int timer)
{
	char path[64], text[512] = "";

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", timer);
	int info = open(path, O_RDONLY);
	CHECK(read(info, text, sizeof(text) - 1) > 0);
	close(info);
	char *flags = strstr(text, "settime flags: ");
	return flags ? (int)strtol(flags + 15, NULL, 8) : -1;
}

static long milliseconds_left(int timer)
{
	struct itimerspec left;

	CHECK(timerfd_gettime(timer, &left) == 0);
	return left.it_value.tv_sec * 1000 + left.it_value.tv_nsec / 1000000;
}

int main(void)
{
	const int absolute = TFD_TIMER_ABSTIME, both = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
	siginfo_t info;
	char path[64];
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGUSR1, handler);
	here = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(mkdir("jail", 0755) == 0 && mkdir("jailed", 0755) == 0);
	pid_t usr1 = child_with_signal(SIGUSR1), silent = child_with_signal(0);
	pid_t ended = fork();
	if (!ended)
		_exit(setuid(USER) ? 1 : 7);
	CHECK(waitid(P_PID, ended, &info, WEXITED | WNOWAIT) == 0 && info.si_uid == USER);
	snprintf(path, sizeof(path), "/proc/%d", silent);
	pid_t outside = child_in("jail", "/"), of_itself = child_in(NULL, "/proc/self");
	pid_t of_descriptors = child_in(NULL, "/proc/self/fd"), of_other = child_in(NULL, path);
	int pidfd = syscall(SYS_pidfd_open, getpid(), PIDFD_THREAD_FLAG);
	int day = make_timer(CLOCK_REALTIME, both, 1000);
	int steady = make_timer(CLOCK_MONOTONIC, absolute, 1000);
	usleep(300000);
	struct timespec now, later;
	clock_gettime(CLOCK_REALTIME, &now);
	long left = milliseconds_left(day);
	printf("ready\n");
	wait_for_go();
	CHECK(waitid(P_PID, ended, &info, WEXITED | WNOWAIT) == 0);
	CHECK(info.si_uid == USER && info.si_status == 7);
	CHECK(waitpid(ended, &status, 0) == ended);
	check_end(outside);
	check_end(of_itself);
	check_end(of_descriptors);
	check_end(of_other);
	check_signals(usr1, silent);
	CHECK((fcntl(pidfd, F_GETFL) & PIDFD_THREAD_FLAG) != 0);
	CHECK(flags_of(day) == both && flags_of(steady) == absolute);
	clock_gettime(CLOCK_REALTIME, &later);
	long passed = (later.tv_sec - now.tv_sec) * 1000 + (later.tv_nsec - now.tv_nsec) / 1000000;
	long late = milliseconds_left(day) - (left - passed);
	CHECK(late >= -20 && late <= 20);
	CHECK(milliseconds_left(steady) > 900000 && milliseconds_left(steady) <= 1000000);
	return failures;
}
