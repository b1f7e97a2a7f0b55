/* A child with filters of system calls, which checks itself when its door is closed. */
#ifndef CONFINED_H
#define CONFINED_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static pid_t confined;
static int door[2];

/* In the child: a call fails with this error from now on. */
static void forbid(int call, int error)
{
	struct sock_filter code[] = {
		{ BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr) },
		{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
	};
	struct sock_fprog program = { 4, code };

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		_exit(10);
}

static void check_confined(void)
{
	int status;

	close(door[1]);
	CHECK(waitpid(confined, &status, 0) == confined);
	CHECK(status == 0 || !printf("confined: %x\n", status));
}

#endif
