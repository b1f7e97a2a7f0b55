// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Executes single instructions: multiplication, division, saturation, packing, parallel sums. */
#include "interpret/interpret.h"

static void saturated(struct step *step)
{
	step->cpu->flags |= FLAG_Q;
}

/* To bits bits; Q if that changed it. */
static uint32_t saturate_signed(struct step *step, int64_t value, unsigned int width)
{
	int64_t max = ((int64_t)1 << (width - 1)) - 1, min = -max - 1;

	if (value > max || value < min)
		saturated(step);
	return (uint32_t)(value > max ? max : value < min ? min : value);
}

static uint32_t saturate_unsigned(struct step *step, int64_t value, unsigned int width)
{
	int64_t max = ((int64_t)1 << width) - 1;

	if (value > max || value < 0)
		saturated(step);
	return (uint32_t)(value > max ? max : value < 0 ? 0 : value);
}

static int32_t half(uint32_t value, bool top)
{
	return (int16_t)(top ? value >> 16 : value);
}

static void set_nz(struct step *step, uint32_t high, uint32_t all)
{
	step->cpu->flags = (step->cpu->flags & ~(FLAG_N | FLAG_Z)) | (high & FLAG_N) |
		(all ? 0 : FLAG_Z);
}

static void multiply_long(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r;
	uint32_t m = r[field_m(word)], s = r[field_s(word)];
	uint64_t sum = (uint64_t)r[field_n(word)] << 32 | r[field_d(word)], product;

	product = step->in->op != A32_UMAAL && bit(word, 22) ? (uint64_t)((int64_t)(int32_t)m * (int32_t)s) : (uint64_t)m * s;
	if (step->in->op == A32_UMAAL)
		product += (uint64_t)r[field_n(word)] + r[field_d(word)];
	else if (bit(word, 21))
		product += sum;
	r[field_n(word)] = product >> 32;
	r[field_d(word)] = (uint32_t)product;
	if (step->in->op != A32_UMAAL && field_set_flags(word))
		set_nz(step, product >> 32, (uint32_t)(product >> 32) | (uint32_t)product);
}

static uint32_t accumulate(struct step *step, int64_t product, uint32_t with)
{
	int64_t sum = product + (int32_t)with;

	if (sum != (int32_t)sum)
		saturated(step);
	return (uint32_t)sum;
}

/* smlaxy and its relatives. */
static void multiply_halves(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r;
	uint32_t m = r[field_m(word)], s = r[field_s(word)];
	uint32_t *n = &r[field_n(word)], *d = &r[field_d(word)];
	int64_t product;

	switch (step->in->op) {
	case A32_SMULWy:
	case A32_SMLAWy:
		product = ((int64_t)(int32_t)m * half(s, bit(word, 6))) >> 16;
		*n = step->in->op == A32_SMULWy ? (uint32_t)product : accumulate(step, product, *d);
		return;
	case A32_SMLALxy:
		product = (int64_t)half(m, bit(word, 5)) * half(s, bit(word, 6));
		product += (int64_t)((uint64_t)*n << 32 | *d);
		*n = (uint64_t)product >> 32;
		*d = (uint32_t)product;
		return;
	default:
		product = (int64_t)half(m, bit(word, 5)) * half(s, bit(word, 6));
		*n = step->in->op == A32_SMULxy ? (uint32_t)product : accumulate(step, product, *d);
	}
}

/* smlad, smlsd, smlald, smlsld. */
static void multiply_dual(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r;
	uint32_t m = r[field_m(word)], s = r[field_s(word)];
	uint32_t *n = &r[field_n(word)], *d = &r[field_d(word)];
	int64_t one, two, sum;

	if (bit(word, 5))
		s = rotate_right(s, 16);
	one = (int64_t)half(m, false) * half(s, false);
	two = (int64_t)half(m, true) * half(s, true);
	sum = bit(word, 6) ? one - two : one + two;
	if (step->in->op == A32_SMLALD || step->in->op == A32_SMLSLD) {
		sum += (int64_t)((uint64_t)*n << 32 | *d);
		*n = (uint64_t)sum >> 32;
		*d = (uint32_t)sum;
		return;
	}
	*n = accumulate(step, sum, field_d(word) == PC ? 0 : *d);
}

static void multiply_high(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r;
	int64_t product = (int64_t)(int32_t)r[field_m(word)] * (int32_t)r[field_s(word)];
	int64_t sum = field_d(word) == PC ? 0 : (int64_t)((uint64_t)r[field_d(word)] << 32);

	sum = step->in->op == A32_SMMLS ? sum - product : sum + product;
	if (bit(word, 5))
		sum += 0x80000000;
	r[field_n(word)] = (uint64_t)sum >> 32;
}

static void sum_differences(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r;
	uint32_t m = r[field_m(word)], s = r[field_s(word)];
	uint32_t sum = field_d(word) == PC ? 0 : r[field_d(word)];

	for (int i = 0; i < 32; i += 8) {
		int32_t difference = (int32_t)(m >> i & 0xff) - (int32_t)(s >> i & 0xff);

		sum += difference < 0 ? -difference : difference;
	}
	r[field_n(word)] = sum;
}

/* sadd16 … uhsub8: bits 22:20 say how, bits 7:5 what. */
static void parallel(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r, how = bits(word, 22, 20), what = bits(word, 7, 5);
	uint32_t n = r[field_n(word)], m = r[field_m(word)], result = 0, ge = 0;
	bool is_unsigned = how & 4, bytes = what == 4 || what == 7;
	unsigned int width = bytes ? 8 : 16, q = step->cpu->flags & FLAG_Q;

	if (what == 1 || what == 2)
		m = rotate_right(m, 16);
	for (unsigned int lane = 0; lane < 32; lane += width) {
		bool subtract = what == 3 || what == 7 || (what == 1 && !lane) || (what == 2 && lane);
		uint32_t mask = (1u << width) - 1, one = n >> lane & mask, two = m >> lane & mask;
		int32_t a, b, sum;

		if (is_unsigned) {
			a = one;
			b = two;
		} else {
			a = (int32_t)(one << (32 - width)) >> (32 - width);
			b = (int32_t)(two << (32 - width)) >> (32 - width);
		}
		sum = subtract ? a - b : a + b;
		if (is_unsigned ? (subtract ? sum >= 0 : sum > (int32_t)mask) : sum >= 0)
			ge |= (bytes ? 1 : 3) << lane / 8;
		if ((how & 3) == 2)
			sum = is_unsigned ? saturate_unsigned(step, sum, width) :
				saturate_signed(step, sum, width);
		else if ((how & 3) == 3)
			sum >>= 1;
		result |= ((uint32_t)sum & mask) << lane;
	}
	/* These saturate without setting Q. */
	step->cpu->flags = (step->cpu->flags & ~FLAG_Q) | q;
	if ((how & 3) == 1)
		step->cpu->ge = ge << 16;
	r[field_d(word)] = result;
}

static uint32_t saturating_sum(struct step *step)
{
	uint32_t word = step->in->word;
	int64_t m = (int32_t)step->cpu->r[field_m(word)], n = (int32_t)step->cpu->r[field_n(word)];

	if (bit(word, 22))
		n = (int32_t)saturate_signed(step, 2 * n, 32);
	return saturate_signed(step, bit(word, 21) ? m - n : m + n, 32);
}

static uint32_t extended(const struct step *step)
{
	uint32_t word = step->in->word, value, base = 0;
	bool is_unsigned = bit(word, 22);

	value = rotate_right(step->cpu->r[field_m(word)], 8 * bits(word, 11, 10));
	if (field_n(word) != PC)
		base = step->cpu->r[field_n(word)];
	switch (bits(word, 21, 20)) {
	case 0: {
		uint32_t low = is_unsigned ? (uint8_t)value : (uint32_t)(int8_t)value;
		uint32_t high = is_unsigned ? (uint8_t)(value >> 16) :
			(uint32_t)(int8_t)(value >> 16);

		return ((base + low) & 0xffff) | (((base >> 16) + high) << 16);
	}
	case 2:
		return base + (is_unsigned ? (uint8_t)value : (uint32_t)(int8_t)value);
	default:
		return base + (is_unsigned ? (uint16_t)value : (uint32_t)(int16_t)value);
	}
}

static uint32_t saturated_value(struct step *step)
{
	uint32_t word = step->in->word, value = step->cpu->r[field_m(word)];
	unsigned int amount = bits(word, 11, 7), to = bits(word, 20, 16);
	int32_t shifted = bit(word, 6) ? (int32_t)value >> (amount ? amount : 31) :
		(int32_t)(value << amount);

	return bit(word, 22) ? saturate_unsigned(step, shifted, to) :
		saturate_signed(step, shifted, to + 1);
}

static uint32_t saturated_halves(struct step *step)
{
	uint32_t word = step->in->word, value = step->cpu->r[field_m(word)], low, high;
	unsigned int to = bits(word, 19, 16);

	if (bit(word, 22)) {
		low = saturate_unsigned(step, half(value, false), to);
		high = saturate_unsigned(step, half(value, true), to);
	} else {
		low = saturate_signed(step, half(value, false), to + 1);
		high = saturate_signed(step, half(value, true), to + 1);
	}
	return (low & 0xffff) | high << 16;
}

static uint32_t unary(const struct step *step)
{
	uint32_t value = step->cpu->r[field_m(step->in->word)], result = 0;

	switch (step->in->op) {
	case A32_CLZ:
		return value ? (uint32_t)__builtin_clz(value) : 32;
	case A32_RBIT:
		for (int i = 0; i < 32; i++)
			result |= (value >> i & 1) << (31 - i);
		return result;
	case A32_REV16:
		return (value & 0xff00ff) << 8 | (value >> 8 & 0xff00ff);
	case A32_REVSH:
		return (uint32_t)(int16_t)((value & 0xff) << 8 | (value >> 8 & 0xff));
	default:
		return __builtin_bswap32(value);
	}
}

static uint32_t bit_field(const struct step *step)
{
	uint32_t word = step->in->word, low = bits(word, 11, 7), high = bits(word, 20, 16);
	uint32_t value = field_m(word) == PC ? 0 : step->cpu->r[field_m(word)], mask;

	switch (step->in->op) {
	case A32_BFI:
		mask = (0xffffffffu >> (31 - (high - low))) << low;
		return (step->cpu->r[field_d(word)] & ~mask) | (value << low & mask);
	case A32_UBFX:
		return bits(value, low + high, low);
	default:
		return (uint32_t)((int32_t)(value << (31 - low - high)) >> (31 - high));
	}
}

static uint32_t selected(const struct step *step)
{
	uint32_t word = step->in->word, mask = 0;

	for (int i = 0; i < 4; i++)
		if (bit(step->cpu->ge, 16 + i))
			mask |= 0xffu << 8 * i;
	return (step->cpu->r[field_n(word)] & mask) | (step->cpu->r[field_m(word)] & ~mask);
}

static uint32_t packed(const struct step *step)
{
	uint32_t word = step->in->word, amount = bits(word, 11, 7);
	uint32_t n = step->cpu->r[field_n(word)], m = step->cpu->r[field_m(word)];

	if (bit(word, 6))
		return (n & 0xffff0000) | ((uint32_t)((int32_t)m >> (amount ? amount : 31)) & 0xffff);
	return (n & 0xffff) | (m << amount & 0xffff0000);
}

static uint32_t wide(const struct step *step)
{
	uint32_t word = step->in->word, value = step->in->value;

	return step->in->op == A32_MOVT ? value << 16 | (step->cpu->r[field_d(word)] & 0xffff) : value;
}

static uint32_t quotient(const struct step *step)
{
	uint32_t m = step->cpu->r[field_m(step->in->word)], s = step->cpu->r[field_s(step->in->word)];

	if (!s)
		return 0;
	if (step->in->op == A32_UDIV)
		return m / s;
	return m == 0x80000000 && s == 0xffffffff ? m : (uint32_t)((int32_t)m / (int32_t)s);
}

static void multiply(struct step *step)
{
	uint32_t word = step->in->word, *r = step->cpu->r;
	uint32_t product = r[field_m(word)] * r[field_s(word)];

	if (step->in->op == A32_MLA)
		product += r[field_d(word)];
	else if (step->in->op == A32_MLS)
		product = r[field_d(word)] - product;
	r[field_n(word)] = product;
	if (step->in->op != A32_MLS && field_set_flags(word))
		set_nz(step, product, product);
}

enum offload_stop interpret_media(struct step *step)
{
	uint32_t *d = &step->cpu->r[field_d(step->in->word)];

	switch (a32_table[step->in->op].family) {
	case MULTIPLY:
		multiply(step);
		return OFFLOAD_RUNNING;
	case MULTIPLY_LONG:
		multiply_long(step);
		return OFFLOAD_RUNNING;
	case HALF_MULTIPLY:
		multiply_halves(step);
		return OFFLOAD_RUNNING;
	case DIVIDE:
		step->cpu->r[field_n(step->in->word)] = quotient(step);
		return OFFLOAD_RUNNING;
	case UNARY:
		*d = unary(step);
		return OFFLOAD_RUNNING;
	case EXTEND:
		*d = extended(step);
		return OFFLOAD_RUNNING;
	case BIT_FIELD:
		*d = bit_field(step);
		return OFFLOAD_RUNNING;
	case SATURATE:
		*d = saturated_value(step);
		return OFFLOAD_RUNNING;
	case WIDE:
		*d = wide(step);
		return OFFLOAD_RUNNING;
	default:
		break;
	}
	switch (step->in->op) {
	case A32_UMAAL:
		multiply_long(step);
		break;
	case A32_SMLAWy:
	case A32_SMULWy:
	case A32_SMLALxy:
		multiply_halves(step);
		break;
	case A32_SMLAD:
	case A32_SMLSD:
	case A32_SMLALD:
	case A32_SMLSLD:
		multiply_dual(step);
		break;
	case A32_SMMLA:
	case A32_SMMLS:
		multiply_high(step);
		break;
	case A32_USADA8:
		sum_differences(step);
		break;
	case A32_QADD:
	case A32_QSUB:
	case A32_QDADD:
	case A32_QDSUB:
		*d = saturating_sum(step);
		break;
	case A32_PKH:
		*d = packed(step);
		break;
	case A32_SXTAB16:
	case A32_UXTAB16:
		*d = extended(step);
		break;
	case A32_SEL:
		*d = selected(step);
		break;
	case A32_SSAT16:
	case A32_USAT16:
		*d = saturated_halves(step);
		break;
	default:
		parallel(step);
		break;
	}
	return OFFLOAD_RUNNING;
}
