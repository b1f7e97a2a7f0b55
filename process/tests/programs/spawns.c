/*
 * Creates and ends threads, children and vfork children without pause, and counts in shared
 * memory (its first argument is a file). Stopped as a whole, the counter stands still.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static atomic_ulong *counter;

static void *count(void *unused)
{
	(void)unused;
	for (int i = 0; i < 1000; i++)
		atomic_fetch_add(counter, 1);
	return NULL;
}

static void *make_threads(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_t thread;

		if (!pthread_create(&thread, NULL, count, NULL))
			pthread_join(thread, NULL);
	}
	return NULL;
}

static void *make_spawns(void *unused)
{
	char *arguments[] = { "sh", "-c", "exit 7", NULL };

	(void)unused;
	for (;;) {
		pid_t child;
		int status;

		if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ))
			abort();
		waitpid(child, &status, 0);
		if (WEXITSTATUS(status) != 7)
			abort();
		atomic_fetch_add(counter, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t one, two;
	int fd = open(argc > 1 ? argv[1] : "counter", O_RDWR | O_CREAT, 0600);

	if (fd < 0 || ftruncate(fd, 4096))
		return 1;
	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pthread_create(&one, NULL, make_threads, NULL);
	pthread_create(&two, NULL, make_spawns, NULL);
	for (;;) {
		pid_t child = fork();

		if (!child) {
			count(NULL);
			if (!fork()) {
				count(NULL);
				_exit(0);
			}
			while (wait(NULL) > 0)
				;
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
}
