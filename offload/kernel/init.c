// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The only program: suspends the devices in all phases and resumes them, as often as its argument says
 * (once without one), checks files and a process after each time, and ends the machine. With a second
 * argument it also uses the board's devices (devices.c).
 */

#include "devices.h"
#include "output.h"
#include "system_call.h"

enum { FILE_WORDS = 4096 };

static unsigned int words[FILE_WORDS];

static unsigned int pattern(unsigned int cycle, unsigned int index)
{
	return (index + 1) * 0x9e3779b1u ^ cycle * 0x85ebca6bu;
}

static int write_file(unsigned int cycle)
{
	long file = call(CALL_OPEN, (long)"/file", WRITE_ONLY | CREATE | TRUNCATE, 0644, 0, 0), written;

	for (unsigned int i = 0; i < FILE_WORDS; i++)
		words[i] = pattern(cycle, i);
	written = call(CALL_WRITE, file, (long)words, sizeof(words), 0, 0);
	call(CALL_CLOSE, file, 0, 0, 0, 0);
	return written == sizeof(words);
}

static int file_is_good(unsigned int cycle)
{
	long file = call(CALL_OPEN, (long)"/file", READ_ONLY, 0, 0, 0), got;

	for (unsigned int i = 0; i < FILE_WORDS; i++)
		words[i] = 0;
	got = call(CALL_READ, file, (long)words, sizeof(words), 0, 0);
	call(CALL_CLOSE, file, 0, 0, 0, 0);
	for (unsigned int i = 0; i < FILE_WORDS; i++)
		if (words[i] != pattern(cycle, i))
			return 0;
	return got == sizeof(words);
}

/* A process that is there while the devices are suspended, and answers afterwards. */
static long begin_process(int *pipe)
{
	unsigned char asked = 0;
	long child;

	if (call(CALL_PIPE, (long)pipe, 0, 0, 0, 0) < 0)
		return -1;
	child = call(CALL_FORK, 0, 0, 0, 0, 0);
	if (child)
		return child;
	call(CALL_READ, pipe[0], (long)&asked, 1, 0, 0);
	call(CALL_EXIT, (asked * 3) & 0x7f, 0, 0, 0, 0);
	for (;;)
		;
}

static int process_is_good(long child, int *pipe, unsigned int cycle)
{
	unsigned char question = (unsigned char)(cycle + 1);
	int status = 0;

	call(CALL_WRITE, pipe[1], (long)&question, 1, 0, 0);
	if (call(CALL_WAIT4, child, (long)&status, 0, 0, 0) != child)
		return 0;
	call(CALL_CLOSE, pipe[0], 0, 0, 0, 0);
	call(CALL_CLOSE, pipe[1], 0, 0, 0, 0);
	return status == ((question * 3) & 0x7f) << 8;
}

static void one_cycle(unsigned int cycle, int devices)
{
	int pipe[2];
	long child = begin_process(pipe);
	int written = write_file(cycle);

	if (child < 0 || !written)
		report("dormouse: cannot begin cycle ", cycle);
	else if (devices && !devices_before(cycle))
		return;
	else if (put("/sys/power/state", "freeze", 6) != 6)
		report("dormouse: the devices do not suspend in cycle ", cycle);
	else if (!file_is_good(cycle))
		report("dormouse: another file after cycle ", cycle);
	else if (!process_is_good(child, pipe, cycle))
		report("dormouse: no process after cycle ", cycle);
	else if (!devices || devices_after(cycle))
		report("dormouse: files and processes as before cycle ", cycle);
}

/* The stack as the kernel leaves it: count of arguments, and they: its name, cycles, "real" or "in-order". */
__attribute__((used)) static void run(const long *stack)
{
	unsigned int cycles = 1;
	int devices = stack[0] > 2;

	if (stack[0] > 1) {
		cycles = 0;
		for (const char *digit = (const char *)stack[2]; *digit >= '0' && *digit <= '9'; digit++)
			cycles = 10 * cycles + (unsigned int)(*digit - '0');
	}
	call(CALL_MOUNT, (long)"sysfs", (long)"/sys", (long)"sysfs", 0, 0);
	/* With real devices one of them wakes the machine. */
	if (!devices)
		put("/sys/power/pm_test", "platform", 8);
	else if (!devices_begin(*(const char *)stack[3] == 'i'))
		cycles = 0;
	for (unsigned int cycle = 1; cycle <= cycles; cycle++)
		one_cycle(cycle, devices);
	call(CALL_REBOOT, 0xfee1dead, 672274793, 0x1234567, 0, 0);
	for (;;)
		;
}

__attribute__((naked)) void _start(void)
{
	__asm volatile ("mov r0, sp; b run");
}
