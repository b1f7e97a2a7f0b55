// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Executes single instructions: loads, stores, exclusives and swaps. */
#include "interpret/interpret.h"

static enum offload_stop load(const struct step *step, uint32_t address, unsigned int size,
			      uint32_t *value)
{
	return step->bus->load(step->bus->owner, address, size, value);
}

static enum offload_stop store(const struct step *step, uint32_t address, unsigned int size,
			       uint32_t value)
{
	return step->bus->store(step->bus->owner, address, size, value);
}

static enum offload_stop unaligned(const struct step *step, uint32_t address)
{
	return step->bus->unaligned(step->bus->owner, address);
}

/* Where it goes, and what the base becomes. */
struct target {
	uint32_t address;
	uint32_t new_base;
	bool write_back;
};

static struct target target_of(const struct step *step)
{
	uint32_t word = step->in->word, base = step_read(step, field_n(word));
	uint32_t offset = step->in->value;
	bool single = a32_table[step->in->op].family == SINGLE;
	bool carry = step->cpu->flags & FLAG_C;
	bool before = bit(word, 24);
	uint32_t moved;

	if (single && bit(word, 25))
		offset = shifted_operand(step, &carry);
	else if (!single && !bit(word, 22))
		offset = step_read(step, field_m(word)) << step->in->value;
	moved = bit(word, 23) ? base + offset : base - offset;
	return (struct target){ before ? moved : base, moved, !before || bit(word, 21) };
}

static enum offload_stop transfer_double(struct step *step, struct target target)
{
	uint32_t t = field_d(step->in->word), low, high;
	bool is_load = !bit(step->in->word, 5);
	enum offload_stop stop;

	if (target.address & 3)
		return unaligned(step, target.address);
	if (is_load) {
		stop = load(step, target.address, 4, &low);
		if (stop == OFFLOAD_RUNNING)
			stop = load(step, target.address + 4, 4, &high);
	} else {
		stop = store(step, target.address, 4, step->cpu->r[t]);
		if (stop == OFFLOAD_RUNNING)
			stop = store(step, target.address + 4, 4, step->cpu->r[step->in->second]);
	}
	if (stop != OFFLOAD_RUNNING)
		return stop;
	if (target.write_back)
		step->cpu->r[field_n(step->in->word)] = target.new_base;
	if (is_load) {
		step->cpu->r[t] = low;
		step->cpu->r[step->in->second] = high;
	}
	return OFFLOAD_RUNNING;
}

enum offload_stop interpret_transfer(struct step *step)
{
	uint32_t word = step->in->word, value;
	struct target target = target_of(step);
	bool extra = a32_table[step->in->op].family == EXTRA, is_signed = false;
	unsigned int size;
	enum offload_stop stop;

	if (a32_table[step->in->op].family == DOUBLE)
		return transfer_double(step, target);
	if (extra) {
		is_signed = bit(word, 6);
		size = bit(word, 5) ? 2 : 1;
	} else {
		size = bit(word, 22) ? 1 : 4;
	}
	if (!bit(word, 20)) {
		stop = store(step, target.address, size, step_read(step, field_d(word)));
		if (stop == OFFLOAD_RUNNING && target.write_back)
			step->cpu->r[field_n(word)] = target.new_base;
		return stop;
	}
	stop = load(step, target.address, size, &value);
	if (stop != OFFLOAD_RUNNING)
		return stop;
	if (is_signed)
		value = size == 1 ? (uint32_t)(int8_t)value : (uint32_t)(int16_t)value;
	if (field_d(word) == PC) {
		stop = step_write(step, PC, value);
		if (stop != OFFLOAD_RUNNING)
			return stop;
	}
	if (target.write_back)
		step->cpu->r[field_n(word)] = target.new_base;
	if (field_d(word) != PC)
		step->cpu->r[field_d(word)] = value;
	return OFFLOAD_RUNNING;
}

enum offload_stop interpret_multiple(struct step *step)
{
	uint32_t word = step->in->word, n = field_n(word), base = step->cpu->r[n];
	uint32_t bytes = 4 * count_bits(word & 0xffff), values[16], value;
	bool up = bit(word, 23), before = bit(word, 24);
	uint32_t address = up ? base : base - bytes;
	enum offload_stop stop = OFFLOAD_RUNNING;

	if (before == up)
		address += 4;
	if (address & 3)
		return unaligned(step, address);
	for (uint32_t number = 0; number < 16; number++) {
		if (!bit(word, number))
			continue;
		if (bit(word, 20)) {
			stop = load(step, address, 4, &values[number]);
		} else {
			value = step_read(step, number);
			stop = store(step, address, 4, value);
		}
		if (stop != OFFLOAD_RUNNING)
			return stop;
		address += 4;
	}
	if (bit(word, 20) && bit(word, PC)) {
		stop = step_write(step, PC, values[PC]);
		if (stop != OFFLOAD_RUNNING)
			return stop;
	}
	if (bit(word, 21))
		step->cpu->r[n] = up ? base + bytes : base - bytes;
	for (uint32_t number = 0; number < PC && bit(word, 20); number++)
		if (bit(word, number))
			step->cpu->r[number] = values[number];
	return OFFLOAD_RUNNING;
}

static enum offload_stop swap(struct step *step)
{
	uint32_t word = step->in->word, address = step->cpu->r[field_n(word)], old;
	unsigned int size = step->in->op == A32_SWPB ? 1 : 4;
	enum offload_stop stop;

	if (address & (size - 1))
		return unaligned(step, address);
	stop = load(step, address, size, &old);
	if (stop == OFFLOAD_RUNNING)
		stop = store(step, address, size, step->cpu->r[field_m(word)]);
	if (stop == OFFLOAD_RUNNING)
		step->cpu->r[field_d(word)] = old;
	return stop;
}

enum offload_stop interpret_exclusive(struct step *step)
{
	struct offload_cpu *cpu = step->cpu;
	uint32_t word = step->in->word, d = field_d(word), m = field_m(word), low, high = 0;
	uint32_t address = cpu->r[field_n(word)] + step->in->value;
	static const uint8_t sizes[] = { 4, 8, 1, 2 };
	unsigned int size = sizes[bits(word, 22, 21)];
	enum offload_stop stop;

	if (a32_table[step->in->op].family == SWAP)
		return swap(step);
	if (step->in->op == A32_CLREX) {
		cpu->exclusive = 1;
		return OFFLOAD_RUNNING;
	}
	if (address & (size - 1))
		return unaligned(step, address);
	if (bit(word, 20)) {
		stop = load(step, address, size == 8 ? 4 : size, &low);
		if (stop == OFFLOAD_RUNNING && size == 8)
			stop = load(step, address + 4, 4, &high);
		if (stop != OFFLOAD_RUNNING)
			return stop;
		cpu->exclusive = address;
		cpu->r[d] = low;
		if (size == 8)
			cpu->r[step->in->second] = high;
		return OFFLOAD_RUNNING;
	}
	if (cpu->exclusive != address) {
		cpu->r[d] = 1;
		return OFFLOAD_RUNNING;
	}
	stop = store(step, address, size == 8 ? 4 : size, cpu->r[m]);
	if (stop == OFFLOAD_RUNNING && size == 8)
		stop = store(step, address + 4, 4, cpu->r[step->in->second]);
	if (stop != OFFLOAD_RUNNING)
		return stop;
	cpu->exclusive = 1;
	cpu->r[d] = 0;
	return OFFLOAD_RUNNING;
}
