/*
 * Waits uninterruptibly, as vfork does, for a child that waits for a file, and ends with 0 if the
 * child's exit status arrives.
 */
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *go = argc > 1 ? argv[1] : "go";
	pid_t child = vfork();
	int status = 0;

	if (!child) {
		/* Not for ever: nothing ends it if the test stops earlier. */
		for (int i = 0; i < 30000 && access(go, F_OK); i++)
			usleep(10000);
		_exit(7);
	}
	waitpid(child, &status, 0);
	return WEXITSTATUS(status) != 7;
}
