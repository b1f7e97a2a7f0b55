/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU q35 in ramstage: the laboratory describes the CXL window in a fw_cfg file.
 * A real board reads the same from the device's DVSEC and mailbox.
 */

#include <device/fw_cfg.h>
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
