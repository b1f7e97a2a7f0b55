// Says every millisecond that it runs, where, and how often it has said so: a line is the time, the
// PID namespace (another one for every run) and a counter in memory.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	for (unsigned long count = 0;; count++) {
		char namespace[64] = "";
		char line[160];
		struct timespec now;
		int file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
		if (readlink("/proc/self/ns/pid", namespace, sizeof(namespace) - 1) < 0 || file < 0)
			return 1;
		clock_gettime(CLOCK_REALTIME, &now);
		int length = snprintf(line, sizeof(line), "%lld %s %lu\n",
				      now.tv_sec * 1000000000ll + now.tv_nsec, namespace, count);
		if (write(file, line, length) != length)
			return 1;
		close(file);
		usleep(1000);
	}
}
