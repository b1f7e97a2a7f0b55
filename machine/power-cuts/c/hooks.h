/* SPDX-License-Identifier: GPL-2.0-only */
/* What the C side calls and the Rust side (src/machine.rs) provides, and the other way round. */
#ifndef DORMOUSE_POWER_CUTS_HOOKS_H
#define DORMOUSE_POWER_CUTS_HOOKS_H

#include <stdint.h>

extern uint32_t sim_cpuid_7_ebx, sim_cpuid_7_ecx, sim_cpuid_1_edx;

/* --- copy.c --- */
void sim_write_back(const volatile void *line);
void sim_store_past_caches(const volatile void *line);
void sim_fence(void);
/* Stores were done that the medium may hold from now on. */
void sim_observe(void);
/* All caches written back and fenced, as WBINVD does before Linux calls firmware. */
void sim_write_back_all(void);

/* --- smm.c, ramstage.c, board.c, kernel.c --- */
/* SMM takes the requests; a request is a call of what it gave. */
void sim_on_smi(void (*handler)(void));
void sim_smi(void);
/* Power was lost. */
void sim_reset_smm(void);
void sim_reset_board(void);
/* Ends the machine's run where it stands; never returns. */
void sim_stop(int how) __attribute__((noreturn));
void sim_line(const char *line);

enum sim_end {
	SIM_RETURNED = 0,	/* boot: cold; sleep: refused */
	SIM_RESUMED = 1,	/* firmware jumped to the wake vector */
	SIM_OFF = 2,		/* firmware switched the power off */
	SIM_CUT = 3,		/* the test cut the power */
};

#endif
