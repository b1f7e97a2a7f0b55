// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The executor as firmware of a chip with both cores: Linux' remoteproc starts it, and it waits, without executing,
 * for jobs that the big core hands over (include/handover.h). No silicon has run it.
 */
#include "offer.h"
#include "runtime/target.h"
#include "target.h"

/* In memory that Linux maps as device memory; nothing of it is initialised by the loader. */
__attribute__((section(".handover"))) static struct offload_handover handover;
_Static_assert(offsetof(struct offload_handover, job) == TARGET_JOB - TARGET_HANDOVER_AT,
	       "the job is where the rest of the executor looks for it");

/* --- the resource table, as linux/remoteproc.h has it --- */

enum { RESOURCE_TRACE = 2 };

struct resource_table {
	uint32_t version, entries, reserved[2], offset[2];
	struct {
		uint32_t type, address, bytes, reserved;
		char name[32];
	} trace;
	struct handover_resource handover;
};

__attribute__((section(".resource_table"), used)) static const struct resource_table resources = {
	.version = 1,
	.entries = 2,
	.offset = { offsetof(struct resource_table, trace), offsetof(struct resource_table, handover) },
	.trace = { RESOURCE_TRACE, TARGET_HANDOVER_AT + sizeof(struct offload_handover), TRACE_BYTES, 0,
		   "dormouse" },
	.handover = { HANDOVER_RESOURCE, HANDOVER_MAGIC, TARGET_HANDOVER_AT, sizeof(struct offload_handover) },
};

/* --- the mailbox --- */

static volatile uint32_t *const interrupt_enable = (void *)0xe000e100;
static volatile uint32_t *const interrupt_disable = (void *)0xe000e180;
static volatile uint32_t *const interrupt_pending = (void *)0xe000e200;
static volatile uint32_t *const interrupt_forget = (void *)0xe000e280;

/* How long it is awake behind a ring, in steps of the timer. */
enum { SOON_TICKS = TARGET_SYSTICK_MHZ * 1000, SOON_TIMES = 200, LONGEST_TICKS = 0xffffff };
enum { MAILBOX_WORD = TARGET_MAILBOX_INTERRUPT / 32 };
#define MAILBOX_BIT (1u << TARGET_MAILBOX_INTERRUPT % 32)

static void prepare_mailbox(void)
{
	volatile uint32_t *mailbox = (void *)TARGET_MAILBOX;

	mailbox[TARGET_MAILBOX_CONTROL] = TARGET_MAILBOX_ENABLE;
#ifdef TARGET_MAILBOX_MASK
	mailbox[TARGET_MAILBOX_MASK] &= ~TARGET_MAILBOX_CHANNELS;
#endif
}

/* Takes what the big core has rung with, whatever it says: what counts is in memory. True: it has rung. */
static bool clear_mailbox(void)
{
	volatile uint32_t *mailbox = (void *)TARGET_MAILBOX;
	bool rung = interrupt_pending[MAILBOX_WORD] & MAILBOX_BIT;

#ifdef TARGET_MAILBOX_CLEAR
	mailbox[TARGET_MAILBOX_CLEAR] = TARGET_MAILBOX_CHANNELS;
#else
	/* A message is taken by reading it. */
	(void)mailbox[TARGET_MAILBOX_RECEIVE];
#endif
	interrupt_forget[MAILBOX_WORD] = MAILBOX_BIT;
	return rung;
}

/*
 * Waits for an offer and takes it. With interrupts masked one that pends ends WFI and is not taken; it has no vector.
 * The mailbox is cleared before memory is read: a ring behind that pends. Linux rings before it cleans its caches and
 * writes the offer, so the timer wakes this core each millisecond for a while. One that Linux could not send, as its
 * mailbox was suspended, is found some ten times a second.
 */
static uint32_t wait_for_offer(void)
{
	volatile struct offload_handover *shared = &handover;
	uint32_t number, soon = 0;

	__asm volatile ("cpsid i" ::: "memory");
	interrupt_enable[MAILBOX_WORD] = MAILBOX_BIT;
	for (;;) {
		if (clear_mailbox())
			soon = SOON_TIMES;
		set_timer(soon ? SOON_TICKS : LONGEST_TICKS);
		soon -= soon != 0;
		__asm volatile ("dsb" ::: "memory");
		if (offer_is_new(shared, &number)) {
			offer_take(shared, number);
			__asm volatile ("dmb" ::: "memory");
			if (offer_stands(shared, number))
				break;
			continue;
		}
		__asm volatile ("wfi" ::: "memory");
	}
	stop_timer();
	interrupt_disable[MAILBOX_WORD] = MAILBOX_BIT;
	__asm volatile ("dsb; isb; cpsie i; isb" ::: "memory");
	return number;
}

static void answer(uint32_t number)
{
	volatile struct offload_handover *shared = &handover;

	__asm volatile ("dmb" ::: "memory");
	shared->answer = number;
	__asm volatile ("dsb; sev" ::: "memory");
}

/* --- what start.S and the rest of the edge call --- */

static void give_outcome(const struct executor *x)
{
	handover.stop = x->stop;
	handover.stop_address = x->stop_address;
	for (int i = 0; i < 16; i++)
		handover.registers[i] = x->cpu.r[i];
	handover.status = x->cpu.flags | x->cpu.ge | (x->cpu.it & 3) << 25 | (x->cpu.it & 0xfcu) << 8 |
		x->cpu.control;
}

/* A fault of the executor itself: the guest's registers are lost, so the big core cannot go on. */
void report_failure(void)
{
	print("the executor failed\n");
	handover.stop = OFFLOAD_INTERNAL;
	answer(handover.taken);
	for (;;)
		__asm volatile ("wfi");
}

void target_main(void)
{
	memset(&handover, 0, sizeof(handover));
	clear_trace();
	handover.bytes = sizeof(handover);
	handover.state = TARGET_STATE;
	handover.table = TARGET_TABLE;
	handover.memory = TARGET_MEMORY;
	handover.memory_max = TARGET_MEMORY_MAX;
	handover.cache_bytes = TARGET_CACHE_MAX;
	handover.systick_mhz = TARGET_SYSTICK_MHZ;
	handover.devices = TARGET_DEVICES;
	handover.devices_end = TARGET_DEVICES_END;
	prepare_mailbox();
	__asm volatile ("dmb" ::: "memory");
	handover.magic = HANDOVER_MAGIC;
	for (;;) {
		uint32_t number = wait_for_offer();

		clear_executor(&executor);
		executor.stop = OFFLOAD_BAD_JOB;
		if (handover.timer_khz) {
			set_clock(handover.timer_khz);
			start_clock();
			if (start_job(&executor, &handover.job)) {
				run_job(&executor, &handover.job);
				kept_leave(&executor);
			}
		}
		give_outcome(&executor);
		print_number("job", number);
		print_number(" stop", executor.stop);
		print(" at ");
		print_hex(executor.cpu.r[PC]);
		print("\n");
		answer(number);
	}
}
