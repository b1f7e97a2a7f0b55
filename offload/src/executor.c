// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Serves translated code: chains, faults, interpreted instructions, interrupts, stops. */
#include "executor.h"
#include "t32.h"

static uint32_t *raw_scratch(struct executor *x)
{
	return &x->raw[x->job->layout.scratch];
}

static uint32_t stack_delta(const struct executor *x)
{
	return x->job->layout.host_base - x->job->layout.guest_base;
}

/* The guest's registers from the host's, and back. */
static void take_registers(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;
	struct offload_state *state = x->state;

	for (int i = 0; i < 15; i++)
		x->cpu.r[i] = (layout->options & OPTION_REGISTERS) ? x->raw[i] :
			state->registers[i];
	if (layout->options & OPTION_STACK)
		x->cpu.r[SP] = x->raw[SP] - stack_delta(x);
	else
		x->cpu.r[SP] = state->registers[SP];
	x->cpu.r[layout->scratch] = state->registers[layout->scratch];
	if (layout->options & OPTION_FLAGS) {
		x->cpu.flags = x->raw_flags & 0xf8000000;
	} else {
		x->cpu.flags = 0;
		for (int i = 0; i < 5; i++)
			x->cpu.flags |= state->flags[i] << (31 - i);
	}
	x->cpu.control = state->control;
	for (int i = 0; i < 3; i++)
		x->cpu.thread[i] = state->thread[i];
}

static void give_registers(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;
	struct offload_state *state = x->state;

	for (int i = 0; i < 15; i++) {
		if (!(layout->options & OPTION_REGISTERS))
			state->registers[i] = x->cpu.r[i];
		else if (i != SP && (uint32_t)i != layout->scratch)
			x->raw[i] = x->cpu.r[i];
	}
	if (layout->options & OPTION_STACK)
		x->raw[SP] = x->cpu.r[SP] + stack_delta(x);
	else
		state->registers[SP] = x->cpu.r[SP];
	state->registers[layout->scratch] = x->cpu.r[layout->scratch];
	x->raw_flags = x->cpu.flags;
	for (int i = 0; i < 5; i++)
		state->flags[i] = x->cpu.flags >> (31 - i) & 1;
	state->control = x->cpu.control;
	for (int i = 0; i < 3; i++)
		state->thread[i] = x->cpu.thread[i];
}

static uint32_t stopped(struct executor *x, enum offload_stop stop)
{
	x->stop = stop;
	return 0;
}

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

	for (uint32_t i = 0; i < x->job->natives; i++)
		if (x->job->native[i].address == address)
			return x->job->native[i].kind;
	return -1;
}

/* Host address of the code for a guest address, translated if need be. */
static uint32_t code_for(struct executor *x, uint32_t guest)
{
	uint32_t host = cache_find(&x->cache, guest);
	bool unmapped;

	if (host)
		return host;
	x->translator.most = REGION_MOST;
	host = translate_region(&x->translator, guest, &unmapped);
	if (!host && !unmapped) {
		cache_flush(&x->cache);
		host = translate_region(&x->translator, guest, &unmapped);
		/* A cache that is smaller than the region gets less of it. */
		while (!host && !unmapped && x->translator.most > 1) {
			x->translator.most /= 2;
			host = translate_region(&x->translator, guest, &unmapped);
		}
	}
	if (host)
		x->code_changed(x->owner);
	if (host || !unmapped)
		return host;
	x->cpu.r[PC] = guest;
	x->stop_address = guest;
	return 0;
}

/* Goes on at a guest address, with the guest's registers in x->cpu. */
static uint32_t go_on(struct executor *x, uint32_t guest)
{
	uint32_t host;

	x->cpu.r[PC] = guest;
	if (guest == INTERRUPT_RETURN_ADDRESS && x->in_interrupt) {
		uint32_t exclusive = 1;

		x->in_interrupt = false;
		x->cpu = x->interrupted;
		x->cpu.exclusive = exclusive;
		guest = x->cpu.r[PC];
	}
	if (guest == RETURN_ADDRESS)
		return stopped(x, OFFLOAD_RETURNED);
	if (guest & 3)
		return stopped(x, (guest & 1) ? OFFLOAD_REFUSED : OFFLOAD_UNPREDICTABLE);
	host = code_for(x, guest);
	if (!host)
		return stopped(x, x->cpu.r[PC] == guest && x->stop_address == guest ?
			       OFFLOAD_UNMAPPED_CODE : OFFLOAD_INTERNAL);
	give_registers(x);
	return host;
}

/* Interprets the instruction at cpu.r[15]. */
static bool interpret_one(struct executor *x)
{
	uint32_t word;

	if (!fetch(x, x->cpu.r[PC], &word)) {
		x->stop_address = x->cpu.r[PC];
		x->stop = OFFLOAD_UNMAPPED_CODE;
		return false;
	}
	x->interpreted++;
	x->stop_word = word;
	x->stop = interpret(&x->cpu, &x->bus, word);
	return x->stop == OFFLOAD_RUNNING;
}

bool executor_init(struct executor *x)
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
	good &= t32_modified(layout->table_base - layout->guest_base) >= 0;
	good &= layout->text_start >= layout->guest_base && layout->text_end <= end &&
		layout->text_start < layout->text_end && !((layout->text_start | layout->text_end) & 3);
	good &= layout->state < 0x10000 - sizeof(struct offload_state) && !(layout->state & 3);
	good &= layout->scratch < SP;
	good &= job->natives <= 64 && job->devices <= 8;
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
	x->cache.table_guest = layout->guest_base;
	cache_init(&x->cache);
	x->translator.layout = layout;
	x->translator.cache = &x->cache;
	x->translator.fetch = fetch;
	x->translator.native = native_at;
	x->translator.owner = x;
	x->bus = (struct offload_bus){ memory_load, memory_store, x };
	x->arena_next = job->arena_start;
	x->in_interrupt = false;
	x->faults = 0;
	x->interpreted = 0;
	x->interrupts = 0;
	x->native_calls = 0;
	x->delay_us = 0;
	for (int i = 0; i < 16; i++)
		x->calls[i] = 0;
	return true;
}

uint32_t executor_begin(struct executor *x)
{
	x->stop = OFFLOAD_RUNNING;
	for (int i = 0; i < 16; i++)
		x->cpu.r[i] = i < 4 ? x->job->arguments[i] : 0;
	x->cpu.r[SP] = x->job->stack_top;
	x->cpu.r[LR] = RETURN_ADDRESS;
	x->cpu.flags = 0;
	x->cpu.ge = 0;
	x->cpu.control = 0x13;	/* SVC mode, A32 */
	x->cpu.exclusive = 1;
	return go_on(x, x->job->entry);
}

/* Guest address of the instruction whose code holds a host address. */
static bool find_guest(struct executor *x, uint32_t host, uint32_t *guest, uint32_t *offset)
{
	const struct region *region = cache_region_at(&x->cache, host);

	if (!region)
		return false;
	*guest = region_guest_of(&x->cache, region, host, offset);
	return true;
}

static uint32_t cache_word(const struct executor *x, uint32_t host)
{
	uint32_t offset = host - x->cache.address;

	if (offset >= x->cache.size - 3)
		return 0;
	return x->cache.bytes[offset] | x->cache.bytes[offset + 1] << 8 |
		x->cache.bytes[offset + 2] << 16 | (uint32_t)x->cache.bytes[offset + 3] << 24;
}

/* The branch at a host address goes to another from now on. */
static void patch(struct executor *x, uint32_t site, uint32_t to)
{
	uint32_t old = cache_word(x, site), code;
	uint8_t *at = x->cache.bytes + (site - x->cache.address);

	if (bit(old, 28))
		code = t32_branch(site, to);
	else
		code = t32_branch_if(bits(old, 9, 6), site, to);
	for (int i = 0; i < 4; i++)
		at[i] = code >> 8 * i;
	x->code_changed(x->owner);
}

static uint32_t chain(struct executor *x, uint32_t host)
{
	uint32_t at = (host + 3) & ~3u, target = cache_word(x, at), site = cache_word(x, at + 4);
	uint32_t flushes = x->cache.flushes, to = go_on(x, target);

	/* Where the branch stood there may be something else by now. */
	if (to && flushes == x->cache.flushes && target != RETURN_ADDRESS)
		patch(x, site, to & ~1u);
	return to;
}

uint32_t executor_call(struct executor *x, uint32_t host, uint32_t number)
{
	uint32_t guest, offset;

	take_registers(x);
	if (number < 16)
		x->calls[number]++;
	switch (number) {
	case CALL_CHAIN:
		return chain(x, host);
	case CALL_EXIT:
		return go_on(x, cache_word(x, (host + 3) & ~3u));
	case CALL_DISPATCH:
		return go_on(x, *raw_scratch(x));
	case CALL_INTERPRET:
	case CALL_STOP:
		if (!find_guest(x, host - 2, &guest, &offset))
			return stopped(x, OFFLOAD_INTERNAL);
		x->cpu.r[PC] = guest;
		if (!interpret_one(x))
			return 0;
		if (x->cpu.r[PC] != guest + 4 || number == CALL_STOP)
			return go_on(x, x->cpu.r[PC]);
		give_registers(x);
		return host | 1;
	case CALL_NATIVE:
		x->stop = native_call(x, cache_word(x, host & ~3u) >> ((host & 2) ? 16 : 0) & 0xffff);
		if (x->stop != OFFLOAD_RUNNING) {
			if (find_guest(x, host - 2, &guest, &offset))
				x->cpu.r[PC] = guest;
			return 0;
		}
		return go_on(x, x->cpu.r[PC]);
	default:
		return stopped(x, OFFLOAD_INTERNAL);
	}
}

uint32_t executor_missing_target(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;

	take_registers(x);
	return go_on(x, *raw_scratch(x) - (layout->table_base - layout->guest_base));
}

uint32_t executor_fault(struct executor *x, uint32_t host, uint32_t accessed)
{
	uint32_t code = cache_word(x, host), guest, offset;

	x->faults++;
	/* ldr pc, [scratch]: a branch to where the target table does not reach. */
	if (code == (0xf000u << 16 | 0xf8d0 | x->job->layout.scratch))
		return executor_missing_target(x);
	take_registers(x);
	x->stop_address = accessed;
	if (!find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	x->cpu.r[PC] = guest;
	if (stack_delta(x) && (x->job->layout.options & OPTION_PROTECTION)) {
		/* A base that is neither SP nor the scratch register was a host address just then. */
		uint32_t base = code & 15, first = code & 0xffff;

		if ((first >> 9 == 0x7c || first >> 9 == 0x74) && base != SP && base != PC && base != x->job->layout.scratch)
			x->cpu.r[base] -= stack_delta(x);
	}
	if (!interpret_one(x))
		return 0;
	/* What the scratch register holds for the next instruction is not known: enter anew. */
	return go_on(x, x->cpu.r[PC]);
}

bool executor_at_boundary(struct executor *x, uint32_t host)
{
	const struct region *region = cache_region_at(&x->cache, host);
	uint32_t offset, code;

	if (!region)
		return false;
	code = region_host_of(&x->cache, region, 0);
	if (host < code || host >= code + region->code_bytes)
		return false;
	region_guest_of(&x->cache, region, host, &offset);
	return offset == 0;
}

uint32_t executor_interrupt(struct executor *x, uint32_t host, uint32_t number)
{
	uint32_t guest, offset;

	take_registers(x);
	if (!find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	x->interrupts++;
	x->cpu.r[PC] = guest;
	x->interrupted = x->cpu;
	x->in_interrupt = true;
	x->cpu.control |= 0x80;
	x->cpu.r[0] = number;
	x->cpu.r[SP] &= ~7u;
	x->cpu.r[LR] = INTERRUPT_RETURN_ADDRESS;
	return go_on(x, x->job->irq_handler);
}

void executor_stop_at(struct executor *x, uint32_t host, enum offload_stop stop)
{
	uint32_t guest, offset;

	take_registers(x);
	if (find_guest(x, host, &guest, &offset))
		x->cpu.r[PC] = guest;
	x->stop = stop;
}

uint32_t executor_resume(struct executor *x, const struct offload_cpu *cpu)
{
	x->stop = OFFLOAD_RUNNING;
	x->cpu = *cpu;
	return go_on(x, cpu->r[PC]);
}
