// SPDX-License-Identifier: Apache-2.0 OR MIT
/* One hand-over: trial.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"

enum { FIRST = TEST_TEXT + 0x4000, SECOND = TEST_TEXT + 0x6000, BEHIND = TEST_TEXT + 0x7000 };
enum { LIMIT = 5000, HAND_OVER_LIMIT = 20000000 };
enum { STACK_BELOW = 0x1000, STACK_ABOVE = 0x800 };

/* What is run, and what it must lead to. */
struct trial {
	bool thumb;
	uint32_t base, mailbox;
	struct offload_cpu first, first_end, second, second_end;
	uint8_t before[TEST_MEMORY], after[TEST_MEMORY];
	uint32_t stacks[65], stack_count;
};

static struct oracle caches_oracles[2];
static struct big_core *bigs[2];
static struct small_core smalls[2], *small;
static struct trial trial;
static const struct timing *timing;
struct trial_counts trial_counts;

/* The time at which rendezvous.c withdraws an offer, if it read it as 0 when it began. */
enum { WITHDRAWN_US = 1000000 };

static void passes(void)
{
	if (timing->sleeps && !small->one_in && bigs[trial.thumb]->control->microseconds >= WITHDRAWN_US) {
		small->one_in = 1;
		for (uint32_t i = 0; i < timing->steps; i++)
			small_core_step(small);
		small->one_in = timing->one_in;
	}
	small_core_step(small);
}

/* --- a trial --- */

static bool ends_at_marker(struct oracle *oracle, struct offload_cpu *cpu)
{
	uint32_t half;

	if (!oracle_run(oracle, cpu, LIMIT))
		return false;
	half = half_at(oracle, cpu->r[PC]);
	if (half == MARKER >> 16 && (cpu->control & 0x20))
		cpu->r[PC] -= 2;
	return half_at(oracle, cpu->r[PC]) == (MARKER & 0xffff) && half_at(oracle, cpu->r[PC] + 2) == MARKER >> 16;
}

static bool make_trial(struct oracle *oracle, bool thumb)
{
	uint32_t place;

	trial.thumb = thumb;
	trial.base = oracle->base;
	for (uint32_t i = 0; i < TEST_TEXT_BYTES; i += 4)
		put_word(oracle->memory, TEST_TEXT + i, MARKER);
	randomise_memory(oracle->memory);
	memcpy(oracle->memory + PROGRAM, trial.before + PROGRAM, PROGRAM_BYTES);
	if (thumb) {
		put_thumb_block(oracle->memory, trial.base, FIRST);
		place = put_thumb_block(oracle->memory, trial.base, SECOND);
	} else {
		put_block(oracle->memory, FIRST);
		place = put_block(oracle->memory, SECOND);
	}
	hand_back_at(small->edge, below(4) ? trial.base + SECOND + place : 0);
	memcpy(trial.before, oracle->memory, TEST_MEMORY);
	random_state(&trial.first, trial.base);
	block_registers(&trial.first, trial.base, thumb);
	trial.first.r[PC] = trial.base + FIRST;
	trial.first.control |= thumb << 5;
	trial.first_end = trial.first;
	if (!ends_at_marker(oracle, &trial.first_end))
		return false;
	/* The call: flags mean nothing. */
	trial.second = trial.first_end;
	block_registers(&trial.second, trial.base, thumb);
	trial.second.r[SP] = trial.base + TEST_STACK - 0x100 - below(64) * 8;
	trial.second.r[LR] = trial.base + BEHIND + thumb;
	trial.second.r[PC] = trial.base + SECOND;
	trial.second.flags = trial.second.ge = 0;
	trial.second.control = 0xd3 | thumb << 5;
	trial.mailbox = ((trial.second.r[6] - trial.base) & ~3u) + 4 * below(16) - 32;
	put_word(oracle->memory, trial.mailbox, 1 + (oracle->memory[trial.mailbox] |
		 oracle->memory[trial.mailbox + 1] << 8 | oracle->memory[trial.mailbox + 2] << 16 |
		 (uint32_t)oracle->memory[trial.mailbox + 3] << 24));
	oracle_stack_count = 0;
	oracle_exposed = false;
	trial.second_end = trial.second;
	if (!ends_at_marker(oracle, &trial.second_end) || oracle_stack_count == 64 || oracle_exposed)
		return false;
	memcpy(trial.stacks, oracle_stacks, sizeof(oracle_stacks));
	trial.stack_count = oracle_stack_count;
	trial.stacks[trial.stack_count++] = trial.second_end.r[SP];
	/* RFE takes PC and status from below SP. */
	for (uint32_t i = 0; i < trial.stack_count; i++)
		if (trial.stacks[i] - trial.base - (TEST_STACK - STACK_BELOW) >= STACK_BELOW + STACK_ABOVE)
			return false;
	memcpy(trial.after, oracle->memory, TEST_MEMORY);
	return true;
}

/* Below the guest's stack pointer, where the hand-over and interrupts may write. */
static bool excused(uint32_t offset)
{
	uint32_t address = trial.base + offset;

	if (trial.second.r[SP] - 1 - address < 14 * 4)
		return true;
	for (uint32_t i = 0; i < trial.stack_count; i++)
		if (trial.stacks[i] - 1 - address < BELOW_STACK_BYTES)
			return true;
	return false;
}

static const char *compare_memory(const struct big_core *big)
{
	static char text[80];

	for (uint32_t i = 0; i < TEST_MEMORY; i++) {
		if (i - PROGRAM < PROGRAM_BYTES || hierarchy_byte(&big->caches, trial.base + i) == trial.after[i] ||
		    excused(i))
			continue;
		snprintf(text, sizeof(text), "memory differs at %08x", trial.base + i);
		return text;
	}
	return NULL;
}

static const char *compare_registers(const struct offload_cpu *a, const struct offload_cpu *b, const char *where)
{
	static char text[80];

	for (int i = 0; i < 16; i++)
		if (a->r[i] != b->r[i]) {
			snprintf(text, sizeof(text), "r%d is %08x and not %08x behind %s", i, a->r[i], b->r[i], where);
			return text;
		}
	if (a->flags != b->flags || a->ge != b->ge || ((a->control ^ b->control) & 0x3ff)) {
		snprintf(text, sizeof(text), "status is %08x and not %08x behind %s", a->flags | a->ge | a->control,
			 b->flags | b->ge | b->control, where);
		return text;
	}
	return NULL;
}

/* Behind an undefined instruction, or at it. */
static void to_marker(struct oracle *oracle, struct offload_cpu *cpu)
{
	if ((cpu->control & 0x20) && half_at(oracle, cpu->r[PC]) == MARKER >> 16)
		cpu->r[PC] -= 2;
}

/* Why the outcome is not the oracle's; NULL: it is. */
static const char *run_trial(struct oracle *oracle, struct big_core *big, enum fault fault)
{
	const struct program_head *head = (struct program_head *)(trial.before + PROGRAM);
	struct offload_cpu cpu = trial.first, call;
	const char *why;

	memcpy(small->edge->memory, trial.before, TEST_MEMORY);
	big_core_reset(big, small->edge->memory, fault, timing->again);
	big_core_warm(big);
	small_core_reset(small, timing->sleeps ? 0 : timing->one_in, timing->again);
	big->control->microseconds = 0;
	big->step_us = timing->step_us;
	if (!big_core_run(big, &cpu, LIMIT))
		return "the first block fails";
	to_marker(oracle, &cpu);
	why = compare_registers(&cpu, &trial.first_end, "the first block");
	if (why)
		return why;
	big->control->entry = trial.second.r[PC] | trial.thumb;
	big->control->mailbox = trial.base + trial.mailbox;
	big->control->rings_late = fault == FAULT_LATE_RING;
	call = trial.second;
	call.r[SP] = trial.base + PROGRAM + PROGRAM_BYTES;
	call.r[LR] = trial.second.r[LR];
	call.r[PC] = head->prepare & ~1u;
	if (!big_core_run(big, &call, HAND_OVER_LIMIT))
		return "the program does not begin";
	cpu = trial.second;
	cpu.r[PC] = head->handover_entry & ~1u;
	if (!big_core_run(big, &cpu, HAND_OVER_LIMIT))
		return "the second block fails";
	/* Whether the small core runs what it has not answered. */
	for (int i = 0; i < 1000; i++)
		passes();
	to_marker(oracle, &cpu);
	trial_counts.hand_overs++;
	trial_counts.by_small += small->runs;
	trial_counts.withdrawn += !small->runs;
	trial_counts.taken_back += small->taken_back;
	trial_counts.late_answers += small->late_answers;
	trial_counts.maintenance += big->maintenance;
	trial_counts.write_backs += big->caches.write_backs;
	trial_counts.speculated += big->speculated;
	big->maintenance = big->speculated = 0;
	if (small->runs > 1)
		return "the small core runs the job twice";
	why = compare_registers(&cpu, &trial.second_end, "the second block");
	return why ? why : compare_memory(big);
}

/* --- for check.c --- */

static void prepare(void)
{
	const char *folder = getenv("OFFLOAD_BIG_CORE");
	char path[4096];

	if (!folder) {
		fprintf(stderr, "OFFLOAD_BIG_CORE names no folder: offload/tests/run.sh builds what belongs there\n");
		exit(2);
	}
	for (int thumb = 0; thumb < 2; thumb++) {
		if (bigs[thumb])
			continue;
		caches_oracles[thumb] = oracle_new(PROGRAM_BASE);
		snprintf(path, sizeof(path), "%s/%s.bin", folder, thumb ? "t32" : "a32");
		bigs[thumb] = big_core_new(path);
		bigs[thumb]->passes = passes;
		small_core_new(&smalls[thumb], bigs[thumb],
			       edge_new(PROGRAM_BASE, 11, thumb, OPTIONS_ALL, TEST_CACHE));
	}
}

const char *trial_run(enum fault fault, const struct timing *how)
{
	bool thumb = below(2);

	prepare();
	timing = how;
	small = &smalls[thumb];
	memcpy(trial.before + PROGRAM, bigs[thumb]->program, PROGRAM_BYTES);
	while (!make_trial(&caches_oracles[thumb], thumb))
		;
	return run_trial(&caches_oracles[thumb], bigs[thumb], fault);
}

uint32_t trial_runs(void)
{
	return small->runs;
}

const char *trial_set(void)
{
	return trial.thumb ? "T32" : "A32";
}

struct big_core *trial_big_core(bool thumb, uint8_t *memory)
{
	static const struct timing never = { .one_in = 0 };

	prepare();
	timing = &never;
	small = &smalls[thumb];
	small_core_reset(small, 0, false);
	memset(memory, 0, TEST_MEMORY);
	randomise_memory(memory);
	memcpy(memory + PROGRAM, bigs[thumb]->program, PROGRAM_BYTES);
	for (uint32_t i = 0; i < TEST_TEXT_BYTES; i += 4)
		put_word(memory, TEST_TEXT + i, MARKER);
	big_core_reset(bigs[thumb], memory, FAULT_NONE, false);
	return bigs[thumb];
}
