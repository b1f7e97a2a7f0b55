// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Starts a job, finds or makes the code for a guest address, interprets what is not translated. */
#include "runtime/internal.h"
#include "emit/t32.h"

static bool fetch(void *owner, uint32_t address, uint32_t *word)
{
	const struct executor *x = owner;
	const struct offload_layout *layout = &x->job->layout;
	const uint8_t *at;

	if ((address & 3) || address < layout->text_start || address >= layout->text_end)
		return false;
	at = x->memory + (address - layout->guest_base);
	*word = at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
	return true;
}

static int native_at(void *owner, uint32_t address)
{
	const struct executor *x = owner;

	if (x->job->link && (x->job->link & ~1u) == address)
		return NATIVE_FALLBACK;
	for (uint32_t i = 0; i < x->job->natives; i++)
		if ((x->job->native[i].address & ~1u) == address)
			return x->job->native[i].kind;
	return -1;
}

uint32_t make_code(struct executor *x, uint32_t guest)
{
	bool unmapped;
	uint32_t host;

	x->translator.max_units = REGION_DEFAULT;
	host = translate_region(&x->translator, guest, &unmapped);
	if (!host && !unmapped) {
		cache_flush(&x->cache);
		host = translate_region(&x->translator, guest, &unmapped);
		/* A cache that is smaller than the region gets less of it. */
		while (!host && !unmapped && x->translator.max_units > 1) {
			x->translator.max_units /= 2;
			host = translate_region(&x->translator, guest, &unmapped);
		}
	}
	if (host) {
		kept_note_region(x);
		x->code_changed(x->owner);
	}
	if (host || !unmapped)
		return host;
	x->stop_address = guest & ~1u;
	return 0;
}

/* Host address of the code for a guest address, translated if need be. */
static uint32_t code_for(struct executor *x, uint32_t guest)
{
	uint32_t host = cache_find(&x->cache, guest);

	return host ? host : make_code(x, guest);
}

uint32_t go_on(struct executor *x, uint32_t guest)
{
	uint32_t host;

	set_place(&x->cpu, guest);
	if (guest == INTERRUPT_RETURN_ADDRESS && x->in_interrupt) {
		uint32_t exclusive = 1;

		x->in_interrupt = false;
		x->cpu = x->interrupted;
		x->cpu.exclusive = exclusive;
		guest = place_of(&x->cpu);
	}
	if (guest == RETURN_ADDRESS)
		return stopped(x, OFFLOAD_RETURNED);
	/* Before there is code for it: what is kept for the next job must have nothing of this one's caller. */
	if (x->job->link && guest == x->job->link)
		return stopped(x, OFFLOAD_FALLBACK);
	if ((guest & 3) == 2)
		return stopped(x, OFFLOAD_UNPREDICTABLE);
	host = code_for(x, guest);
	if (!host)
		return stopped(x, x->stop_address == (guest & ~1u) ? OFFLOAD_UNMAPPED_CODE :
			       OFFLOAD_INTERNAL);
	give_registers(x);
	return host;
}

bool interpret_one(struct executor *x)
{
	bool idles;

	if (!translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &x->stop_at)) {
		x->stop_address = x->cpu.r[PC];
		x->stop = OFFLOAD_UNMAPPED_CODE;
		return false;
	}
	x->interpreted++;
	idles = x->stop_at.op == A32_WFI && x->wait && a32_condition_holds(x->stop_at.cond, x->cpu.flags);
	x->stop = interpret(&x->cpu, &x->bus, &x->stop_at);
	/* The guest goes on with the interrupt, behind this instruction. */
	if (idles)
		x->wait(x->owner, UINT64_MAX);
	return x->stop == OFFLOAD_RUNNING;
}

uint32_t interpret_and_go_on(struct executor *x)
{
	do {
		if (!interpret_one(x))
			return 0;
	} while (x->cpu.it);
	return go_on(x, place_of(&x->cpu));
}

/* Once, so small is better than fast; as the beginning of a run. */
__attribute__((cold)) bool executor_init(struct executor *x)
{
	const struct offload_job *job = x->job;
	const struct offload_layout *layout = &job->layout;
	uint32_t end = layout->guest_base + layout->size;
	bool good = true;

	x->stop = OFFLOAD_RUNNING;
	/* Sizes that can be protected, constants that an instruction can hold. */
	good &= layout->size >= 0x1000 && !(layout->size & (layout->size - 1));
	good &= !(layout->host_base & (layout->size - 1));
	good &= !(layout->guest_base & (layout->size - 1)) && end - 1 >= layout->guest_base;
	good &= t32_modified(layout->host_base - layout->guest_base) >= 0;
	good &= layout->thumb <= 1 && !(layout->table_base & 3);
	good &= layout->thumb || !(layout->options & OPTION_TABLE) ||
		t32_modified(layout->table_base - layout->guest_base) >= 0;
	good &= layout->state >= STATE_STACK_BYTES;
	good &= layout->text_start >= layout->guest_base && layout->text_end <= end &&
		layout->text_start < layout->text_end && !((layout->text_start | layout->text_end) & 3);
	/* Less optimised code has it in instructions. */
	good &= (layout->state < 0x10000 - sizeof(struct offload_state) || protects_state(layout)) &&
		!(layout->state & (STATE_WINDOW_BYTES - 1));
	good &= layout->scratch < SP;
	good &= job->natives <= NATIVES_MAX && job->devices <= 8;
	good &= job->stack_guard <= job->stack_bottom && job->stack_bottom < job->stack_top &&
		job->stack_guard >= layout->guest_base && job->stack_top <= end &&
		!(job->stack_top & 7);
	good &= job->arena_start <= job->arena_end &&
		(job->arena_start == job->arena_end ||
		 (job->arena_start >= layout->guest_base && job->arena_end <= end));
	if (!good) {
		x->stop = OFFLOAD_BAD_JOB;
		return false;
	}
	memory_forget(x);
	if (x->keeps) {
		cache_count(&x->cache);
		kept_judge(x);
	} else {
		x->cache.table_guest = layout->guest_base;
		cache_init(&x->cache);
	}
	x->translator.layout = layout;
	x->translator.cache = &x->cache;
	x->translator.without_pairs = false;
	x->translator.fetch = fetch;
	x->translator.native = native_at;
	x->translator.owner = x;
	x->bus = (struct offload_bus){ memory_load, memory_store, memory_unaligned, x };
	x->arena_next = job->arena_start;
	x->in_interrupt = false;
	x->faults = 0;
	x->interpreted = 0;
	x->interrupts = 0;
	x->native_calls = 0;
	x->delay_us = 0;
	x->waited_ns = 0;
	x->held = 0;
	for (int i = 0; i < 16; i++)
		x->calls[i] = 0;
	return true;
}

__attribute__((cold)) uint32_t executor_begin(struct executor *x)
{
	x->stop = OFFLOAD_RUNNING;
	__builtin_memcpy(x->cpu.r, x->job->registers, sizeof(x->job->registers));
	x->cpu.flags = 0;
	x->cpu.ge = 0;
	x->cpu.it = 0;
	x->cpu.control = x->job->control & 0x1df;
	x->cpu.exclusive = 1;
	__builtin_memcpy(x->cpu.thread, x->job->thread, sizeof(x->cpu.thread));
	x->cpu.r[SP] = x->job->stack_top;
	x->cpu.r[LR] = x->job->link ? x->job->link : RETURN_ADDRESS;
	x->begun_ns = x->now ? x->now(x->owner) : 0;
	x->wait_until[0] = x->wait_until[1] = 0;
	guard_state(x);
	return go_on(x, x->job->entry);
}

uint32_t executor_resume(struct executor *x, const struct offload_cpu *cpu)
{
	x->stop = OFFLOAD_RUNNING;
	x->cpu = *cpu;
	guard_state(x);
	return go_on(x, place_of(cpu));
}
