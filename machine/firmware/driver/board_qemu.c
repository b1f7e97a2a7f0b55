/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU q35 in ramstage: the laboratory describes the CXL window in a fw_cfg file.
 * A real board reads the same from the device's DVSEC and mailbox.
 */

#include <bootstate.h>
#include <cpu/x86/tsc.h>
#include <device/fw_cfg.h>
#include <southbridge/intel/common/pmbase.h>
#include <southbridge/intel/common/pmutil.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"

bool dormouse_board_device(struct dormouse_device *device)
{
	static struct dormouse_device cached;
	static bool asked;
	FWCfgFile file;

	if (!asked) {
		asked = true;
		if (!fw_cfg_check_file(&file, "opt/dormouse/device") &&
		    file.size == sizeof(cached))
			fw_cfg_get(file.select, &cached, sizeof(cached));
	}
	*device = cached;
	return cached.bytes != 0;
}

/*
 * coreboot's calibration is off by up to 1 % under emulation. The time between the
 * start of ramstage and our entry, seen by the PM timer, costs nothing and is exact.
 */
#define PM_TIMER_HZ	3579545ULL
#define PM_TIMER_MASK	0xffffffU

static uint64_t first_tsc;
static uint32_t first_pm;

static void take_first_sample(void *unused)
{
	first_pm = read_pmbase32(PM1_TMR);
	first_tsc = rdtscll();
}

BOOT_STATE_INIT_ENTRY(BS_PRE_DEVICE, BS_ON_ENTRY, take_first_sample, NULL);

uint32_t dormouse_board_tsc_khz(void)
{
	const uint32_t pm = (read_pmbase32(PM1_TMR) - first_pm) & PM_TIMER_MASK;
	const uint64_t ticks = rdtscll() - first_tsc;

	/* Too short to be exact, or no PM timer. */
	if (pm < PM_TIMER_HZ / 1000)
		return tsc_freq_mhz() * 1000;
	return ticks * PM_TIMER_HZ / pm / 1000;
}

#if CONFIG(DORMOUSE_FAULT_POINTS)
void dormouse_board_fault(char name[DORMOUSE_FAULT_NAME_BYTES])
{
	FWCfgFile file;

	memset(name, 0, DORMOUSE_FAULT_NAME_BYTES);
	if (!fw_cfg_check_file(&file, "opt/dormouse/fault") &&
	    file.size < DORMOUSE_FAULT_NAME_BYTES)
		fw_cfg_get(file.select, name, file.size);
}
#endif
