// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Chooses what the scratch register holds where branches meet. */
#include "translate/translate.h"

/* --- where branches meet --- */

/* What a loop from its first to its last instruction would have the scratch register hold. */
static struct held of_loop(const struct translator *x, uint32_t first, uint32_t last)
{
	const struct held nothing = { HOLDS_NOTHING, 0, 0 };
	uint32_t base = 16, written = 0, read = 0;
	bool distance = true, one_base = true;

	for (uint32_t i = first; i <= last && i < x->count; i = index_behind(x, i)) {
		const struct instruction *in = &x->list[i];
		uint32_t n, writes = instruction_writes(in);

		if (!(x->reached[i / 32] >> (i % 32) & 1))
			return nothing;
		/* Behind a call, and where others come back to, it holds nothing. */
		if (instruction_links(in) || (i > first && (x->comeback[i / 32] >> (i % 32) & 1)))
			return nothing;
		if (needs_address(x, in, &n)) {
			bool enough = is_distance_enough(x, in, 0);

			distance &= enough;
			one_base &= base == 16 || base == n;
			base = n;
			/* Its own move the scratch register makes, too. */
			if (enough)
				writes &= ~(1u << n) | (bit(in->word, 20) ? 1u << field_d(in->word) : 0);
		}
		written |= writes;
		read |= instruction_reads(in);
	}
	if (base == 16)
		return bit(read, scratch(x)) ? (struct held){ HOLDS_GUEST, 0, 0 } : nothing;
	if (distance)
		return (struct held){ HOLDS_DISTANCE, 0, 0 };
	if (one_base && !bit(written, base))
		return (struct held){ HOLDS_BASE, base, 0 };
	return nothing;
}

/* What all branches to it so far, and what is before it, agree on. */
static struct held of_meeting(const struct translator *x, uint32_t index, bool falls_in)
{
	const struct held nothing = { HOLDS_NOTHING, 0, 0 };
	struct held held = held_now(x);
	bool any = falls_in;

	for (uint32_t i = 0; i < x->exits; i++) {
		if (x->exit[i].index != index)
			continue;
		if ((any && !same_held(x->exit[i].held, held)) || x->exit[i].held.hosted)
			return nothing;
		held = x->exit[i].held;
		any = true;
	}
	return any ? held : nothing;
}

void settle_label(struct translator *x, uint32_t index, bool falls_in, bool from_outside)
{
	struct held held = { HOLDS_NOTHING, 0, 0 };

	if (!x->carries) {
		x->holds = HOLDS_NOTHING;
		return;
	}
	if (x->back[index] && begin_loop(x, index))
		falls_in = false;
	if (x->back[index])
		held = of_loop(x, index, x->back[index]);
	else if (!from_outside)
		held = of_meeting(x, index, falls_in);
	held.hosted = x->hosted;
	x->settled[index] = held;
	x->outer[index] = NO_PLACE;
	if (!held.what && !held.hosted) {
		x->holds = HOLDS_NOTHING;
		return;
	}
	if (!x->back[index] || (falls_in && !from_outside && same_held(held, held_now(x)))) {
		x->holds = held.what;
		x->held_base = held.base;
		x->held_offset = 0;
	} else {
		x->outer[index] = x->code.at;
		x->it_count = 0;
		if (x->hosted)
			enter_loop(x);
		emit_held(x, held);
	}
	x->inner[index] = x->code.at;
}
