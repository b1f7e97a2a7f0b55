// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Random states and memory. */
#include <string.h>

#include "differential.h"

uint64_t dice_state;

uint32_t dice(void)
{
	/* xorshift64* */
	dice_state ^= dice_state >> 12;
	dice_state ^= dice_state << 25;
	dice_state ^= dice_state >> 27;
	return (dice_state * 0x2545f4914f6cdd1dull) >> 32;
}

uint32_t below(uint32_t limit)
{
	return dice() % limit;
}

void put_word(uint8_t *memory, uint32_t offset, uint32_t word)
{
	memcpy(memory + offset, &word, 4);
}

void put_half(uint8_t *memory, uint32_t offset, uint32_t half)
{
	memory[offset] = half;
	memory[offset + 1] = half >> 8;
}

/*
 * The registers that a translator treats apart (its scratch register, SP, LR and PC) are one in four at
 * random, and two of them in one instruction one in sixteen: too rare for what happens only then.
 */
uint32_t favour_special_registers(const char *pattern, uint32_t code, uint32_t scratch)
{
	const uint32_t special[] = { scratch, scratch, SP, LR, PC };

	for (int i = 0; i + 4 <= 32 && pattern[i]; i += 4) {
		char field = pattern[i];

		if (!strchr("ndtsmahlu", field) || pattern[i + 1] != field || pattern[i + 2] != field ||
		    pattern[i + 3] != field || below(3))
			continue;
		code &= ~(0xfu << (28 - i));
		code |= special[below(5)] << (28 - i);
	}
	return code;
}

bool is_transfer(enum a32_op op)
{
	switch (a32_table[op].family) {
	case SINGLE:
	case EXTRA:
	case DOUBLE:
	case MULTIPLE:
	case EXCLUSIVE:
	case SWAP:
		return true;
	default:
		return false;
	}
}

void random_state(struct offload_cpu *cpu, uint32_t base)
{
	memset(cpu, 0, sizeof(*cpu));
	for (int i = 0; i < 15; i++) {
		switch (below(6)) {
		case 0:
			cpu->r[i] = base + TEST_DATA + below(0x1000) * 4;
			break;
		case 1:
			cpu->r[i] = below(40);
			break;
		case 2:
			/* Not the executor's own return addresses. */
			cpu->r[i] = -below(40);
			if (cpu->r[i] == RETURN_ADDRESS || cpu->r[i] == INTERRUPT_RETURN_ADDRESS)
				cpu->r[i]++;
			break;
		case 3:
			cpu->r[i] = 0x80000000u + below(3) - 1;
			break;
		default:
			cpu->r[i] = dice();
		}
	}
	cpu->r[SP] = base + TEST_STACK - 0x100 - below(64) * 8;
	cpu->flags = dice() & 0xf8000000;
	cpu->ge = dice() & 0xf0000;
	/* Masked, as nothing interrupts the oracle; A is 0 or 1. */
	cpu->control = 0xd3 | below(2) << 8;
	cpu->exclusive = 1;
}

/* Makes the addresses of a load or store likely to be good ones. */
void aim(struct offload_cpu *cpu, enum a32_op op, uint32_t word, uint32_t base)
{
	uint32_t n = field_n(word), m = field_m(word);

	/* The mode stays. */
	if (op == A32_MSR_reg && m != SP && m != PC)
		cpu->r[m] = (cpu->r[m] & ~0x3fu) | 0x13;
	if (op == A32_MSR_reg && m != SP && m != PC)
		cpu->r[m] &= ~0x200u;
	if (!is_transfer(op) || n == PC)
		return;
	if (n != SP)
		cpu->r[n] = base + TEST_DATA + 0x2000 + below(0x400) * 8;
	if (op >= A32_STRT_reg && op <= A32_LDRB_reg && m != n && m != PC)
		cpu->r[m] = below(0x400) & ~3u;
	if (a32_table[op].family >= EXTRA && a32_table[op].family <= DOUBLE && !bit(word, 22) &&
	    m != n && m != PC)
		cpu->r[m] = below(0x80) * 8;
}

void randomise_memory(uint8_t *memory)
{
	for (uint32_t i = 0; i < 0x8000; i += 4)
		put_word(memory, TEST_DATA + i, below(4) ? dice() : below(100));
	for (uint32_t i = 0; i < 0x1000; i += 4)
		put_word(memory, TEST_STACK - 0x800 + i, dice());
}
