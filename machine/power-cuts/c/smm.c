// SPDX-License-Identifier: GPL-2.0-only
/* The simulated machine's SMM: the driver's smi.c as it is, with what a power cycle forgets. */
#include <string.h>

#include "hooks.h"

#include "../../firmware/driver/smi.c"

void sim_reset_smm(void)
{
	locked = false;
	ready = false;
	facs_address = 0;
	memset(&geometry, 0, sizeof(geometry));
	memset(snapshot, 0xa5, sizeof(snapshot));
	sim_on_smi(dormouse_smi);
}
