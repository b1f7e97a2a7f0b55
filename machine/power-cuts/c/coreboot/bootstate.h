/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATED_BOOTSTATE_H
#define SIMULATED_BOOTSTATE_H

enum { BS_PAYLOAD_LOAD, BS_OS_RESUME, BS_ON_ENTRY };

struct boot_state_init_entry {
	int state;
	int when;
	struct {
		void (*callback)(void *arg);
		void *arg;
	} bscb;
};

/* The simulated machine has one: what it calls at power-on. */
#define BOOT_STATE_INIT_ENTRY(state, when, function, arg)	\
	static void (*const boot_entry)(void *) = function

#endif
