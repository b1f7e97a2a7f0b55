// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Whether an encoding is UNPREDICTABLE, by the rules of its instruction set. */
#include "decode/a32.h"

bool instruction_unpredictable(const struct instruction *in)
{
	return in->thumb ? t32_unpredictable(in) :
		a32_unpredictable((enum a32_op)in->op, in->word);
}
