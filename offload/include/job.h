/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the executor is given to run, as it is in the small core's memory. rust/machine/job.rs writes it, or on a chip
 * with both cores the module of linux/; so it compiles in a kernel, too.
 */
#ifndef OFFLOAD_JOB_H
#define OFFLOAD_JOB_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

/* Switches, one for each optimisation; all clear is the baseline. */
enum offload_option {
	OPTION_REGISTERS = 1 << 0,	/* guest registers in host registers */
	OPTION_FLAGS = 1 << 1,		/* guest flags in host flags */
	OPTION_STACK = 1 << 2,		/* guest stack through the host's stack pointer */
	OPTION_CHAIN = 1 << 3,		/* blocks of a page branch to each other */
	OPTION_INTERRUPTS = 1 << 4,	/* no block polls for interrupts */
	OPTION_LINEAR = 1 << 5,		/* linear addresses: a check and an addition, no walk */
	OPTION_PROTECTION = 1 << 6,	/* the check is the memory protection unit's */
	OPTION_TABLE = 1 << 7,		/* indirect branches through the target table */
	OPTION_REGIONS = 1 << 8,	/* a region has many blocks, not one */
	OPTION_PAGES = 1 << 9,		/* chains and regions go across pages */
	OPTION_CARRY = 1 << 10,		/* what the scratch register holds goes with branches */
	OPTION_LOOPS = 1 << 11,		/* pointers of loops are host addresses */
	OPTION_INLINE = 1 << 12,	/* small functions that call none are part of their caller's region */
	OPTIONS_ALL = (1 << 13) - 1,
};

/* Where a guest's memory is, and how it is to be translated. */
struct offload_layout {
	uint32_t guest_base;	/* first linear-mapped guest address */
	uint32_t size;		/* bytes of guest memory */
	uint32_t host_base;
	uint32_t text_start;	/* guest code: never written to */
	uint32_t text_end;
	/* The target table that translated code reads: of which instruction set, and where. */
	uint32_t thumb;
	uint32_t table_base;	/* host address of the entry for guest_base */
	uint32_t state;		/* host address of struct offload_state */
	uint32_t options;
	uint32_t scratch;	/* number of the scratch register */
};

enum { NATIVES_MAX = 160 };

/* What a function of the kernel is replaced with. */
struct offload_native {
	uint32_t address;	/* guest address */
	uint32_t kind;		/* enum native_kind, and one of the next: */
};
/* It takes a lock, or gives one back. */
enum { NATIVE_TAKES = 1 << 8, NATIVE_GIVES = 1 << 9, NATIVE_KIND_BITS = 0xff };

/* A device that guest code reaches through its page tables. */
struct offload_device {
	uint32_t physical;
	uint32_t size;
	uint32_t host;		/* its host address */
};

/* What is to be run. All of it is untrusted; executor_init() judges. */
struct offload_job {
	struct offload_layout layout;
	uint32_t physical_base;	/* physical address of layout.guest_base */
	uint32_t page_table;	/* physical address of the first-level table; 1: none */
	uint32_t entry;
	uint32_t registers[13];	/* r0 to r12 at the beginning */
	uint32_t link;		/* LR; 0: the executor's own, which ends the run. At any other the executor hands back */
	uint32_t control;	/* CPSR's A, I, F and mode at the beginning */
	uint32_t thread[3];	/* TPIDRURW, TPIDRURO, TPIDRPRW */
	uint32_t stack_top;	/* guest address */
	uint32_t stack_bottom;	/* an access below it, down to stack_guard, is an overflow */
	uint32_t stack_guard;
	uint32_t arena_start;	/* what memory allocation is served from */
	uint32_t arena_end;
	uint32_t irq_handler;	/* guest function that is called for an interrupt; 0: none */
	uint32_t time[2];	/* nanoseconds at the beginning: low, high */
	uint32_t natives;
	uint32_t devices;
	struct offload_native native[NATIVES_MAX];
	struct offload_device device[8];
};

/* Every replaced function is one of these. */
enum native_kind {
#define NATIVE_KIND(name, what) NATIVE_##name,
#include "isa/natives.def"
#undef NATIVE_KIND
	NATIVE_KINDS,
};

#define TARGET_MAGIC 0x31424a44u	/* "DJB1" */

struct target_job {
	uint32_t magic;
	uint32_t bytes;			/* of this structure */
	uint32_t runs;			/* how often, one after the other, the cache kept */
	uint32_t cache_bytes;
	uint32_t tick;			/* timer ticks between interrupts */
	uint32_t budget;		/* interrupts until it is stopped */
	uint32_t dump_start;		/* guest memory written to a file at the end */
	uint32_t dump_bytes;
	uint32_t keep;			/* 1: begin with the code cache of the last job, and leave it to the next */
	uint32_t presets;		/* how many of the next: */
	struct {
		uint32_t host, value;
	} preset[4];			/* words written to the small core's devices before the first run */
	struct offload_job job;
};

#endif
