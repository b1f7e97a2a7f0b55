/* Checks of a program that looks at its own state: each one that fails is printed and counted. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("line %d: %s (errno %d)\n", __LINE__, #condition, errno);           \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

#endif
