/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The executor: what happens whenever translated code calls, faults or is interrupted.
 *
 * It knows nothing of the core that runs translated code. An edge (target/ for a Cortex-M3,
 * tests/ for an emulator in a host process) runs code from a host address on, and hands every
 * exception to one of the functions below; each says at which host address to go on, or 0 to stop.
 */
#ifndef OFFLOAD_EXECUTOR_H
#define OFFLOAD_EXECUTOR_H

#include "interpret/interpret.h"
#include "translate/translate.h"

/* What a code cache was filled for. */
struct kept {
	uint32_t magic;		/* KEPT_MAGIC: the cache and the rest of this are whole */
	uint32_t cache_bytes;
	uint32_t link;		/* where the last job handed back */
	struct offload_layout layout;
	uint32_t natives;
	struct offload_native native[NATIVES_MAX];
};
#define KEPT_MAGIC 0x3150454bu	/* "KEP1" */

struct executor {
	struct offload_job *job;
	struct offload_state *state;
	uint8_t *memory;	/* guest memory, as this process reaches it */
	struct offload_cpu cpu;
	/* The host's registers when it was interrupted, and when it goes on. */
	uint32_t raw[16];
	uint32_t raw_flags;
	uint32_t hosted;	/* of the instruction found last: see translate_loop.c */
	/* Reads or writes a device; the edge's. */
	bool (*device)(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value);
	/* The time in nanoseconds, which only grows; the edge's. NULL: there is no clock, nothing waits. */
	uint64_t (*now)(void *owner);
	/*
	 * Stops executing until a time or an interrupt of the guest's, whichever is first; UINT64_MAX: until an
	 * interrupt. True: one is pending, so the guest must go on with it.
	 */
	bool (*wait)(void *owner, uint64_t until);
	/* Says that code was written at a host address. */
	void (*code_changed)(void *owner);
	void *owner;

	enum offload_stop stop;
	struct instruction stop_at;	/* the instruction */
	uint32_t stop_address;	/* what it accessed */
	uint32_t arena_next;
	/* A call that the executor makes itself: interrupts. */
	struct offload_cpu interrupted;
	bool in_interrupt;
	uint64_t begun_ns;
	uint64_t wait_until[2];	/* of the delay that is interrupted, if not 0; in the handler's own */
	/* For reports. */
	uint32_t calls[16];
	uint32_t faults;
	uint32_t interpreted;
	uint32_t interrupts;
	uint32_t delay_us;	/* that the guest wanted to wait */
	uint64_t waited_ns;	/* in which nothing was executed; the edge counts */
	uint32_t held;		/* locks that replacements have taken and not given back */
	uint32_t native_calls;
	bool keeps;	/* what is in cache is of this job's guest: the edge says so, by kept_is_of() */
	/* At the end, because they are large; what stands before is 0 when a job begins. */
	struct offload_bus bus;
	struct translator translator;
	/* What outlives a job; an edge that keeps it clears nothing from here on. */
	struct code_cache cache;
	struct kept kept;
};

/* Where the function that is run returns to. */
#define RETURN_ADDRESS 0xfffffff0u
#define INTERRUPT_RETURN_ADDRESS 0xffffffe0u

/* --- keep.c: a code cache that outlives its job --- */

/* Whether a cache of so many bytes was filled for such a job, whatever the guest's code is by now. */
bool kept_is_of(const struct kept *kept, const struct offload_job *job, uint32_t cache_bytes);
/* The cache is for another job: its entries leave the target tables. The edge's places are still the old ones. */
void kept_forget(struct executor *x);
/* Empties a cache that is kept, unless the guest's code is what it was made of. */
void kept_judge(struct executor *x);
/* The job that was begun has ended: the next one may have the cache. False: not from such an end. */
bool kept_leave(struct executor *x);
/* Notes what the region was made of that was translated last. */
void kept_note_region(struct executor *x);

/* Judges the job and prepares everything; false: stop says why. */
bool executor_init(struct executor *x);
/* The host address at which the job begins. */
uint32_t executor_begin(struct executor *x);
/* Goes on with a guest processor in any state. */
uint32_t executor_resume(struct executor *x, const struct offload_cpu *cpu);
/* A supervisor call; host is the address behind it. */
uint32_t executor_call(struct executor *x, uint32_t host, uint32_t number);
/* An access or a fetch was not allowed; host is the instruction's address. */
uint32_t executor_fault(struct executor *x, uint32_t host, uint32_t accessed);
/* An indirect branch found no entry in the target table: the scratch register knows the entry. */
uint32_t executor_missing_target(struct executor *x);
/* Whether a host address is the beginning of a guest instruction. */
bool executor_at_boundary(struct executor *x, uint32_t host);
/* At a boundary: runs the guest's interrupt handler for a number. */
uint32_t executor_interrupt(struct executor *x, uint32_t host, uint32_t number);
/* At a boundary: stops. */
void executor_stop_at(struct executor *x, uint32_t host, enum offload_stop stop);
/* Puts the instruction at cpu.r[PC] into stop_at; false: there is none. */
bool executor_name_stop(struct executor *x);

/* The bus: guest addresses through linear map, page tables and devices. */
enum offload_stop memory_load(void *owner, uint32_t address, unsigned int size, uint32_t *value);
enum offload_stop memory_store(void *owner, uint32_t address, unsigned int size, uint32_t value);
enum offload_stop memory_unaligned(void *owner, uint32_t address);
/* Puts the page of a guest address into the TLB; false: it has no memory of its own. */
bool memory_walk(struct executor *x, uint32_t address);
void memory_forget(struct executor *x);

/*
 * Serves a function of the kernel; cpu->r[15] is where it goes on. False in *done: an interrupt comes first,
 * and the same call is made again behind it.
 */
enum offload_stop native_call(struct executor *x, uint32_t kind, bool *done);
/* Whether an interrupt reaches the guest now. */
static inline bool executor_takes_interrupts(const struct executor *x)
{
	return x->job->irq_handler && !x->in_interrupt && !(x->cpu.control & 0x80);
}
const char *offload_stop_text(enum offload_stop stop);

#endif
