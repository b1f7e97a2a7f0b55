/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of this driver, and a board that uses it, share. */
#ifndef DRIVERS_DORMOUSE_H
#define DRIVERS_DORMOUSE_H

#include <dormouse_image.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- what a board provides --- */

/*
 * What a board states about losing power, bits of `persistence`. It states only what it
 * has seen to: the OS believes it where it cannot ask the device itself.
 */
#define DORMOUSE_DEVICE_GPF		1U /* device and platform have Global Persistent Flush */
#define DORMOUSE_DEVICE_ARMED		2U /* and the device counts it if that fails */
#define DORMOUSE_DEVICE_COUNTS		4U /* dirty_shutdown_count was read from the device */

/* One CXL window as the board knows it; all of it is WB-mapped memory. */
struct dormouse_device {
	uint64_t base;
	uint64_t bytes;
	uint64_t serial;
	uint64_t dirty_shutdown_count;
	uint64_t persistence;
} __packed;

/* Ramstage: false if the board has no persistent CXL memory. Called more than once. */
bool dormouse_board_device(struct dormouse_device *device);
/* Ramstage, optional: the TSC's rate, where the board knows it better than coreboot. */
uint32_t dormouse_board_tsc_khz(void);
/* SMM: power off (S5). Must not return. */
void __noreturn dormouse_board_power_off(void);

/* --- the SMI: smi.c --- */

/* The sleep SMI. Returns only if sleep was refused; the mailbox then has the reason. */
void dormouse_smi(void);

/* --- ramstage gives SMM the trusted geometry once: handover.c, smi.c --- */

#define DORMOUSE_HANDOVER_MAGIC 0x52564f444e414844ULL /* "DHANDOVR" */
#define DORMOUSE_FAULT_NAME_BYTES 32

struct dormouse_handover {
	uint64_t magic;
	uint64_t facs;			/* physical address of the FACS, 0: none */
	uint32_t tsc_khz;
	uint32_t status;		/* SMM's answer: enum dormouse_reason */
	char fault[DORMOUSE_FAULT_NAME_BYTES];
	struct dormouse_geometry geometry;
};

/* `geometry` NULL: there is nothing to trust; SMM then refuses every request. */
enum dormouse_reason dormouse_handover(const struct dormouse_geometry *geometry);

/* --- ramstage --- */

/* The part of the window below Linux's memory: headers, mailbox, bitmaps. */
uint64_t dormouse_reserved_bytes(const struct dormouse_device *device);
enum dormouse_reason dormouse_build_geometry(const struct dormouse_device *device,
					     struct dormouse_geometry *geometry);
/* Where the OS will put its wake vector, 0 if there is no FACS. */
uint64_t dormouse_find_facs(void);
/* Our own page tables over all that can be mapped; false if the CPU lacks 1 GiB pages. */
bool dormouse_map_memory(void);
/* First address that firmware cannot map (SMM and ramstage alike). */
uint64_t dormouse_map_end(void);

/* Copies the image back. DORMOUSE_OK: `header` is CONSUMED and committed. */
enum dormouse_reason dormouse_restore(struct dormouse_header *header,
				      struct dormouse_header *copies,
				      const struct dormouse_geometry *geometry,
				      uint64_t *detail);

/* Compares user pages with their digests, on all CPUs if there are many. */
enum dormouse_reason dormouse_check_user_pages(const struct dormouse_header *header,
					       const struct dormouse_geometry *geometry,
					       uint64_t *detail);

/* --- SMM --- */

/* Saves, commits, powers off. Returns only if a bitmap changed under its feet. */
enum dormouse_reason dormouse_save(struct dormouse_header *header,
				   struct dormouse_header *copies,
				   const struct dormouse_geometry *geometry,
				   uint64_t *detail);

/* --- both: copy_pages.c --- */

enum dormouse_direction { DORMOUSE_SAVE, DORMOUSE_RESTORE };

struct dormouse_copied {
	uint64_t pages;
	uint64_t digest;
	enum dormouse_copy_method method;
};

/*
 * Walks the plan of `header` and copies. Each piece is checked against `geometry`
 * again, whatever the bitmaps said when they were validated. Notes begin and end of
 * the phase in `header`, and as events.
 */
enum dormouse_reason dormouse_copy_pages(enum dormouse_direction direction,
					 struct dormouse_header *header,
					 const struct dormouse_geometry *geometry,
					 struct dormouse_copied *copied, uint64_t *detail);

/* --- both: event.c --- */

void dormouse_set_tsc_khz(uint32_t khz);
uint32_t dormouse_tsc_khz(void);
/* Nanoseconds since this power cycle's reset. */
uint64_t dormouse_now_ns(void);
/* One timeline line on the console; `key` NULL: no value. */
void dormouse_event(uint64_t t_ns, const char *phase, const char *name, const char *kind,
		    const char *key, uint64_t value);
/* One line, without its end, to whatever console this stage has. */
void dormouse_console_line(const char *line);

/* --- fault points: fault.c, laboratory builds only --- */

#if CONFIG(DORMOUSE_FAULT_POINTS)
void dormouse_fault_select(const char *name);
void dormouse_fault_point(const char *name);
/* Ramstage: the name that the board asks for, or an empty string. */
void dormouse_board_fault(char name[DORMOUSE_FAULT_NAME_BYTES]);
#else
static inline void dormouse_fault_select(const char *name) {}
static inline void dormouse_fault_point(const char *name) {}
static inline void dormouse_board_fault(char name[DORMOUSE_FAULT_NAME_BYTES]) {}
#endif

#endif
