/* SPDX-License-Identifier: GPL-2.0-only */
/* Ramstage: gives SMM, once and before any OS runs, the geometry that it may trust. */

#include <bootstate.h>
#include <cpu/x86/smm.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"

static struct dormouse_handover handover;
static bool done;

/*
 * Some emulators take the SMI only after the next instruction or two, so the
 * registers must stay as they are until then.
 */
static void raise_smi(const void *pointer)
{
	asm volatile ("outb %%al, %%dx\n\tpause\n\tpause\n\tpause"
		      :
		      : "a"(CONFIG_DORMOUSE_SMI_COMMAND), "b"(pointer), "d"(APM_CNT)
		      : "memory");
}

enum dormouse_reason dormouse_handover(const struct dormouse_geometry *geometry)
{
	done = true;
	if (!geometry) {
		raise_smi(NULL);
		return DORMOUSE_E_NOT_READY;
	}
	handover.magic = DORMOUSE_HANDOVER_MAGIC;
	handover.facs = dormouse_find_facs();
	handover.tsc_khz = dormouse_tsc_khz();
	handover.status = DORMOUSE_E_NO_ANSWER;
	dormouse_board_fault(handover.fault);
	dormouse_fault_select(handover.fault);
	memcpy(&handover.geometry, geometry, sizeof(*geometry));
	raise_smi(&handover);
	return handover.status;
}

/*
 * An ordinary S3 resume loads a new SMM and writes no memory map. Whatever the OS
 * left in memory must not be the first to speak: no sleep until the next cold boot.
 */
static void close_smm(void *unused)
{
	if (!done)
		dormouse_handover(NULL);
}

BOOT_STATE_INIT_ENTRY(BS_OS_RESUME, BS_ON_ENTRY, close_smm, NULL);
