/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the first program does with the board's devices. What fails is reported. */
#ifndef DORMOUSE_DEVICES_H
#define DORMOUSE_DEVICES_H

/* Opens them. In order: the thread that suspends calls all of their callbacks itself. */
int devices_begin(int in_order);
/* Sets the alarm that wakes. */
int devices_before(unsigned int cycle);
/* Uses each. */
int devices_after(unsigned int cycle);

#endif
