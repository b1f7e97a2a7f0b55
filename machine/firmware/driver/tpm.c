/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ramstage: the TPM, where there is one, is started when it is known whether an OS
 * wakes. Linux left its state in the TPM and expects that firmware has it restored,
 * registers (PCRs) included; a TPM that was started as in any boot has lost it.
 */

#include <bootstate.h>
#include <device/mmio.h>
#include <security/tpm/tspi.h>
#include <types.h>

/* Vendor and device, in the registers of the first locality. */
#define TPM_DID_VID 0xf00

static bool is_there(void)
{
	const uint32_t did_vid = read32p(CONFIG_TPM_TIS_BASE_ADDRESS + TPM_DID_VID);

	return did_vid != 0 && did_vid != UINT32_MAX;
}

/* Also before an ordinary resume from S3. */
static void resume(void *unused)
{
	if (is_there())
		tpm_setup(1);
}

static void start(void *unused)
{
	if (is_there())
		tpm_setup(0);
}

BOOT_STATE_INIT_ENTRY(BS_OS_RESUME, BS_ON_ENTRY, resume, NULL);
BOOT_STATE_INIT_ENTRY(BS_PAYLOAD_LOAD, BS_ON_EXIT, start, NULL);
