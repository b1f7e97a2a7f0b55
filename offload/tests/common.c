// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The oracle, random states, and the comparison of one run with it. */
#include <stdio.h>
#include <stdlib.h>
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

static const int ids[16] = {
	UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_R4, UC_ARM_REG_R5,
	UC_ARM_REG_R6, UC_ARM_REG_R7, UC_ARM_REG_R8, UC_ARM_REG_R9, UC_ARM_REG_R10, UC_ARM_REG_R11,
	UC_ARM_REG_R12, UC_ARM_REG_SP, UC_ARM_REG_LR, UC_ARM_REG_PC,
};


static int oracle_interrupt;

static void on_oracle_interrupt(uc_engine *core, uint32_t number, void *user)
{
	(void)user;
	oracle_interrupt = number;
	uc_emu_stop(core);
}

/* Where the oracle's access found nothing. It may go on for an instruction after a store. */
static uint32_t oracle_missed;
static bool oracle_failed;

static bool on_oracle_miss(uc_engine *core, uc_mem_type type, uint64_t address, int size,
			   int64_t value, void *user)
{
	(void)core;
	(void)type;
	(void)size;
	(void)value;
	(void)user;
	oracle_missed = address;
	oracle_failed = true;
	return false;
}

/*
 * Whether a guest address, taken for a linear-mapped one, is the executor's own memory in the
 * host: translated code does not see that nothing is there (docs/explanation/offload.md, Limits).
 */
static bool is_executors_own(const struct oracle *oracle, uint32_t address)
{
	uint32_t host = address - oracle->base + TEST_HOST_BASE;

	return host < 0x400000 || host - TEST_CACHE_BASE < TEST_CACHE;
}

/* Registers and status before the oracle's last instruction: what they are when it faults. */
static uint32_t before[17];

static void on_oracle_instruction(uc_engine *core, uint64_t address, uint32_t size, void *user)
{
	static int all[17];
	void *places[17];

	(void)size;
	(void)user;
	if (oracle_failed)
		return;
	for (int i = 0; i < 17; i++) {
		all[i] = i < 16 ? ids[i] : UC_ARM_REG_CPSR;
		places[i] = &before[i];
	}
	uc_reg_read_batch(core, all, places, 17);
	before[PC] = address;
}

static struct oracle oracle_new(uint32_t base)
{
	struct oracle oracle = { .base = base };
	uc_hook hook, miss, instruction;

	oracle.memory = aligned_alloc(4096, TEST_MEMORY);
	uc_open(UC_ARCH_ARM, UC_MODE_ARM, &oracle.core);
	uc_ctl_set_cpu_model(oracle.core, UC_CPU_ARM_CORTEX_A15);
	uc_mem_map_ptr(oracle.core, base, TEST_TEXT, UC_PROT_READ | UC_PROT_WRITE, oracle.memory);
	uc_mem_map_ptr(oracle.core, base + TEST_TEXT, TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_EXEC,
		       oracle.memory + TEST_TEXT);
	uc_mem_map_ptr(oracle.core, base + TEST_TEXT + TEST_TEXT_BYTES,
		       TEST_MEMORY - TEST_TEXT - TEST_TEXT_BYTES, UC_PROT_READ | UC_PROT_WRITE,
		       oracle.memory + TEST_TEXT + TEST_TEXT_BYTES);
	uc_hook_add(oracle.core, &hook, UC_HOOK_INTR, on_oracle_interrupt, NULL, 1, 0);
	uc_hook_add(oracle.core, &miss, UC_HOOK_MEM_READ_UNMAPPED | UC_HOOK_MEM_WRITE_UNMAPPED |
		    UC_HOOK_MEM_WRITE_PROT,
		    on_oracle_miss, NULL, 1, 0);
	uc_hook_add(oracle.core, &instruction, UC_HOOK_CODE, on_oracle_instruction, NULL, 1, 0);
	return oracle;
}

static uint32_t half_at(const struct oracle *oracle, uint32_t address)
{
	uint32_t offset = address - oracle->base;

	if (offset > TEST_MEMORY - 2)
		return 0;
	return oracle->memory[offset] | oracle->memory[offset + 1] << 8;
}

/* Runs until an instruction that stops; true: it stopped by the MARKER. */
static bool oracle_run(struct oracle *oracle, struct offload_cpu *cpu, uint32_t count)
{
	uint32_t status = cpu->flags | cpu->ge | cpu->control | 0xc0, thumb = cpu->control >> 5 & 1;
	uint32_t half;
	uc_err error;

	for (int i = 0; i < 15; i++)
		uc_reg_write(oracle->core, ids[i], &cpu->r[i]);
	uc_reg_write(oracle->core, UC_ARM_REG_CPSR, &status);
	oracle_interrupt = -1;
	oracle_missed = oracle->base;
	oracle_failed = false;
	uc_ctl_remove_cache(oracle->core, oracle->base + TEST_TEXT,
			    oracle->base + TEST_TEXT + TEST_TEXT_BYTES - 1);
	error = uc_emu_start(oracle->core, cpu->r[PC] | thumb, 0xfffffffc, 0, count);
	for (int i = 0; i < 16; i++)
		uc_reg_read(oracle->core, ids[i], &cpu->r[i]);
	uc_reg_read(oracle->core, UC_ARM_REG_CPSR, &status);
	if (error == UC_ERR_READ_UNMAPPED || error == UC_ERR_WRITE_UNMAPPED ||
	    error == UC_ERR_WRITE_PROT) {
		memcpy(cpu->r, before, sizeof(cpu->r));
		status = before[16];
	}
	cpu->flags = status & 0xf8000000;
	cpu->ge = status & 0xf0000;
	cpu->control = (cpu->control & ~0x20u) | (status & 0x20);
	if (!error)
		return true;
	if (error == UC_ERR_WRITE_UNMAPPED || error == UC_ERR_WRITE_PROT)
		return false;
	/* At the marker it stops with an exception of its own. */
	half = half_at(oracle, cpu->r[PC]);
	return half == (MARKER & 0xffff) || half == MARKER >> 16;
}

void oracle_clear_exclusive(struct oracle *oracle)
{
	struct offload_cpu cpu = { .control = 0x13, .exclusive = 1 };

	cpu.r[PC] = oracle->base + TEST_TEXT;
	put_word(oracle->memory, TEST_TEXT, 0xf57ff01f);	/* clrex */
	oracle_run(oracle, &cpu, 1);
	put_word(oracle->memory, TEST_TEXT, MARKER);
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
	cpu->control = 0x13;
	cpu->exclusive = 1;
}

/* Makes the addresses of a load or store likely to be good ones. */
void aim(struct offload_cpu *cpu, enum a32_op op, uint32_t word, uint32_t base)
{
	uint32_t n = field_n(word), m = field_m(word);

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

static void describe(const char *what, const struct offload_cpu *a, const struct offload_cpu *b,
		     const struct offload_cpu *start)
{
	fprintf(stderr, "%s\n", what);
	for (int i = 0; i < 16; i++)
		if (a->r[i] != b->r[i])
			fprintf(stderr, "  r%-2d was %08x: oracle %08x, translated %08x\n", i, start->r[i],
				a->r[i], b->r[i]);
	for (int i = 0; i < 16; i++)
		fprintf(stderr, "%s%08x", i ? " " : "  start ", start->r[i]);
	fprintf(stderr, "\n  flags were %08x: oracle %08x, translated %08x; GE %x %x, T %x %x\n",
		start->flags, a->flags, b->flags, a->ge, b->ge,
		a->control & 0x20, b->control & 0x20);
}

/* Below the guest's stack pointer memory is nobody's. */
static bool same_memory(const struct oracle *oracle, struct edge *edge, uint32_t sp)
{
	uint32_t offset = sp - oracle->base;

	if (memcmp(oracle->memory + TEST_DATA - 0x4000, edge->memory + TEST_DATA - 0x4000, 0x10000))
		return false;
	if (offset > TEST_STACK + 0x800 || offset < TEST_STACK - 0x2000)
		return true;
	return !memcmp(oracle->memory + offset, edge->memory + offset, TEST_STACK + 0x800 - offset);
}

static bool same(const struct offload_cpu *a, const struct offload_cpu *b)
{
	return !memcmp(a->r, b->r, sizeof(a->r)) && a->flags == b->flags && a->ge == b->ge &&
		!((a->control ^ b->control) & 0x20);
}

static void show_code(const struct edge *edge, const struct offload_cpu *start, uint32_t bytes)
{
	uint32_t at = start->r[PC] | (start->control >> 5 & 1), end = at + bytes, it = start->it;

	while (at < end) {
		struct instruction in;
		char text[80];

		if (!translator_fetch(&edge->executor.translator, at, it, &in))
			break;
		instruction_disassemble(&in, text, sizeof(text));
		fprintf(stderr, "  %08x  %08x  %s\n", at & ~1u, in.raw, text);
		if (in.op == A32_IT)
			it = in.value;
		else
			it = (it & 7) ? (it & 0xe0) | (it << 1 & 0x1f) : 0;
		at = in.next;
	}
}

uint32_t handed_back;

/* Where the executor hands back, the big core goes on: with its registers and its memory. */
static bool go_on_with_big_core(struct oracle *oracle, struct edge *edge, struct offload_cpu *cpu,
				uint32_t most)
{
	static uint8_t kept[TEST_MEMORY];
	bool fine;

	handed_back++;
	memcpy(kept, oracle->memory, TEST_MEMORY);
	memcpy(oracle->memory, edge->memory, TEST_MEMORY);
	fine = oracle_run(oracle, cpu, most);
	memcpy(edge->memory, oracle->memory, TEST_MEMORY);
	memcpy(oracle->memory, kept, TEST_MEMORY);
	return fine;
}

void hand_back_at(struct edge *edge, uint32_t address)
{
	edge->job.natives = address != 0;
	edge->job.native[0] = (struct offload_native){ address, NATIVE_FALLBACK };
}

/* Whether the instruction that stopped it accesses more than one word. */
static bool accesses_many(const struct edge *edge, const struct offload_cpu *cpu)
{
	struct instruction in;

	return !translator_fetch(&edge->executor.translator, cpu->r[PC] | (cpu->control >> 5 & 1),
				 cpu->it, &in) || in.op == A32_UNDEFINED ||
		a32_table[in.op].family == MULTIPLE || a32_table[in.op].family == DOUBLE;
}

bool compare(struct oracle *oracle, struct edge *edge, const struct offload_cpu *start,
	     uint32_t bytes, uint32_t most)
{
	struct offload_cpu one = *start, two = *start;
	enum offload_stop stop;
	bool fine;

	edge_forget(edge);
	fine = oracle_run(oracle, &one, most);
	stop = edge_run(edge, &two, 1000);
	if (stop == OFFLOAD_FALLBACK && go_on_with_big_core(oracle, edge, &two, most) != fine) {
		describe("one of them faults behind the hand-back:", &one, &two, start);
		return false;
	}
	/* Both fault there. */
	if (stop == OFFLOAD_FALLBACK && !fine)
		return true;
	/* It hit upon the executor's own return address. */
	if (stop == OFFLOAD_RETURNED)
		return true;
	if (!fine) {
		/* A fault there must be a stop here, with registers as they were. */
		fine = stop == OFFLOAD_UNMAPPED_READ || stop == OFFLOAD_UNMAPPED_WRITE ||
			stop == OFFLOAD_UNMAPPED_CODE || stop == OFFLOAD_CODE_WRITTEN ||
			stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_STACK_OVERFLOW ||
			stop == OFFLOAD_UNPREDICTABLE;
		if (is_executors_own(oracle, oracle_missed))
			return true;
		/* Of several words some may have been accessed, and others may fault there. */
		fine = fine && (stop > OFFLOAD_UNMAPPED_WRITE || stop < OFFLOAD_UNMAPPED_READ ||
				accesses_many(edge, &two) || (same(&one, &two)));
		if (fine)
			return true;
	} else if (stop == OFFLOAD_UNALIGNED || stop == OFFLOAD_UNPREDICTABLE) {
		/* The oracle does not mind; a stop is never a wrong result. */
		return true;
	}
	/* The marker's upper half, which the oracle has not executed yet. */
	if ((one.control & 0x20) && half_at(oracle, one.r[PC]) == MARKER >> 16)
		one.r[PC] -= 2;
	if (fine && same(&one, &two) && same_memory(oracle, edge, two.r[SP]))
		return true;
	for (uint32_t i = 0; i < TEST_MEMORY; i++)
		if (oracle->memory[i] != edge->memory[i]) {
			fprintf(stderr, "  memory differs at %08x\n", oracle->base + i);
			break;
		}
	show_code(edge, start, bytes);
	fprintf(stderr, "  translated ended with stop %d\n", stop);
	describe("they differ:", &one, &two, start);
	return false;
}

/* Both get the same memory and code. */
void load_code(struct oracle *oracle, struct edge *edge, const uint32_t *words,
		      uint32_t count, uint32_t offset)
{
	for (uint32_t i = 0; i < TEST_TEXT_BYTES; i += 4)
		put_word(oracle->memory, TEST_TEXT + i, MARKER);
	for (uint32_t i = 0; i < count; i++)
		put_word(oracle->memory, offset + 4 * i, words[i]);
	randomise_memory(oracle->memory);
	memcpy(edge->memory, oracle->memory, TEST_MEMORY);
}

const struct world worlds[] = {
	{ 0xc0000000, 9, false }, { 0x21000000, 9, false }, { 0xc0000000, 11, false },
	{ 0x21000000, 7, false }, { 0xc0000000, 12, false }, { 0x21000000, 0, false },
	{ 0xc0000000, 3, false }, { 0xc0000000, 11, true },
};

struct edge *edges[WORLDS];
struct oracle oracles[WORLDS];

/*
 * Whether it reads what is below SP, or makes it part of the stack without writing it: memory that
 * an interrupt may use at any time, and the translator does.
 */
bool exposes_stack(enum a32_op op, uint32_t word)
{
	bool up = bit(word, 23), before = bit(word, 24), moves = !before || bit(word, 21);
	bool load = a32_table[op].family == DOUBLE ? !bit(word, 5) : bit(word, 20);

	switch (a32_table[op].family) {
	case EXCLUSIVE:
	case SWAP:
		return false;
	case MULTIPLE:
		return !up && (load || !before || !bit(word, 21));
	default:
		return moves ? !up || !load || before : !up;
	}
}

void make_worlds(bool thumb, uint32_t options, uint32_t cache_size)
{
	for (int world = 0; world < WORLDS; world++) {
		if (edges[world]) {
			edge_free(edges[world]);
			uc_close(oracles[world].core);
			free(oracles[world].memory);
		}
		edges[world] = edge_new(worlds[world].base, worlds[world].scratch,
					thumb != worlds[world].other_table, options, cache_size);
		oracles[world] = oracle_new(worlds[world].base);
		memset(oracles[world].memory, 0, TEST_MEMORY);
		load_code(&oracles[world], edges[world], NULL, 0, TEST_TEXT);
	}
}
