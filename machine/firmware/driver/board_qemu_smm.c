/* SPDX-License-Identifier: GPL-2.0-only */
/* QEMU q35 in SMM: no SMI on SLP_EN, so the OS writes our command to the APM port. */

#include <acpi/acpi.h>
#include <cpu/x86/smm.h>
#include <halt.h>
#include <southbridge/intel/common/pmbase.h>
#include <southbridge/intel/common/pmutil.h>
#include <types.h>

#include "dormouse.h"

int mainboard_smi_apmc(u8 command)
{
	if (command != CONFIG_DORMOUSE_SMI_COMMAND)
		return 0;
	dormouse_smi();
	return 1;
}

void dormouse_board_power_off(void)
{
	/* QEMU's S5 is sleep type 0, and it takes accesses of this width only. */
	write_pmbase16(PM1_CNT, SLP_EN);
	halt();
}
