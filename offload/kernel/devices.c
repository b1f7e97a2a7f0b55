// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Uses the board's devices after each suspend: the clock that woke the machine, a serial line that leads back to
 * itself, the SD card, a virtio disk, the network. Card and disk begin with what the host wrote there.
 */
#include "devices.h"
#include "output.h"
#include "system_call.h"

enum { NO_TERMINAL = 0400, DIRECT = 0200000, ALARM_SECONDS = 2 };
enum { PIECE = 1 << 16, PIECES = 16, SCRATCH_PLACE = 1 << 20, LINE_BYTES = 200 };
enum { RTC_READ = (int)0x80247009, RTC_SET_ALARM = 0x4028700f, SET_TERMINAL = 0x5402 };
enum { REALTIME = 0, MONOTONIC = 1 };

struct rtc_time { int second, minute, hour, day, month, year, unused[3]; };
struct rtc_alarm { unsigned char enabled, pending; struct rtc_time time; };
struct terminal { unsigned int input, output, control, local; unsigned char line, characters[19]; };

static unsigned int piece[PIECE / 4] __attribute__((aligned(4096)));
static long clock, line, card, disk, network;
static long long slept_at;

/* The card is found in the background: five seconds at most. */
static long opened(const char *path, long flags)
{
	static const long long pause[2] = { 0, 50000000 };
	long file = -1;

	for (int i = 0; i < 100 && file < 0; i++) {
		file = call(CALL_OPEN, (long)path, READ_WRITE | flags, 0, 0, 0);
		if (file < 0)
			call(CALL_SLEEP, MONOTONIC, 0, (long)pause, 0, 0);
	}
	if (file < 0)
		report(path, 0);
	return file;
}

/* What the host wrote there, or this program in a cycle. */
static unsigned int word_at(unsigned int index, unsigned int cycle)
{
	return (index + 1) * 0x9e3779b1u ^ cycle * 0x85ebca6bu;
}

static int piece_is(long file, unsigned int place, unsigned int cycle)
{
	for (unsigned int i = 0; i < PIECE / 4; i++)
		piece[i] = 0;
	if (call(CALL_LSEEK, file, place, 0, 0, 0) != (long)place ||
	    call(CALL_READ, file, (long)piece, PIECE, 0, 0) != PIECE)
		return 0;
	for (unsigned int i = 0; i < PIECE / 4; i++)
		if (piece[i] != word_at(place / 4 + i, cycle))
			return 0;
	return 1;
}

/* Past the kernel's cache: another piece of the host's each time, and one that is written first. */
static int storage_works(long file, unsigned int cycle)
{
	if (!piece_is(file, cycle % PIECES * PIECE, 0))
		return 0;
	for (unsigned int i = 0; i < PIECE / 4; i++)
		piece[i] = word_at(SCRATCH_PLACE / 4 + i, cycle);
	return call(CALL_LSEEK, file, SCRATCH_PLACE, 0, 0, 0) == SCRATCH_PLACE &&
		call(CALL_WRITE, file, (long)piece, PIECE, 0, 0) == PIECE && piece_is(file, SCRATCH_PLACE, cycle);
}

static int line_works(unsigned int cycle)
{
	unsigned char sent[LINE_BYTES], received;
	unsigned int i;

	for (i = 0; i < LINE_BYTES; i++)
		sent[i] = (unsigned char)word_at(i, cycle);
	if (call(CALL_WRITE, line, (long)sent, LINE_BYTES, 0, 0) != LINE_BYTES)
		return 0;
	for (i = 0; i < LINE_BYTES; i++)
		if (call(CALL_READ, line, (long)&received, 1, 0, 0) != 1 || received != sent[i])
			return 0;
	return 1;
}

/* Seconds since 1970. */
static long long seconds_of(const struct rtc_time *time)
{
	/* Years that begin in March have the leap day at their end. */
	int month = (time->month + 10) % 12, year = time->year + 1900 - (time->month < 2);
	long long days = 365ll * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + time->day - 1;

	return (days - 719468) * 86400 + time->hour * 3600 + time->minute * 60 + time->second;
}

static long long rtc_seconds(struct rtc_time *time)
{
	return call(CALL_IOCTL, clock, RTC_READ, (long)time, 0, 0) < 0 ? 0 : seconds_of(time);
}

/* The clock went on while the machine slept, and the kernel's time with it. */
static int clock_works(void)
{
	struct rtc_time time;
	long long now[2] = { 0, 0 };
	long long seconds = rtc_seconds(&time), difference;

	call(CALL_CLOCK_GETTIME, REALTIME, (long)now, 0, 0, 0);
	difference = seconds - now[0];
	return seconds >= slept_at + ALARM_SECONDS && difference >= -1 && difference <= 1;
}

static int network_works(unsigned int cycle)
{
	unsigned char reply[128];
	unsigned short request[16];

	for (int attempt = 0; attempt < 3; attempt++) {
		unsigned int sum = 0;
		long got;

		request[0] = 8;	/* an echo request */
		request[1] = 0;
		request[2] = 0x4d44;
		request[3] = (unsigned short)cycle;
		for (unsigned int i = 4; i < 16; i++)
			request[i] = (unsigned short)word_at(i, cycle);
		for (unsigned int i = 0; i < 16; i++)
			sum += request[i];
		sum = (sum & 0xffff) + (sum >> 16);
		request[1] = (unsigned short)~((sum & 0xffff) + (sum >> 16));
		if (call(CALL_WRITE, network, (long)request, sizeof(request), 0, 0) != sizeof(request))
			return 0;
		/* Behind a header of 20 bytes; replies of earlier cycles may come, too. */
		while ((got = call(CALL_READ, network, (long)reply, sizeof(reply), 0, 0)) > 0) {
			int same = got == 20 + (long)sizeof(request) && reply[20] == 0;

			for (unsigned int i = 4; i < sizeof(request) && same; i++)
				same = reply[20 + i] == ((unsigned char *)request)[i];
			if (same)
				return 1;
		}
	}
	return 0;
}

int devices_begin(int in_order)
{
	/* 8 bits at 115,200 baud, no modem; a read gives up after 25 seconds. */
	static const struct terminal terminal = { .control = 0x18b2, .characters = { [5] = 255 } };
	/* The host of the emulated network; a read gives up after 5 seconds. */
	static const unsigned char host[16] = { 2, 0, 0, 0, 10, 0, 2, 2 };
	static const long timeout[2] = { 5, 0 };

	if (in_order)
		put("/sys/power/pm_async", "0", 1);
	call(CALL_MOUNT, (long)"devtmpfs", (long)"/dev", (long)"devtmpfs", 0, 0);
	clock = opened("/dev/rtc0", 0);
	line = opened("/dev/ttyAMA1", NO_TERMINAL);
	card = opened("/dev/mmcblk0", DIRECT);
	disk = opened("/dev/vda", DIRECT);
	network = call(CALL_SOCKET, 2, 3, 1, 0, 0);
	if (clock < 0 || line < 0 || card < 0 || disk < 0 || network < 0 ||
	    call(CALL_IOCTL, line, SET_TERMINAL, (long)&terminal, 0, 0) < 0 ||
	    call(CALL_SETSOCKOPT, network, 1, 20, (long)timeout, sizeof(timeout)) < 0 ||
	    call(CALL_CONNECT, network, (long)host, sizeof(host), 0, 0) < 0) {
		report("dormouse: a device is missing in cycle ", 0);
		return 0;
	}
	return 1;
}

int devices_before(unsigned int cycle)
{
	static struct rtc_alarm alarm = { .enabled = 1 };
	struct rtc_time *time = &alarm.time;

	slept_at = rtc_seconds(time);
	/* No day ends here: the machine's clock begins in the morning. */
	time->second += ALARM_SECONDS;
	time->minute += time->second / 60;
	time->second %= 60;
	time->hour += time->minute / 60;
	time->minute %= 60;
	if (slept_at && call(CALL_IOCTL, clock, RTC_SET_ALARM, (long)&alarm, 0, 0) >= 0)
		return 1;
	report("dormouse: no alarm can be set in cycle ", cycle);
	return 0;
}

int devices_after(unsigned int cycle)
{
	const char *wrong = 0;

	if (!clock_works())
		wrong = "dormouse: the clock is wrong after cycle ";
	else if (!line_works(cycle))
		wrong = "dormouse: the serial line is dead after cycle ";
	else if (!storage_works(card, cycle))
		wrong = "dormouse: the card reads otherwise after cycle ";
	else if (!storage_works(disk, cycle))
		wrong = "dormouse: the disk reads otherwise after cycle ";
	else if (!network_works(cycle))
		wrong = "dormouse: the network does not answer after cycle ";
	report(wrong ? wrong : "dormouse: clock, serial line, card, disk and network work after cycle ", cycle);
	return !wrong;
}
