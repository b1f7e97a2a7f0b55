/*
 * States that a restore cannot make again: the argument chooses one. Says "ready", waits until a file "go"
 * appears in its directory, and checks that its threads run on. The number of failures is the exit code.
 */
#define _GNU_SOURCE
#include <asm/ldt.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static volatile int tid, ended, counter;
static volatile char selector;
static const char *kind;
static pid_t child;

static int is(const char *other)
{
	return !strcmp(kind, other);
}

static pid_t sleeping_child(int flags, int signal)
{
	struct clone_args arguments = { .flags = flags, .exit_signal = signal };
	pid_t made = syscall(SYS_clone3, &arguments, sizeof(arguments));

	if (!made) {
		prctl(PR_SET_PDEATHSIG, is("death-signal") ? SIGTERM : SIGKILL);
		for (;;)
			pause();
	}
	return made;
}

static void leave_clocks(void)
{
	CHECK(unshare(CLONE_NEWTIME) == 0);
	int offsets = open("/proc/self/timens_offsets", O_WRONLY);
	CHECK(write(offsets, "monotonic 1000000 0", 19) == 19);
	close(offsets);
}

/* A child with the program's clocks that has a child with others. */
static pid_t other_clocks(void)
{
	int ready[2];
	char byte = 0;

	CHECK(pipe(ready) == 0);
	pid_t made = fork();
	if (!made) {
		int own = open("/proc/self/ns/time", O_RDONLY);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		leave_clocks();
		sleeping_child(0, SIGCHLD);
		CHECK(setns(own, CLONE_NEWTIME) == 0);
		byte = failures;
		CHECK(write(ready[1], &byte, 1) == 1);
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &byte, 1) == 1 && byte == 0);
	return made;
}

static void *other(void *unused)
{
	if (is("net"))
		CHECK(unshare(CLONE_NEWNET) == 0);
	if (is("uts"))
		CHECK(unshare(CLONE_NEWUTS) == 0);
	if (is("ipc"))
		CHECK(unshare(CLONE_NEWIPC) == 0);
	if (is("mnt"))
		CHECK(unshare(CLONE_NEWNS) == 0);
	if (is("directory"))
		CHECK(unshare(CLONE_FS) == 0);
	if (is("death-signal"))
		child = sleeping_child(0, SIGCHLD);
	if (is("keyring"))
		CHECK(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_THREAD_KEYRING, 1) >= 0);
	if (is("dispatch"))
		CHECK(prctl(59, 1, 0, 0, &selector) == 0);
	tid = syscall(SYS_gettid);
	while (!ended) {
		counter++;
		usleep(1000);
	}
	return unused;
}

static void after_thread(pthread_t thread)
{
	char path[64];
	timer_t timer;
	clockid_t clock = CLOCK_MONOTONIC;
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	struct user_desc segment = { .base_addr = 0x1000, .limit = 0xfff, .seg_32bit = 1 };

	snprintf(path, sizeof(path), "/proc/self/task/%d", tid);
	if (is("task-directory"))
		CHECK(chdir(path) == 0);
	if (is("task-file"))
		CHECK(openat(open(path, O_RDONLY), "status", O_RDONLY) >= 0);
	if (is("thread-pidfd"))
		CHECK(syscall(SYS_pidfd_open, tid, O_EXCL) >= 0);
	if (is("outer-pidfd"))
		CHECK(syscall(SYS_pidfd_open, 1, 0) >= 0);
	if (is("pid-for-children"))
		CHECK(unshare(CLONE_NEWPID) == 0);
	if (is("time-for-children"))
		leave_clocks();
	if (is("other-clocks"))
		child = other_clocks();
	if (is("segments"))
		CHECK(syscall(SYS_modify_ldt, 1, &segment, sizeof(segment)) == 0);
	if (is("shared-directory"))
		child = sleeping_child(CLONE_FS, SIGCHLD);
	if (is("timer-clock"))
		CHECK(pthread_getcpuclockid(thread, &clock) == 0);
	if (is("timer-thread")) {
		event.sigev_notify = SIGEV_THREAD_ID;
		event.sigev_signo = SIGUSR1;
		event._sigev_un._tid = tid;
	}
	if (is("timer-clock") || is("timer-thread")) {
		CHECK(timer_create(clock, &event, &timer) == 0);
		ended = 1;
		pthread_join(thread, NULL);
	}
	if (is("zombie")) {
		siginfo_t info;

		child = sleeping_child(0, SIGUSR2);
		signal(SIGUSR2, SIG_IGN);
		kill(child, SIGKILL);
		CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT | __WALL) == 0);
	}
}

int main(int count, char **arguments)
{
	pthread_t thread;
	int here = open(".", O_RDONLY | O_DIRECTORY);

	setvbuf(stdout, NULL, _IOLBF, 0);
	kind = count > 1 ? arguments[1] : "";
	CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
	while (!tid)
		usleep(1000);
	after_thread(thread);
	printf(failures ? "cannot make it\n" : "ready\n");
	while (faccessat(here, "go", F_OK, 0))
		usleep(10000);
	if (!ended) {
		int before = counter;

		usleep(100000);
		CHECK(counter > before);
		ended = 1;
		pthread_join(thread, NULL);
	}
	if (child)
		kill(child, SIGKILL);
	return failures;
}
