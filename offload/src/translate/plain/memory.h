/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Loads and stores that check or look up their address themselves. */
#ifndef OFFLOAD_PLAIN_MEMORY_H
#define OFFLOAD_PLAIN_MEMORY_H

#include "translate/translate.h"

/* Any load or store of one register or several, if it is to be made here. */
bool is_plain_transfer(const struct translator *x);
void plain_transfer(struct translator *x);

#endif
