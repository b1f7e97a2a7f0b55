// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Places in a region that are completed when it is laid out. */
#include "translate/translate.h"

void add_fixup(struct translator *x, uint32_t from, enum fixup_kind kind, uint32_t number)
{
	if (x->fixups == FIXUPS_MAX) {
		x->code.overflow = true;
		return;
	}
	x->fixup[x->fixups++] = (struct fixup){ from, x->code.at, kind, number };
}
