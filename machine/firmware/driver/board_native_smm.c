/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A real board in SMM: the OS sets SLP_EN as for any S3, the chipset raises the
 * SMI and its handler calls mainboard_smi_sleep(). If sleep is refused, the
 * handler goes on into an ordinary S3: memory keeps its power, nothing is lost.
 */

#include <acpi/acpi.h>
#include <cpu/x86/smm.h>
#include <halt.h>
#include <southbridge/intel/common/pmbase.h>
#include <southbridge/intel/common/pmutil.h>
#include <types.h>

#include "dormouse.h"

#if !CONFIG(DORMOUSE_BOARD_OWN_SMI_HOOKS)
/* The hand-over from ramstage, and dry runs by the OS. */
int mainboard_smi_apmc(u8 command)
{
	if (command != CONFIG_DORMOUSE_SMI_COMMAND)
		return 0;
	dormouse_smi();
	return 1;
}

void mainboard_smi_sleep(u8 slp_typ)
{
	if (slp_typ == ACPI_S3)
		dormouse_smi();
}
#endif

void dormouse_board_power_off(void)
{
	const u32 control = read_pmbase32(PM1_CNT) & ~(SLP_EN | SLP_TYP);

	write_pmbase32(GPE0_EN, 0);
	write_pmbase32(PM1_CNT, control | (SLP_TYP_S5 << SLP_TYP_SHIFT));
	write_pmbase32(PM1_CNT, control | (SLP_TYP_S5 << SLP_TYP_SHIFT) | SLP_EN);
	halt();
}
