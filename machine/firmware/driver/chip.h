/* SPDX-License-Identifier: GPL-2.0-only */
/* The devicetree entry `chip drivers/dormouse`: nothing to configure, the board reports the window. */
#ifndef DRIVERS_DORMOUSE_CHIP_H
#define DRIVERS_DORMOUSE_CHIP_H

struct drivers_dormouse_config {
};

#endif
