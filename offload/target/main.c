// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The executor on a board (target/boards): runs the job in memory and reports its outcome. */
#include "runtime/target.h"
#include "target.h"

/* Its end, with the code cache, outlives a job. */
#ifndef TARGET_RETAINED
struct executor executor;
#endif
uint32_t *executor_raw = executor.raw;
#if !TARGET_TABLE_BYTES
/* The hash table in which start.S finds the target of an indirect branch; NULL: it leaves that to the executor. */
const void *executor_outside;
#endif

static uint32_t ticks_left;
bool retrying;

uint32_t run_guest(uint32_t host);

/* --- the processor's own registers --- */

static volatile uint32_t *const mpu_control = (void *)0xe000ed94;
static volatile uint32_t *const system_handlers = (void *)0xe000ed24;
static volatile uint32_t *const fault_status = (void *)0xe000ed28;
static volatile uint32_t *const fault_address = (void *)0xe000ed34;	/* MMFAR, BFAR */
static volatile uint32_t *const system_priorities = (void *)0xe000ed18;

/* Of all exceptions that come from translated code: none interrupts another. */
enum { CALL_PRIORITY = 0x40000000, FAULT_PRIORITIES = 0x404040 };
enum { ACCESS_NONE, ACCESS_PRIVILEGED = 1, ACCESS_READ = 2, ACCESS_ALL = 3, NEVER_EXECUTE = 1 << 28 };

/* A region: base is a multiple of size, a power of two; disabled: eighths that are not in it. */
static void protect(uint32_t number, uint32_t base, uint32_t size, uint32_t disabled, uint32_t access,
		    uint32_t flags)
{
	mpu_control[2] = base | 0x10 | number;
	/* Normal memory, shared and not cached: accesses to device memory must be aligned. */
	mpu_control[3] = flags | access << 24 | 3 << 18 | disabled << 8 |
		(31 - __builtin_clz(size) - 1) << 1 | 1;
}

/* Guest code is not written to: one or two regions of eighths that cover all of it. */
static void protect_text(uint32_t start, uint32_t end)
{
	uint32_t part = 32, whole, first;

	for (;; part *= 2) {
		whole = 8 * part;
		first = start & ~(whole - 1);
		if (end <= first + 2 * whole)
			break;
	}
	for (uint32_t region = 0; region < 2; region++, first += whole) {
		uint32_t disabled = 0;

		for (uint32_t i = 0; i < 8; i++)
			if (first + i * part >= end || first + (i + 1) * part <= start)
				disabled |= 1 << i;
		if (disabled != 0xff)
			protect(5 + region, first, whole, disabled, ACCESS_READ, NEVER_EXECUTE);
	}
}

static void protect_all(const struct offload_job *job)
{
	const struct offload_layout *layout = &job->layout;
	uint32_t delta = layout->host_base - layout->guest_base, guard;

#if TARGET_TABLE_BYTES
	protect(0, TARGET_TABLE, TARGET_TABLE_BYTES, 0, ACCESS_READ, NEVER_EXECUTE);
	/* Its last eighth, with struct offload_state, is read as the table is. */
	protect(1, 0, 0x8000, 0x80, ACCESS_PRIVILEGED, NEVER_EXECUTE);
#else
	protect(0, TARGET_STATE_PAGE, TARGET_STATE_BYTES, 0, ACCESS_READ, NEVER_EXECUTE);
#endif
	if (protects_state(layout))
		protect(2, TARGET_STATE, STATE_WINDOW_BYTES, 0, ACCESS_ALL, NEVER_EXECUTE);
	else
		protect(2, TARGET_STATE_PAGE, TARGET_STATE_BYTES, 0, ACCESS_ALL, NEVER_EXECUTE);
	/* The code cache; not the other target table before it, nor the executor behind it. */
	protect(3, TARGET_CACHE_REGION, TARGET_CACHE_REGION_BYTES, TARGET_CACHE_DISABLED, ACCESS_READ, 0);
	protect(4, layout->host_base, layout->size, 0, ACCESS_ALL, NEVER_EXECUTE);
	protect_text(layout->text_start + delta, layout->text_end + delta);
	/* Nothing writes below the stack, not even an exception. */
	guard = (job->stack_bottom + delta - 4096) & ~4095u;
	if (job->stack_bottom - job->stack_guard >= 8192)
		protect(7, guard, 4096, 0, ACCESS_NONE, NEVER_EXECUTE);
	*mpu_control = 5;	/* on; the executor itself sees everything */
	__asm volatile ("dsb; isb" ::: "memory");
}

/* --- the edge of the executor --- */

static void code_changed(void *owner)
{
	(void)owner;
	__asm volatile ("dsb; isb" ::: "memory");
}

/* What the guest masks stays pending, as a device holds its line: dropped, it could be missed each time. */
static bool interrupt_waits(void)
{
	return executor.job->irq_handler && !executor.in_interrupt && (executor.state->control & 0x80) &&
		interrupt_pends();
}

/* At the beginning of a guest instruction. */
static uint32_t handle_interrupt(uint32_t host)
{
	if (!ticks_left) {
		executor_stop_at(&executor, host, OFFLOAD_BUDGET);
		return 0;
	}
	if (!executor.job->irq_handler || executor.in_interrupt || (executor.state->control & 0x80))
		return 1;
	return interrupt_guest(host);
}

/* A supervisor call; the number is in its own byte. */
static uint32_t handle_call(uint32_t host)
{
	uint8_t number = *(uint8_t *)(host - 2);

	if (number != CALL_POLL)
		return executor_call(&executor, host, number);
	executor.state->pending = interrupt_waits();
	return handle_interrupt(host - 2);
}

/* The timer: only at an instruction's beginning, unmasked, can the guest be interrupted; else soon again. */
static uint32_t handle_tick(uint32_t host)
{
	const struct target_job *job = (void *)TARGET_JOB;
	static uint32_t soon = 7, retried;

	/* A guest that masks interrupts for ever has a budget, too. */
	retried += retrying ? soon * TARGET_SYSTICK_MHZ / 25 : job->tick;
	if (retried >= job->tick) {
		retried -= job->tick;
		if (ticks_left)
			ticks_left--;
	}
	/* Without OPTION_INTERRUPTS translated code looks for it. */
	if (!(job->job.layout.options & OPTION_INTERRUPTS)) {
		executor.state->pending = 1;
		return 1;
	}
	if (!executor_at_boundary(&executor, host) || (ticks_left && interrupt_waits())) {
		retrying = true;
		/* Enough ticks for the way back and some instructions of the guest. */
		soon = soon * 5 % 61 + 80;
		set_timer(soon * TARGET_SYSTICK_MHZ / 25);
		return 1;
	}
	if (retrying) {
		retrying = false;
		set_timer(job->tick);
	}
	return handle_interrupt(host);
}

static uint32_t handle_fault(uint32_t host)
{
	uint32_t status = *fault_status, accessed = (status & 0x80) ? fault_address[0] :
		(status & 0x8000) ? fault_address[1] : 0;

	*fault_status = status;
	if (status & 0x10) {
		/* Its address should have been put on the stack: it is unknown. */
		__asm volatile ("mrs %0, psp" : "=r" (executor.cpu.r[SP]));
		executor.cpu.r[SP] -= executor.job->layout.host_base - executor.job->layout.guest_base;
		executor.cpu.r[PC] = 0;
		executor.stop_address = executor.cpu.r[SP];
		executor.stop = OFFLOAD_STACK_OVERFLOW;
		return 0;
	}
	/* UsageFault: INVSTATE, from an empty entry of the target table. */
	if (status & 0x00020000)
		return executor_missing_target(&executor);
	/* Of what is unaligned the interpreter says at which address. */
	if (status & 0x01000000)
		return executor_fault(&executor, host, 0);
	/* A branch to where no code may be. */
	if (status & 0x101)
		return executor_missing_target(&executor);
	return executor_fault(&executor, host, accessed);
}

uint32_t handle_exception(uint32_t number)
{
	uint32_t host = executor.raw[PC], next;

	if (number == 11)
		next = handle_call(host);
	else if (number == 15)
		next = handle_tick(host);
	else
		next = handle_fault(host);
	/* The frame of the return must fit on the stack, too. */
	if (next > 1 && (executor.job->layout.options & OPTION_STACK) &&
	    executor.cpu.r[SP] - executor.job->stack_guard <
	    executor.job->stack_bottom - executor.job->stack_guard + 64) {
		executor.stop_address = executor.cpu.r[SP];
		executor.stop = OFFLOAD_STACK_OVERFLOW;
		return 0;
	}
	return next;
}

#ifndef TARGET_HANDOVER
void report_failure(void)
{
	print("failed ");
	print_hex(*fault_status);
	print(" at ");
	print_hex(fault_address[0]);
	print("\n");
	leave(1);
}
#endif

/* --- the job --- */

#ifdef TARGET_HANDOVER
#define FOR_HANDOVER
#else
#define FOR_HANDOVER static
#endif

#ifndef TARGET_HANDOVER
/* Whether a stop is about an address that was accessed. */
static bool has_address(enum offload_stop stop)
{
	return (stop >= OFFLOAD_UNALIGNED && stop <= OFFLOAD_STACK_OVERFLOW) ||
		stop == OFFLOAD_INTERNAL || stop == OFFLOAD_WILD_STORE;
}

static void report(struct executor *x, uint32_t run, uint32_t ticks, uint32_t begin_ticks)
{
	char text[80];

	print_number("run", run);
	print_number(" stop", x->stop);
	print_number(" ticks", ticks);
	print_number(" begin", begin_ticks);
	for (int i = 0; i < 16; i++) {
		print(" r");
		print_decimal(i);
		print(" ");
		print_hex(x->cpu.r[i]);
	}
	print(" flags ");
	print_hex(x->cpu.flags | x->cpu.ge | (x->cpu.it & 3) << 25 | (x->cpu.it & 0xfcu) << 8 | x->cpu.control);
	print_number(" regions", x->cache.translated_regions);
	print_number(" translated", x->cache.translated_instructions);
	print_number(" emitted", x->cache.emitted_bytes);
	print_number(" cached", x->cache.used);
	print_number(" flushes", x->cache.flushes);
	print_number(" faults", x->faults);
	print_number(" interpreted", x->interpreted);
	print_number(" interrupts", x->interrupts);
	print_number(" natives", x->native_calls);
	print_number(" delay_us", x->delay_us);
	print_number(" waited_us", (uint32_t)(x->waited_ns / 1000));
	print_number(" held", x->held);
	interrupt_report();
	for (int i = 0; i < 10; i++) {
		print(" call");
		print_decimal(i);
		print_number("", x->calls[i]);
	}
	if (has_address(x->stop)) {
		print(" accessed ");
		print_hex(x->stop_address);
	}
	if (x->stop != OFFLOAD_RETURNED && x->stop != OFFLOAD_BAD_JOB && executor_name_stop(x)) {
		print(" word ");
		print_hex(x->stop_at.raw);
		instruction_disassemble(&x->stop_at, text, sizeof(text));
		print(" instruction ");
		print(text);
	}
	print("\n");
}
#endif

/* All but what may be kept, and what executor_init() and the translator write before they read it. */
FOR_HANDOVER void clear_executor(struct executor *x)
{
	memset(x, 0, offsetof(struct executor, bus));
}

static void prepare(struct executor *x, struct target_job *job)
{
	x->keeps = job->keep == 1 && kept_is_of(&x->kept, &job->job, job->cache_bytes);
	if (!x->keeps)
		kept_forget(x);
	x->job = &job->job;
	x->state = (void *)TARGET_STATE;
	x->memory = (void *)job->job.layout.host_base;
	x->cache.bytes = (void *)TARGET_CACHE;
	x->cache.address = TARGET_CACHE;
	x->cache.size = job->cache_bytes;
	x->cache.table[job->job.layout.thumb & 1] = (void *)TARGET_TABLE;
	x->cache.table_words[job->job.layout.thumb & 1] = TARGET_TABLE_BYTES / 4;
	x->cache.table[!job->job.layout.thumb] = (void *)TARGET_OTHER_TABLE;
	x->cache.table_words[!job->job.layout.thumb] = TARGET_OTHER_TABLE_BYTES / 4;
	x->device = access_device;
	x->now = now_ns;
	x->wait = interrupt_wait;
	x->code_changed = code_changed;
#if !TARGET_TABLE_BYTES
	executor_outside = job->job.layout.scratch == 11 ? x->cache.outside : NULL;
#endif
}

static bool devices_are_good(const struct target_job *target)
{
	const struct offload_job *job = &target->job;

	for (uint32_t i = 0; i < job->devices && i < 8; i++)
		if (!device_is_good(job->device[i].host, job->device[i].size))
			return false;
	for (uint32_t i = 0; i < target->presets && i < 4; i++)
		if (!device_is_good(target->preset[i].host, 4))
			return false;
	return target->presets <= 4;
}

/* What start.S knows of calls and the hash table. */
_Static_assert(CALL_DISPATCH == 4 && sizeof(executor.cache.outside[0]) == 8 && OUTSIDE_PROBES == 3,
	       "start.S finds targets");
_Static_assert(offsetof(struct offload_state, control) == 0x88 &&
	       offsetof(struct offload_state, status) == 0x8c && CALL_CONTROL == 7 &&
	       CONTROL_SET >> 8 == 1 && CONTROL_CLEAR >> 8 == 2 && CONTROL_FROM >> 8 == 3,
	       "start.S changes CPSR's masks");

/* Judges a job and prepares everything for it. */
FOR_HANDOVER bool start_job(struct executor *x, struct target_job *job)
{
	prepare(x, job);
	if (job->magic != TARGET_MAGIC || job->bytes != sizeof(*job) ||
	    job->cache_bytes < 1024 || job->cache_bytes > TARGET_CACHE_MAX ||
	    job->job.layout.host_base != TARGET_MEMORY || job->job.layout.size > TARGET_MEMORY_MAX ||
	    job->job.layout.table_base != TARGET_TABLE || job->job.layout.state != TARGET_STATE ||
	    job->job.layout.text_start < job->job.layout.guest_base + TARGET_FIRST_CODE ||
	    !devices_are_good(job) || job->tick < 64 || job->tick > 0xffffff || !executor_init(x)) {
		x->stop = OFFLOAD_BAD_JOB;
		return false;
	}
	*(volatile uint32_t *)0xe000ed14 = 0;	/* CCR: no trap for unaligned words, 4-byte stacks */
	*system_handlers |= 7 << 16;
	system_priorities[0] = FAULT_PRIORITIES;
	system_priorities[1] = CALL_PRIORITY;
	system_priorities[2] = TICK_PRIORITY;
	protect_all(&job->job);
	for (uint32_t i = 0; i < job->presets; i++)
		*(volatile uint32_t *)job->preset[i].host = job->preset[i].value;
	return true;
}

/* Runs it once; the ticks at which translated code began to run. */
FOR_HANDOVER uint64_t run_job(struct executor *x, const struct target_job *job)
{
	uint64_t begun;
	uint32_t host;

	x->arena_next = job->job.arena_start;
	x->waited_ns = 0;
	ticks_left = job->budget;
	host = executor_begin(x);
	begun = ticks_now();
	if (host) {
		set_timer(job->tick);
		run_guest(host);
		stop_timer();
	}
	return begun;
}

#ifndef TARGET_HANDOVER
/* For the next emulator, in which it is memory that was retained. */
static void dump_kept(const struct executor *x)
{
	dump("executor.bin", (uint32_t)x, sizeof(*x));
	dump("cache.bin", TARGET_CACHE, x->cache.used);
	dump("table.bin", TARGET_TABLE + TARGET_FIRST_CODE, TARGET_TABLE_BYTES - TARGET_FIRST_CODE);
	dump("other-table.bin", TARGET_OTHER_TABLE, TARGET_OTHER_TABLE_BYTES);
}

void target_main(void)
{
	struct target_job *job = (void *)TARGET_JOB;
	struct executor *x = &executor;

	clear_executor(x);
	start_clock();
	if (!start_job(x, job)) {
		report(x, 0, 0, 0);
		leave(0);
	}
	for (uint32_t run = 0; run < job->runs; run++) {
		uint64_t start = ticks_now(), begun = run_job(x, job), ended = ticks_now();

		/* Of waiting there are no instructions. */
		report(x, run, ended - start - x->waited_ns / TICK_NS, begun - start);
		if (x->stop != OFFLOAD_RETURNED)
			break;
	}
	if (kept_leave(x) && job->keep)
		dump_kept(x);
	if (job->dump_bytes)
		dump("memory.bin", job->dump_start - job->job.layout.guest_base + TARGET_MEMORY,
		     job->dump_bytes);
	leave(0);
}
#endif
