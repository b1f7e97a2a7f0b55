/*
 * A tree of 20 processes in several groups and sessions that passes a token around through pipes,
 * with a zombie and shared memory. The root checks the order of all that it sees.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS 19

int main(void)
{
	int pipes[MEMBERS + 1][2];
	pid_t children[4], zombie;
	long token = 0, failures = 0;
	long *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	setvbuf(stdout, NULL, _IONBF, 0);
	for (int i = 0; i <= MEMBERS; i++)
		if (pipe(pipes[i]))
			return 100;
	zombie = fork();
	if (!zombie)
		_exit(42);
	for (int i = 0; i < MEMBERS; i++) {
		pid_t child = fork();

		if (i < 4 && child)
			children[i] = child;
		if (child)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		/* Every fourth is in a session of its own, others in a group of their own. */
		if (i % 4 == 1)
			setsid();
		if (i % 4 == 2)
			setpgid(0, 0);
		pid_t group = getpgrp(), session = getsid(0), parent = getppid(), own = getpid();
		for (;;) {
			if (read(pipes[i][0], &token, sizeof(token)) != sizeof(token))
				_exit(1);
			if (group != getpgrp() || session != getsid(0) || own != getpid() ||
			    parent != getppid())
				shared[0]++;
			shared[1]++;
			token++;
			if (write(pipes[i + 1][1], &token, sizeof(token)) != sizeof(token))
				_exit(1);
		}
	}
	for (int round = 1;; round++) {
		long sent = token;

		if (write(pipes[0][1], &token, sizeof(token)) != sizeof(token))
			return 101;
		if (read(pipes[MEMBERS][0], &token, sizeof(token)) != sizeof(token))
			return 102;
		failures += token != sent + MEMBERS;
		if (round == 3)
			printf("ready\n");
		if (round > 3 && !access("go", F_OK) && round % 64 == 0)
			break;
		usleep(200);
	}
	int status = 0;
	if (waitpid(zombie, &status, 0) != zombie || WEXITSTATUS(status) != 42) {
		printf("the zombie is lost\n");
		failures++;
	}
	printf("%ld differences seen by children, %ld by the root\n", shared[0], failures);
	failures += shared[0] + (shared[1] < 19 * 3);
	kill(children[0], SIGTERM);
	waitpid(children[0], &status, 0);
	failures += WTERMSIG(status) != SIGTERM;
	return failures;
}
