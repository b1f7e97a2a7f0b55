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

/* r0 to lr; as a structure, so that the compiler copies them with few instructions. */
struct to_lr {
	uint32_t r[15];
};

/* The guest's registers from the host's, and back. */
static void take_registers(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;
	struct offload_state *state = x->state;
	const uint32_t *from = (layout->options & OPTION_REGISTERS) ? x->raw : state->registers;

	*(struct to_lr *)x->cpu.r = *(const struct to_lr *)from;
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
	x->cpu.control = (state->control & ~0x20u) | (x->cpu.control & 0x20);
	x->cpu.it = 0;
	__builtin_memcpy(x->cpu.thread, state->thread, sizeof(state->thread));
}

static void give_registers(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;
	struct offload_state *state = x->state;
	uint32_t *to = (layout->options & OPTION_REGISTERS) ? x->raw : state->registers;

	/* In the scratch register nothing is expected. */
	*(struct to_lr *)to = *(const struct to_lr *)x->cpu.r;
	if (layout->options & OPTION_STACK) {
		x->raw[SP] = x->cpu.r[SP] + stack_delta(x);
	} else {
		state->registers[SP] = x->cpu.r[SP];
		x->raw[SP] = layout->state;
	}
	state->registers[layout->scratch] = x->cpu.r[layout->scratch];
	x->raw_flags = x->cpu.flags;
	for (int i = 0; i < 5 && !(layout->options & OPTION_FLAGS); i++)
		state->flags[i] = x->cpu.flags >> (31 - i) & 1;
	state->control = x->cpu.control;
	__builtin_memcpy(state->thread, x->cpu.thread, sizeof(state->thread));
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
		if ((x->job->native[i].address & ~1u) == address)
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
	x->translator.most = REGION_USUAL;
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
	x->stop_address = guest & ~1u;
	return 0;
}

/* Where a guest processor is; bit 0: in T32. */
static uint32_t place_of(const struct offload_cpu *cpu)
{
	return cpu->r[PC] | (cpu->control >> 5 & 1);
}

static void set_place(struct offload_cpu *cpu, uint32_t guest)
{
	cpu->r[PC] = guest & ~1u;
	cpu->control = (cpu->control & ~0x20u) | (guest & 1) << 5;
	cpu->it = 0;
}

/* Goes on at a guest address, with the guest's registers in x->cpu. */
static uint32_t go_on(struct executor *x, uint32_t guest)
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
	if ((guest & 3) == 2)
		return stopped(x, OFFLOAD_UNPREDICTABLE);
	host = code_for(x, guest);
	if (!host)
		return stopped(x, x->stop_address == (guest & ~1u) ? OFFLOAD_UNMAPPED_CODE :
			       OFFLOAD_INTERNAL);
	give_registers(x);
	return host;
}

/* Interprets the instruction at cpu.r[15]. */
static bool interpret_one(struct executor *x)
{
	if (!translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &x->stop_at)) {
		x->stop_address = x->cpu.r[PC];
		x->stop = OFFLOAD_UNMAPPED_CODE;
		return false;
	}
	x->interpreted++;
	x->stop = interpret(&x->cpu, &x->bus, &x->stop_at);
	return x->stop == OFFLOAD_RUNNING;
}

/* The same, and on to the end of the IT block: translated code cannot be entered in one. */
static uint32_t interpret_and_go_on(struct executor *x)
{
	do {
		if (!interpret_one(x))
			return 0;
	} while (x->cpu.it);
	return go_on(x, place_of(&x->cpu));
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
	good &= layout->thumb <= 1 && !(layout->table_base & 3);
	good &= layout->thumb || t32_modified(layout->table_base - layout->guest_base) >= 0;
	good &= layout->state >= STATE_STACK_BYTES;
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
	t32_prepare();
	memory_forget(x);
	x->cache.table_guest = layout->guest_base;
	cache_init(&x->cache);
	x->translator.layout = layout;
	x->translator.cache = &x->cache;
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
	for (int i = 0; i < 16; i++)
		x->calls[i] = 0;
	return true;
}

uint32_t executor_begin(struct executor *x)
{
	x->stop = OFFLOAD_RUNNING;
	__builtin_memcpy(x->cpu.r, x->job->arguments, sizeof(x->job->arguments));
	for (int i = 4; i < SP; i++)
		x->cpu.r[i] = 0;
	x->cpu.flags = 0;
	x->cpu.ge = 0;
	x->cpu.it = 0;
	x->cpu.control = x->job->control & 0x1df;
	x->cpu.exclusive = 1;
	__builtin_memcpy(x->cpu.thread, x->job->thread, sizeof(x->cpu.thread));
	x->cpu.r[SP] = x->job->stack_top;
	x->cpu.r[LR] = RETURN_ADDRESS;
	return go_on(x, x->job->entry);
}

/* Registers of the guest that are host addresses become guest addresses, or the other way round. */
static void add_to_hosted(struct executor *x, uint32_t addend)
{
	for (int i = 0; i < 15; i++)
		if (bit(x->hosted, i))
			x->cpu.r[i] += addend;
}

/* The instruction whose code holds a host address becomes where the guest processor is. */
static bool find_guest(struct executor *x, uint32_t host, uint32_t *guest, uint32_t *offset)
{
	const struct region *region = cache_region_at(&x->cache, host);

	if (!region)
		return false;
	*guest = region_guest_of(&x->cache, region, host, offset);
	set_place(&x->cpu, *guest);
	x->cpu.it = region_it(region, *guest);
	x->hosted = region_hosted(region, *guest, *offset);
	add_to_hosted(x, -stack_delta(x));
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
	uint32_t guest, offset, known = 0;

	if (number < 16)
		x->calls[number]++;
	/* Where there is code already nobody needs to know the guest's registers. */
	if (number == CALL_EXIT)
		known = cache_find(&x->cache, cache_word(x, (host + 3) & ~3u));
	else if (number == CALL_DISPATCH)
		known = cache_find(&x->cache, *raw_scratch(x));
	if (known)
		return known;
	take_registers(x);
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
		if (number == CALL_STOP)
			return interpret_and_go_on(x);
		if (!interpret_one(x))
			return 0;
		/* There may be no code behind a branch, wherever it leads. */
		if (place_of(&x->cpu) != x->stop_at.next || instruction_branches(&x->stop_at))
			return go_on(x, place_of(&x->cpu));
		add_to_hosted(x, stack_delta(x));
		give_registers(x);
		return host | 1;
	case CALL_WALK:
		if (!find_guest(x, host - 2, &guest, &offset))
			return stopped(x, OFFLOAD_INTERNAL);
		if (!memory_walk(x, *raw_scratch(x)))
			return interpret_and_go_on(x);
		give_registers(x);
		return (host - 2 - offset) | 1;
	case CALL_NATIVE:
		x->stop = native_call(x, cache_word(x, host & ~3u) >> ((host & 2) ? 16 : 0) & 0xffff);
		if (x->stop != OFFLOAD_RUNNING) {
			find_guest(x, host - 2, &guest, &offset);
			return 0;
		}
		return go_on(x, x->cpu.r[PC]);
	default:
		return stopped(x, OFFLOAD_INTERNAL);
	}
}

/* See translate_branch.c: the scratch register holds the address of half the entry. */
static uint32_t thumb_target(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;

	return go_on(x, *raw_scratch(x) + 1 - (layout->table_base / 2 - layout->guest_base));
}

static uint32_t arm_target(struct executor *x)
{
	const struct offload_layout *layout = &x->job->layout;

	return go_on(x, *raw_scratch(x) - (layout->table_base - layout->guest_base));
}

uint32_t executor_missing_target(struct executor *x)
{
	take_registers(x);
	/* An empty entry was read. */
	return x->job->layout.thumb ? thumb_target(x) : arm_target(x);
}

/* What translate_plain.c had put away when an access faulted. */
static void take_saved(struct executor *x)
{
	struct instruction in;
	uint32_t list, index = 0;

	if (!translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &in))
		return;
	list = plain_saved(&x->job->layout, &in);
	for (uint32_t i = 0; i < 8; i++)
		if (bit(list, i))
			x->cpu.r[i] = x->state->saved[index++];
	x->cpu.r[SP] -= plain_moved_stack(&x->job->layout, &in);
}

/*
 * An access at a guest register, the scratch register being the distance to host addresses
 * (translate_memory.c). If its base moves before, it has: it goes back. False: another access.
 */
static bool take_back_base(struct executor *x, uint32_t code)
{
	uint32_t first = code & 0xffff, second = code >> 16;
	struct instruction in;
	struct access a;

	if (first >> 9 != 0x7c || (first & 0x80) || (second & 0x0fff) != x->job->layout.scratch ||
	    (first & 15) >= SP || (first & 15) == x->job->layout.scratch)
		return false;
	if (!translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &in))
		return false;
	a = access_of(&in);
	if (a.move && a.before)
		x->cpu.r[a.n] -= a.offset;
	return true;
}

uint32_t executor_fault(struct executor *x, uint32_t host, uint32_t accessed)
{
	uint32_t code = cache_word(x, host), guest, offset;

	x->faults++;
	take_registers(x);
	/* ldr pc, [scratch]: a branch to where the target table does not reach. */
	if (code == (0xf000u << 16 | 0xf8d0 | x->job->layout.scratch))
		return arm_target(x);
	/* ldr pc, [scratch, scratch]: the same in T32. */
	if (code == ((0xf000u | x->job->layout.scratch) << 16 | 0xf850 | x->job->layout.scratch))
		return thumb_target(x);
	x->stop_address = accessed;
	if (!find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	/* push {…}: nothing has happened yet */
	if ((code & 0xfe00) != 0xb400)
		take_saved(x);
	if (take_back_base(x, code))
		return interpret_and_go_on(x);
	if (stack_delta(x) && (x->job->layout.options & OPTION_PROTECTION)) {
		/* A base that is neither SP nor the scratch register was a host address just then. */
		uint32_t base = code & 15, first = code & 0xffff;

		if ((first >> 9 == 0x7c || first >> 9 == 0x74) && base != SP && base != PC &&
		    base != x->job->layout.scratch && !bit(x->hosted, base))
			x->cpu.r[base] -= stack_delta(x);
	}
	/* What the scratch register holds for the next instruction is not known: enter anew. */
	return interpret_and_go_on(x);
}

bool executor_at_boundary(struct executor *x, uint32_t host)
{
	const struct region *region = cache_region_at(&x->cache, host);
	uint32_t offset, code, guest;

	if (!region)
		return false;
	code = region_host_of(&x->cache, region);
	if (host < code || host >= code + region->code_bytes)
		return false;
	guest = region_guest_of(&x->cache, region, host, &offset);
	return offset == 0 && !region_it(region, guest);
}

uint32_t executor_interrupt(struct executor *x, uint32_t host, uint32_t number)
{
	uint32_t guest, offset;

	take_registers(x);
	if (!find_guest(x, host, &guest, &offset))
		return stopped(x, OFFLOAD_INTERNAL);
	x->interrupts++;
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
	find_guest(x, host, &guest, &offset);
	x->stop = stop;
}

bool executor_name_stop(struct executor *x)
{
	return translator_fetch(&x->translator, place_of(&x->cpu), x->cpu.it, &x->stop_at);
}

uint32_t executor_resume(struct executor *x, const struct offload_cpu *cpu)
{
	x->stop = OFFLOAD_RUNNING;
	x->cpu = *cpu;
	return go_on(x, place_of(cpu));
}
