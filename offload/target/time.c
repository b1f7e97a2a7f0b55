// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Time on a board: the clock, the guest's timer interrupt, and waiting without executing. */
#include "runtime/target.h"
#include "target.h"

static volatile uint32_t *const interrupt_control = (void *)0xe000ed04;
static volatile uint32_t *const system_priorities = (void *)0xe000ed18;
static volatile uint32_t *const systick = (void *)0xe000e010;
static volatile uint32_t *const timer = (void *)TARGET_TIMER;

enum { TICK_PENDS = 1 << 26, TICK_FORGOTTEN = 1 << 25, MAX_TICKS = 0xffffff };
#define MAX_WAIT_NS ((uint64_t)MAX_TICKS * 1000 / TARGET_SYSTICK_MHZ)

void set_timer(uint32_t ticks)
{
	systick[1] = ticks - 1;
	systick[2] = 0;
	systick[0] = 7;
	/* What it said while the executor was busy is said. */
	*interrupt_control = TICK_FORGOTTEN;
}

void stop_timer(void)
{
	systick[0] = 0;
}

void pend_timer(void)
{
	*interrupt_control = TICK_PENDS;
}

#ifdef TARGET_TIMER_DOWN
/* CMSDK: control, value, what it begins again at. */
void start_clock(void)
{
	timer[2] = 0xffffffff;
	timer[1] = 0xffffffff;
	timer[0] = 1;
}

static uint32_t timer_value(void)
{
	return ~timer[TARGET_TIMER_VALUE];
}
#elif defined(TARGET_TIMER_COUNTER)
/* The big core's system counter, which runs whatever sleeps. Only its lower word is read. */
static uint32_t counter_khz;

void set_clock(uint32_t khz)
{
	counter_khz = khz;
}

void start_clock(void)
{
}

static uint32_t timer_value(void)
{
	return timer[TARGET_TIMER_VALUE];
}
#else
/* STM32: control, prescaler, what it ends at, the event that takes both over. */
void start_clock(void)
{
	timer[10] = TARGET_TIMER_PRESCALE;
	timer[11] = 0xffffffff;
	timer[5] = 1;
	timer[0] = 1;
}

static uint32_t timer_value(void)
{
	return timer[TARGET_TIMER_VALUE];
}
#endif

/* Of SysTick. */
static uint32_t systicks_of(uint32_t ns)
{
#if TARGET_SYSTICK_MHZ * TICK_NS == 1000
	return ns / TICK_NS;
#else
	return (uint32_t)((uint64_t)ns * TARGET_SYSTICK_MHZ / 1000);
#endif
}

uint64_t ticks_now(void)
{
	static uint32_t last;
	static uint64_t total;
	uint32_t now = timer_value();

	total += now - last;
	last = now;
#ifdef TARGET_TIMER_COUNTER
	return total * (1000000 / TICK_NS) / counter_khz;
#else
	return total;
#endif
}

uint64_t now_ns(void *owner)
{
	(void)owner;
	return ticks_now() * TICK_NS;
}

/* Until the timer's interrupt pends, which is not taken. The executor runs in a handler of its priority. */
static void wait_for_tick(void)
{
	uint64_t start = ticks_now();

	__asm volatile ("cpsid i" ::: "memory");
	system_priorities[2] = 0;
	while (!(*interrupt_control & TICK_PENDS))
		__asm volatile ("dsb; wfi" ::: "memory");
	system_priorities[2] = TICK_PRIORITY;
	__asm volatile ("cpsie i; isb" ::: "memory");
	executor.waited_ns += (ticks_now() - start) * TICK_NS;
}

/*
 * The same timer gives the guest its interrupts. If one of them is first, it stays pending and is taken when
 * the guest goes on; else the timer counts the wait, and then goes on where it was.
 */
bool wait_until(void *owner, uint64_t until)
{
	const struct target_job *job = (void *)TARGET_JOB;
	bool serves = executor_takes_interrupts(&executor) || until == UINT64_MAX;
	uint32_t pending = *interrupt_control & TICK_PENDS, left = systick[2];
	uint64_t now = now_ns(owner);
	uint32_t ticks = MAX_TICKS;

	if (serves && pending)
		return true;
	if (now >= until)
		return false;
	if (until - now < MAX_WAIT_NS)
		ticks = systicks_of((uint32_t)(until - now)) + 1;
	if (serves && ticks >= left) {
		wait_for_tick();
		return true;
	}
	set_timer(ticks < 2 ? 2 : ticks);
	wait_for_tick();
	if (serves)
		left -= ticks < left ? ticks : 0;
	set_timer(left < 2 ? 2 : left);
	/* Behind that the guest's own period. */
	while (!systick[2])
		;
	if (!retrying)
		systick[1] = job->tick - 1;
	if (pending)
		pend_timer();
	return false;
}
