// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Guest functions for the tests of the virtual executor: one for each thing that can go wrong, and
 * what a kernel module has: functions of the kernel that are not here, tables of pointers, sections
 * of its own. Compiled as A32 and as T32, to an object.
 */
typedef unsigned int u32;

#define NOTHING 0xd0000000

/* Of the kernel. */
void schedule(void);
void mutex_lock(void *lock);
void mutex_unlock(void *lock);
void *__kmalloc_noprof(u32 bytes, u32 flags);
void msleep(u32 ms);

volatile u32 word = 7;
u32 page_table[4096] __attribute__((aligned(16384)));

u32 reads_nothing(void)
{
	return *(volatile u32 *)NOTHING;
}

void writes_nothing(void)
{
	*(volatile u32 *)NOTHING = 1;
}

void writes_anywhere(u32 address, u32 value)
{
	*(volatile u32 *)address = value;
}

u32 goes_nowhere(void)
{
	return ((u32 (*)(void))NOTHING)() + 1;
}

u32 goes_into_data(void)
{
	return ((u32 (*)(void))&word)() + 1;
}

void writes_code(void)
{
	*(volatile u32 *)((u32)reads_nothing & ~3u) = 0;
}

/* Lists must be aligned, words need not be. */
u32 loads_an_unaligned_list(void)
{
	u32 address = (u32)&page_table[1] + 1, value;

	__asm__ volatile ("ldm %1, {r2, r3}\n\tadd %0, r2, r3" : "=r"(value) : "r"(address) :
			  "r2", "r3");
	return value;
}

u32 loads_an_unaligned_word(void)
{
	page_table[1] = 0x44332211;
	page_table[2] = 0x88776655;
	return *(volatile u32 *)((u32)&page_table[1] + 1);
}

u32 recurses(u32 depth)
{
	volatile u32 room[64];

	room[depth % 64] = depth;
	return recurses(depth + 1) + room[depth % 64];
}

void runs_for_ever(void)
{
	for (;;)
		word++;
}

void is_undefined(void)
{
	__asm__ volatile ("udf #0");
}

void calls_a_supervisor(void)
{
	__asm__ volatile ("svc #1");
}

void is_unpredictable(void)
{
#ifdef __thumb__
	__asm__ volatile (".inst.w 0xe8b00003");	/* ldm r0!, {r0, r1} */
#else
	__asm__ volatile (".inst 0xe8b00003");
#endif
}

/* The big core must run this; what it did until then stays. */
u32 sleeps(u32 value)
{
	word = value;
	schedule();
	return word + 1;
}

/* --- other addresses --- */

u32 uses_device(volatile u32 *device, u32 value)
{
	*device = value;
	return *device + 1;
}

/* Through an alias of the memory of word. */
u32 writes_alias(u32 distance, u32 value)
{
	*(volatile u32 *)((u32)&word + distance) = value;
	return word;
}

/* The same with a page table that it fills: a section at address leads to where word is. */
u32 makes_a_page_table(u32 address, u32 physical, u32 value, u32 *table)
{
	if (!table)
		table = page_table;
	table[address >> 20] = physical | 0x402;
	*(volatile u32 *)(address + ((u32)&word & 0xfffff)) = value;
	return word;
}

/* --- a module --- */

struct operations {
	u32 (*start)(u32 value);
	u32 (*stop)(u32 value);
	const char *name;
};

static u32 __attribute__((section(".init.text"), noinline)) starts(u32 value)
{
	return value * 3;
}

static u32 __attribute__((section(".exit.text"), noinline)) stops(u32 value)
{
	return value + 1000;
}

static const char info[] __attribute__((section(".modinfo"), used)) = "license=GPL";
const struct operations operations = { starts, stops, "small" };
const struct operations *volatile current = &operations;
static u32 lock[4];

u32 probes(u32 value)
{
	const struct operations *with = current;
	u32 *memory, sum;

	mutex_lock(lock);
	memory = __kmalloc_noprof(64, 0);
	if (!memory)
		return 0;
	memory[3] = with->start(value);
	msleep(20);
	sum = with->stop(memory[3]) + (u32)with->name[0] + memory[4];
	mutex_unlock(lock);
	return sum;
}

static volatile u32 interrupts, interrupt_number;

void on_interrupt(u32 number)
{
	interrupts++;
	interrupt_number = number;
}

/* Two sequences that stay the same as long as an interrupt changes no register and no flag. */
u32 is_interrupted(u32 times)
{
	u32 one = 1, two = 1;

	while (interrupts < times) {
		one = one * 1664525 + 1013904223;
		two = two * 1664525 + 1013904223;
		if (one != two)
			return 0;
	}
	return interrupt_number;
}

u32 is_not_interrupted_while_masked(u32 rounds)
{
	u32 before, after;

	__asm__ volatile ("cpsid i" ::: "memory");
	before = interrupts;
	while (rounds--)
		word++;
	after = interrupts;
	__asm__ volatile ("cpsie i" ::: "memory");
	/* What was pending comes now. */
	while (interrupts == after)
		;
	return before == after ? 1 : 0;
}

/* --- waiting, and what keeps interrupts away --- */

typedef unsigned long long u64;

u64 ktime_get(void);
void _raw_spin_lock_irq(void *lock);
void _raw_spin_unlock_irq(void *lock);
u32 _raw_spin_lock_irqsave(void *lock);
void _raw_spin_unlock_irqrestore(void *lock, u32 flags);
int mutex_lock_interruptible(void *lock);
int down_write_killable(void *lock);
int down_trylock(void *lock);
void up_write(void *lock);
void up(void *lock);
void wait_for_completion(void *completion);
void complete(void *completion);

/* Whether it waited that long, by the clock: 1, and 0 if not. */
u32 waits(u32 ms)
{
	u64 before = ktime_get();

	msleep(ms);
	return ktime_get() - before >= (u64)ms * 1000000;
}

void only_waits(u32 ms)
{
	msleep(ms);
}

/* Time never goes back, and begins where the caller says. */
u32 reads_the_time(u32 low, u32 high)
{
	u64 start = (u64)high << 32 | low, last = start;

	for (u32 i = 0; i < 50; i++) {
		u64 now = ktime_get();

		if (now < last)
			return 0;
		last = now;
		msleep(i);
	}
	return last - start >= 1176000000;	/* 0 + 1 + … + 48 ms */
}

static volatile u32 inside, handled, handled_inside;

void on_device(u32 number)
{
	(void)number;
	handled++;
	handled_inside += inside;
}

/* Interrupts come, but none while a lock is held that masks them, in either way. */
u32 is_not_interrupted_under_a_lock(u32 rounds)
{
	/* Interrupts come by a clock, rounds as fast as the machine is. */
	for (u32 round = 0; round < rounds || handled <= 10; round++) {
		u32 flags;

		_raw_spin_lock_irq(lock);
		inside = 1;
		for (u32 i = 0; i < 20; i++)
			word++;
		flags = _raw_spin_lock_irqsave(&lock[1]);
		word++;
		_raw_spin_unlock_irqrestore(&lock[1], flags);
		for (u32 i = 0; i < 20; i++)
			word++;
		inside = 0;
		_raw_spin_unlock_irq(lock);
		word++;
	}
	return !handled_inside;
}

/* Each way to take a lock says that it has it, and all are given back. */
u32 takes_locks_in_every_way(void)
{
	if (mutex_lock_interruptible(lock) || down_write_killable(&lock[1]) || down_trylock(&lock[2]))
		return 0;
	up(&lock[2]);
	up_write(&lock[1]);
	mutex_unlock(lock);
	return 1;
}

static u32 completion[4];
static volatile u32 to_come;

void on_completion(u32 number)
{
	(void)number;
	if (to_come && !--to_come)
		complete(completion);
}

/*
 * The third interrupt from here on completes it: the first may come before the wait has begun, and
 * from the second to the third it waits for a whole period.
 */
u32 waits_for_a_completion(void)
{
	u64 before = ktime_get();

	to_come = 3;
	wait_for_completion(completion);
	return ktime_get() - before > 1000000;
}

u32 idles(u32 interrupts_wanted)
{
	while (handled < interrupts_wanted)
		__asm__ volatile ("wfi" ::: "memory");
	return handled;
}

/* The delay is not shorter for being interrupted. */
u32 is_interrupted_while_it_waits(u32 ms)
{
	u64 before = ktime_get();

	msleep(ms);
	return handled > 3 && ktime_get() - before >= (u64)ms * 1000000;
}
