/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Shared by the steps that make a region: extent.c, instruction.c, layout.c, region.c. */
#ifndef OFFLOAD_TRANSLATE_STEPS_H
#define OFFLOAD_TRANSLATE_STEPS_H

#include "translate/translate.h"

static inline bool get(const uint32_t *set, uint32_t index)
{
	return set[index / 32] >> (index % 32) & 1;
}

static inline void put(uint32_t *set, uint32_t index)
{
	set[index / 32] |= 1u << (index % 32);
}

/* --- extent.c --- */

bool falls_through(const struct instruction *in);
/*
 * Reads the guest's code from the entry on, until nothing goes on in it. Instructions that are
 * only jumped over stay in the region without code. It ends in no IT block. False: there is no code.
 */
bool find_extent(struct translator *x);

/* --- instruction.c --- */

/* The instruction x->in at x->address. */
void translate_instruction(struct translator *x, bool is_label);

/* --- rename.c --- */

/*
 * Translates x->in, which translate_body() has left to the interpreter, with another register in the place of
 * the scratch register. False: nor is it translated so.
 */
bool translate_renamed(struct translator *x);

/* --- layout.c, in this order behind the code --- */

void lay_out_literals(struct translator *x);
/* Ways into labels from where the scratch register holds something else. */
void lay_out_entries(struct translator *x);
void lay_out_exits(struct translator *x);
/* A branch to a place that is not known yet; its own place is the answer. */
uint32_t emit_branch(struct translator *x);
/* Makes the region's labels known to the cache. */
void enter_labels(struct translator *x);

#endif
