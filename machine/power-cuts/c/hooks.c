// SPDX-License-Identifier: GPL-2.0-only
/* Hands each instruction that matters to the medium, and stops the machine where it says so. */

#include <setjmp.h>

#include "dormouse_image.h"
#include "hooks.h"

uint32_t sim_cpuid_7_ebx, sim_cpuid_7_ecx, sim_cpuid_1_edx;

/* The Rust side: 1 to cut the power now. Never unwinds, and is left before the jump. */
extern int sim_on_write_back(const volatile void *line, int past_caches);
extern int sim_on_fence(void);
extern int sim_on_observe(void);
extern int sim_on_write_back_all(void);

static jmp_buf power;
static void (*smi)(void);

void sim_on_smi(void (*handler)(void))
{
	smi = handler;
}

void sim_smi(void)
{
	smi();
}

static void perhaps_cut(int cut)
{
	if (cut)
		sim_stop(SIM_CUT);
}

void sim_write_back(const volatile void *line)
{
	perhaps_cut(sim_on_write_back(line, 0));
}

void sim_store_past_caches(const volatile void *line)
{
	perhaps_cut(sim_on_write_back(line, 1));
}

void sim_fence(void)
{
	perhaps_cut(sim_on_fence());
}

void sim_observe(void)
{
	perhaps_cut(sim_on_observe());
}

void sim_write_back_all(void)
{
	perhaps_cut(sim_on_write_back_all());
}

void sim_stop(int how)
{
	longjmp(power, how + 1);
}

int sim_run(void (*part)(void))
{
	int how = setjmp(power);

	if (how)
		return how - 1;
	part();
	return SIM_RETURNED;
}
