/*
 * Waits uninterruptibly, as vfork does, for a child that sleeps for so many seconds, and ends with
 * 0 if the child's exit status arrives.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 3;
	pid_t child = vfork();
	int status = 0;

	if (!child) {
		sleep(seconds);
		_exit(7);
	}
	waitpid(child, &status, 0);
	return WEXITSTATUS(status) != 7;
}
