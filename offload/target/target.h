/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the parts of the edge share: output through semihosting, time. */
#ifndef OFFLOAD_TARGET_TARGET_H
#define OFFLOAD_TARGET_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void print(const char *text);
void print_decimal(uint32_t value);
void print_hex(uint32_t value);
/* name, a space, the value in decimal */
void print_number(const char *name, uint32_t value);
/* A file in the emulator's folder. */
uint32_t open_file(const char *name, bool write);
/* All bytes, or false. */
bool transfer(uint32_t file, const void *at, uint32_t bytes, bool write);
/* Writes memory to a file in the emulator's folder. */
void dump(const char *name, uint32_t address, uint32_t bytes);
/* Ends the emulator. */
void leave(uint32_t failed);
/* There is no C library. */
void *memset(void *to, int value, size_t bytes);

/* --- device_local.c, device_forward.c or device_bus.c --- */

/* Reads or writes a device of the guest; false: nothing is there, and nothing was done. */
bool access_device(void *owner, uint32_t host, unsigned int size, bool write, uint32_t *value);
/* Whether a device of a job can be there. */
bool device_is_good(uint32_t host, uint32_t size);
/* device_forward.c: the board goes on until it has an interrupt for the guest; false: it does not. */
bool wait_for_board(void);

/* --- interrupt_timer.c or interrupt_board.c: where the guest's interrupts come from --- */

/* Waits for one, as struct executor's wait. */
bool interrupt_wait(void *owner, uint64_t until);
/* Whether there is one. */
bool interrupt_pends(void);
/* The guest takes it, at a boundary; as executor_interrupt(), or 1 if there is none. */
uint32_t interrupt_guest(uint32_t host);
/* Its part of a run's report. */
void interrupt_report(void);

/* --- time.c --- */

/* Of the timer's interrupt, which waits for the same priority as supervisor calls have. */
enum { TICK_PRIORITY = 0x40000000, TICK_NS = 40 };
struct executor;

extern struct executor executor;
extern bool retrying;	/* the timer is set to soon after an interrupt that could not be taken */

/* With TARGET_TIMER_COUNTER: the counter's frequency, before the first time is read. */
void set_clock(uint32_t khz);
void start_clock(void);
void set_timer(uint32_t ticks);
void stop_timer(void);
/* The timer's interrupt is taken as soon as translated code runs. */
void pend_timer(void);
uint64_t ticks_now(void);
uint64_t now_ns(void *owner);
bool wait_until(void *owner, uint64_t until);

#ifdef TARGET_HANDOVER
/* --- main.c: for handover.c --- */

struct target_job;
void clear_executor(struct executor *x);
bool start_job(struct executor *x, struct target_job *job);
uint64_t run_job(struct executor *x, const struct target_job *job);
/* --- trace.c --- */
enum { TRACE_BYTES = 2048 };
void clear_trace(void);
void write_line(const char *line, uint32_t length);
#endif

#endif
