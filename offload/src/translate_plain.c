// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Without registers, flags, stack or protection of the host's own every instruction is
 * interpreted; there is no translation for these modes.
 */
#include "translate.h"

void translate_plain(struct translator *x)
{
	x->interpret = true;
}
