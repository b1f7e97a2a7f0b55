/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* System calls of the first program, which has no C library. */
#ifndef DORMOUSE_SYSTEM_CALL_H
#define DORMOUSE_SYSTEM_CALL_H

enum {
	CALL_EXIT = 1, CALL_FORK = 2, CALL_READ = 3, CALL_WRITE = 4, CALL_OPEN = 5, CALL_CLOSE = 6, CALL_LSEEK = 19,
	CALL_MOUNT = 21, CALL_PIPE = 42, CALL_IOCTL = 54, CALL_REBOOT = 88, CALL_WAIT4 = 114,
	CALL_SOCKET = 281, CALL_CONNECT = 283, CALL_SETSOCKOPT = 294, CALL_CLOCK_GETTIME = 403,
	CALL_SLEEP = 407,
};
enum { READ_ONLY = 0, WRITE_ONLY = 1, READ_WRITE = 2, CREATE = 0100, TRUNCATE = 01000 };

static inline long call(long number, long a, long b, long c, long d, long e)
{
	register long r7 __asm("r7") = number;
	register long r0 __asm("r0") = a;
	register long r1 __asm("r1") = b;
	register long r2 __asm("r2") = c;
	register long r3 __asm("r3") = d;
	register long r4 __asm("r4") = e;

	__asm volatile ("svc 0" : "+r" (r0) : "r" (r7), "r" (r1), "r" (r2), "r" (r3), "r" (r4) : "memory");
	return r0;
}

#endif
