// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Emits T32 instructions. */
#include "emit/t32.h"

#include "decode/a32.h"

void emit16(struct emitter *e, uint32_t half)
{
	if (e->at + 2u > e->room) {
		e->overflow = true;
		return;
	}
	e->out[e->at] = (uint8_t)half;
	e->out[e->at + 1] = (uint8_t)(half >> 8);
	e->at += 2;
	e->emitted++;
}

void emit32(struct emitter *e, uint32_t first, uint32_t second)
{
	emit16(e, first);
	emit16(e, second);
	e->emitted--;
}

static void sets_flags(struct emitter *e, bool set)
{
	if (!set)
		return;
	/* Only the last instruction of an IT block may. */
	if (e->flags_set_at)
		e->keep_single = true;
	e->flags_set_at = e->emitted;
}

int t32_modified(uint32_t value)
{
	uint32_t low = value & 0xff, second = value >> 8 & 0xff;
	unsigned int lead;

	if (value == low)
		return value;
	if (value == (low | low << 16))
		return 0x100 | low;
	if (value == (second << 8 | second << 24))
		return 0x200 | second;
	if (value == low * 0x01010101u)
		return 0x300 | low;
	/* 1bcdefgh rotated right by 8 to 31. */
	lead = __builtin_clz(value);
	if (value & ~(0xff000000u >> lead))
		return -1;
	return (8 + lead) << 7 | (value >> (24 - lead) & 0x7f);
}

void t32_immediate(struct emitter *e, enum t32_op op, bool set, uint32_t d, uint32_t n,
		   uint32_t encoded)
{
	emit32(e, 0xf000 | bit(encoded, 11) << 10 | op << 5 | set << 4 | n,
	       bits(encoded, 10, 8) << 12 | d << 8 | (encoded & 0xff));
	sets_flags(e, set);
}

void t32_register(struct emitter *e, enum t32_op op, bool set, uint32_t d, uint32_t n,
		  uint32_t m, uint32_t type, uint32_t amount)
{
	emit32(e, 0xea00 | op << 5 | set << 4 | n,
	       bits(amount, 4, 2) << 12 | d << 8 | (amount & 3) << 6 | type << 4 | m);
	sets_flags(e, set);
}

void t32_shift(struct emitter *e, uint32_t type, bool set, uint32_t d, uint32_t m, uint32_t s)
{
	emit32(e, 0xfa00 | type << 5 | set << 4 | m, 0xf000 | d << 8 | s);
	sets_flags(e, set);
}

void t32_mov(struct emitter *e, uint32_t d, uint32_t m)
{
	emit16(e, 0x4600 | bit(d, 3) << 7 | m << 3 | (d & 7));
}

static void wide(struct emitter *e, uint32_t first, uint32_t d, uint32_t value)
{
	emit32(e, first | bit(value, 11) << 10 | bits(value, 15, 12),
	       bits(value, 10, 8) << 12 | d << 8 | (value & 0xff));
}

void t32_add_to(struct emitter *e, uint32_t d, uint32_t m)
{
	emit16(e, 0x4400 | (d & 8) << 4 | m << 3 | (d & 7));
}

void t32_movw(struct emitter *e, uint32_t d, uint32_t value)
{
	wide(e, 0xf240, d, value);
}

void t32_movt(struct emitter *e, uint32_t d, uint32_t value)
{
	wide(e, 0xf2c0, d, value);
}

void t32_constant(struct emitter *e, uint32_t d, uint32_t value)
{
	int encoded = t32_modified(value);

	if (encoded >= 0) {
		t32_immediate(e, T32_ORR, false, d, PC, encoded);
		return;
	}
	if (value < 0x10000) {
		t32_movw(e, d, value);
		return;
	}
	encoded = t32_modified(~value);
	if (encoded >= 0) {
		t32_immediate(e, T32_ORN, false, d, PC, encoded);
		return;
	}
	if (e->literals == LITERALS_MAX) {
		e->overflow = true;
		return;
	}
	e->literal[e->literals].at = e->at;
	e->literal[e->literals++].value = value;
	emit32(e, 0xf8df, d << 12);
}

void t32_add_constant(struct emitter *e, uint32_t d, uint32_t n, uint32_t value)
{
	int encoded = t32_modified(value), negative = t32_modified(-value);

	if (encoded >= 0) {
		t32_immediate(e, T32_ADD, false, d, n, encoded);
	} else if (negative >= 0) {
		t32_immediate(e, T32_SUB, false, d, n, negative);
	} else if (value < 4096) {
		emit32(e, 0xf200 | bit(value, 11) << 10 | n,
		       bits(value, 10, 8) << 12 | d << 8 | (value & 0xff));
	} else if (-value < 4096) {
		value = -value;
		emit32(e, 0xf2a0 | bit(value, 11) << 10 | n,
		       bits(value, 10, 8) << 12 | d << 8 | (value & 0xff));
	} else {
		/* In steps of eight significant bits. */
		uint32_t lead = __builtin_clz(value), part = value & (0xff000000u >> lead);

		t32_add_constant(e, d, n, part);
		t32_add_constant(e, d, d, value - part);
	}
}

void t32_bit_field(struct emitter *e, uint32_t first, uint32_t n, uint32_t d, uint32_t low,
		   uint32_t last)
{
	emit32(e, first | n, bits(low, 4, 2) << 12 | d << 8 | (low & 3) << 6 | last);
}

void t32_transfer(struct emitter *e, uint32_t kind, uint32_t t, uint32_t n, int32_t offset)
{
	if (offset >= 0)
		emit32(e, 0xf880 | kind | n, t << 12 | offset);
	else
		emit32(e, 0xf800 | kind | n, t << 12 | 0xc00 | -offset);
}

void t32_transfer_register(struct emitter *e, uint32_t kind, uint32_t t, uint32_t n, uint32_t m,
			   uint32_t shift)
{
	emit32(e, 0xf800 | kind | n, t << 12 | shift << 4 | m);
}

void t32_transfer_moving(struct emitter *e, uint32_t kind, uint32_t t, uint32_t n,
			 int32_t offset, bool before)
{
	uint32_t up = offset >= 0, by = up ? offset : -offset;

	emit32(e, 0xf800 | kind | n, t << 12 | 0x900 | before << 10 | up << 9 | by);
}

void t32_multiple(struct emitter *e, bool load, bool down, bool move, uint32_t n, uint32_t list)
{
	emit32(e, (down ? 0xe900 : 0xe880) | move << 5 | load << 4 | n, list);
}

void t32_push(struct emitter *e, uint32_t list)
{
	emit16(e, 0xb400 | list);
}

void t32_pop(struct emitter *e, uint32_t list)
{
	emit16(e, 0xbc00 | list);
}

void t32_double(struct emitter *e, bool load, uint32_t t, uint32_t u, uint32_t n,
		int32_t offset)
{
	uint32_t up = offset >= 0, by = (up ? offset : -offset) / 4;

	emit32(e, 0xe940 | up << 7 | load << 4 | n, t << 12 | u << 8 | by);
}

void t32_call(struct emitter *e, uint32_t number)
{
	emit16(e, 0xdf00 | number);
	e->keep_single = true;
}

uint32_t t32_branch(uint32_t from, uint32_t to)
{
	uint32_t offset = to - (from + 4), s = bit(offset, 24);
	uint32_t j1 = !(bit(offset, 23) ^ s), j2 = !(bit(offset, 22) ^ s);

	return (0xf000 | s << 10 | bits(offset, 21, 12)) |
		(0x9000 | j1 << 13 | j2 << 11 | bits(offset, 11, 1)) << 16;
}

uint32_t t32_branch_if(uint32_t cond, uint32_t from, uint32_t to)
{
	uint32_t offset = to - (from + 4);

	return (0xf000 | bit(offset, 20) << 10 | cond << 6 | bits(offset, 17, 12)) |
		(0x8000 | bit(offset, 18) << 13 | bit(offset, 19) << 11 | bits(offset, 11, 1)) << 16;
}
