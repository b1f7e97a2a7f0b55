/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Where the guest's registers are when they are not the host's own. */
#ifndef OFFLOAD_PLAIN_PLACE_H
#define OFFLOAD_PLAIN_PLACE_H

#include "translate/translate.h"
#include "emit/t32.h"

enum { NONE = 16 };

static inline bool has(const struct translator *x, uint32_t option)
{
	return translator_option(x, option);
}

/* Where in struct offload_state the guest's value of a register is. */
static inline uint32_t slot_of(const struct translator *x, uint32_t number)
{
	return number == scratch(x) ? offsetof(struct offload_state, scratch) :
		offsetof(struct offload_state, registers) + 4 * number;
}

static inline uint32_t lowest(uint32_t list)
{
	return list ? (uint32_t)__builtin_ctz(list) : NONE;
}

static inline uint32_t touched(const struct instruction *in)
{
	return instruction_reads(in) | instruction_writes(in);
}

static inline bool is_transfer(const struct instruction *in)
{
	switch (a32_table[in->op].family) {
	case SINGLE:
	case EXTRA:
	case DOUBLE:
	case MULTIPLE:
		return true;
	default:
		return false;
	}
}

/* A word of offload_state, by its offset; through: a register for its address. */
void state_load(struct translator *x, uint32_t to, uint32_t offset);
void state_store(struct translator *x, uint32_t from, uint32_t offset, uint32_t through);
/* Low registers for temporary values that are not in a set; count of them if there are as many. */
uint32_t pick(uint32_t used, uint32_t scratch_register, uint32_t count);
/* Whether a guest register is in the host register of its number. */
bool in_host_register(const struct translator *x, uint32_t number);
/* The value of a guest register: where it is, or put into a host register. */
uint32_t value_in(struct translator *x, uint32_t number, uint32_t into);
void put_value(struct translator *x, uint32_t number, uint32_t from, uint32_t through);
/* cbz number, over what is emitted until land(). */
uint32_t jump_if_zero(struct translator *x, uint32_t number);
void land(struct translator *x, uint32_t from);

#endif
