// SPDX-License-Identifier: GPL-2.0-only
/* The simulated machine's ramstage: the driver's wake.c as it is, from power-on. */
#include <string.h>

#include "hooks.h"

#include "../../firmware/driver/wake.c"

/* What lies in SMRAM, on the board and in ramstage's own memory is gone with the power. */
static void forget(void)
{
	sim_reset_board();
	sim_reset_smm();
	memset(&geometry, 0, sizeof(geometry));
	memset(&header, 0xa5, sizeof(header));
	memset(&fresh, 0xa5, sizeof(fresh));
}

void sim_power_on(void)
{
	forget();
	boot_entry(NULL);
}
