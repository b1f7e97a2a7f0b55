// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Baseline mode. */
#include "translate.h"

void translate_plain(struct translator *x)
{
	x->interpret = true;
}
