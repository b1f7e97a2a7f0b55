// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Devices of the guest are those of the big core's board: each access is sent through semihosting, one request
 * and one answer, to whoever reaches that board (rust/machine/forward.rs). A refused access stops the guest before
 * its instruction. Host addresses of devices are physical ones here.
 */
#include "target.h"

enum { WRITES = 1 << 8, WAITS = 1 << 9 };

/* Asks; false: it is refused. */
static bool ask(uint32_t host, uint32_t what, uint32_t *value)
{
	static uint32_t out, in;
	uint32_t request[3] = { host, what, *value }, answer[2];

	if (!out) {
		out = open_file("requests", true);
		in = open_file("answers", false);
	}
	transfer(out, request, sizeof(request), true);
	/* Without an answer nothing is there. */
	if (!transfer(in, answer, sizeof(answer), false) || !answer[0])
		return false;
	*value = answer[1];
	return true;
}

bool access_device(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value)
{
	(void)owner;
	return ask(host, write ? size | WRITES : size, value);
}

bool device_is_good(uint32_t host, uint32_t size)
{
	(void)host;
	(void)size;
	return true;
}

/* This machine stands still meanwhile; the board's time is counted at the other end. */
bool wait_for_board(void)
{
	uint32_t value = 0;

	return ask(0, WAITS, &value);
}
