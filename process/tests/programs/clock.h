/* The time since the machine started, in seconds. */
#ifndef CLOCK_H
#define CLOCK_H

#include <time.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

#endif
