// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Indirect branches: by the target table, or by a call of the executor. */
#include "translate/translate.h"
#include "emit/t32.h"

/*
 * From a guest address to its entry in the target table. In T32 that is at twice the scratch register,
 * which holds the address without its bit 0; an A32 address makes it odd, and the access faults.
 */
uint32_t table_delta(const struct translator *x)
{
	if (x->in.thumb)
		return x->layout->table_base / 2 - x->layout->guest_base;
	return x->layout->table_base - x->layout->guest_base;
}

void load_target(struct translator *x)
{
	uint32_t from = x->code.at;

	if (x->in.thumb)
		t32_transfer_register(&x->code, KIND_LDR, PC, scratch(x), scratch(x), 0);
	else
		t32_transfer(&x->code, KIND_LDR, PC, scratch(x), 0);
	add_fixup(x, from, FIX_TARGET, 0);
}

void emit_dispatch(struct translator *x, uint32_t number, uint32_t link)
{
	uint32_t from;

	if (uses_scratch(x, number) && x->holds == HOLDS_GUEST && link)
		x->holds = HOLDS_NOTHING;
	emit_guest_addresses(x, x->hosted);
	if (!uses_table(x)) {
		if (number != scratch(x))
			t32_mov(&x->code, scratch(x), number);
		if (link)
			t32_constant(&x->code, LR, link);
		t32_call(&x->code, CALL_DISPATCH);
	} else if (x->in.thumb && number == LR && !link) {
		/* Twice lr is the entry's distance from a constant: an instruction less for most returns. */
		t32_constant(&x->code, scratch(x), table_of_link(x->layout));
		from = x->code.at;
		t32_transfer_register(&x->code, KIND_LDR, PC, scratch(x), LR, 1);
		add_fixup(x, from, FIX_TARGET, LR);
	} else {
		t32_add_constant(&x->code, scratch(x), number, table_delta(x));
		if (x->in.thumb)
			t32_add_constant(&x->code, scratch(x), scratch(x), -1);
		if (link)
			t32_constant(&x->code, LR, link);
		load_target(x);
	}
	x->holds = HOLDS_NOTHING;
	x->ends_it = true;
}
