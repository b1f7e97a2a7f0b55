/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * The sleep image on CXL memory: its format, its validation and its copy plan.
 *
 * This header is the only definition of the format. Firmware (coreboot, ramstage
 * and SMM), the Linux module and the Rust crate dormouse-image all compile it.
 * It is freestanding: no allocation, no libc, no global state.
 *
 *   CXL window                                   written by
 *   base + 0                header copy A        kernel, firmware (in turn)
 *        + 4 KiB            header copy B
 *        + 8 KiB            mailbox              kernel asks, firmware answers
 *        + 12 KiB           DRAM bitmap          kernel   1 = save this page
 *        + …                CXL bitmap           kernel   1 = occupied, keep off
 *        + …                digests of user pages  kernel  one for 64 pages
 *        + data_offset      saved pages          firmware
 *        + reserved_bytes   memory for Linux     user pages; saved pages go into
 *        …                                       the free ones between them
 *        + cxl_bytes        end of the window
 *
 * Where firmware is not ours, the kernel's own snapshot takes the place of single saved
 * pages (DORMOUSE_KIND_SNAPSHOT), and two devices that of the one window:
 *
 *   head                                         written by
 *   base + 0                header copies        user space
 *        + 12 KiB           node bitmap          user space   1 = occupied
 *        + …                digests of user pages  user space
 *        + data_offset      snapshot             user space   cipher text where sealed
 *        + …                tags of its chunks   user space   where sealed
 *        + cxl_bytes        end of the head
 *   node                    user pages           Linux
 *
 * All integers are little-endian (x86-64 only), all offsets count from the base
 * of the CXL window (or head), all digests are XXH64 with seed 0.
 */
#ifndef DORMOUSE_IMAGE_H
#define DORMOUSE_IMAGE_H

#ifdef __KERNEL__
#include <linux/types.h>
typedef u8 dm_u8;
typedef u32 dm_u32;
typedef u64 dm_u64;
#else
#include <stdint.h>
#include <stddef.h>
typedef uint8_t dm_u8;
typedef uint32_t dm_u32;
typedef uint64_t dm_u64;
#endif

#define DORMOUSE_MAGIC			0x4553554f4d524f44ULL	/* "DORMOUSE" */
#define DORMOUSE_MAILBOX_MAGIC		0x3158424c49414d44ULL	/* "DMAILBX1" */
#define DORMOUSE_VERSION		3
#define DORMOUSE_PAGE_SHIFT		12
#define DORMOUSE_PAGE_BYTES		4096ULL
#define DORMOUSE_HEADER_BYTES		4096ULL
#define DORMOUSE_HEADER_COPIES		2
#define DORMOUSE_MAILBOX_OFFSET		(2 * DORMOUSE_HEADER_BYTES)
#define DORMOUSE_BITMAPS_OFFSET		(3 * DORMOUSE_HEADER_BYTES)
/* A group: the pages of one word of a bitmap. Each has one digest of its user pages. */
#define DORMOUSE_GROUP_PAGES		64ULL
#define DORMOUSE_GROUP_BYTES		(DORMOUSE_GROUP_PAGES * DORMOUSE_PAGE_BYTES)
/* Number of pages that a sample compares. */
#define DORMOUSE_SAMPLE_PAGES		256
/* Linux puts memory online in blocks of this size; the reserved part ends on one. */
#define DORMOUSE_BLOCK_BYTES		(128ULL << 20)
/* A restore that never ends must not repeat for ever. */
#define DORMOUSE_MAX_RESTORE_ATTEMPTS	8
/*
 * Features, bits of `flags`; an image with another one is refused. Encrypted: the kernel's
 * snapshot is cipher text, and `encryption` authenticates the rest. Only
 * DORMOUSE_KIND_SNAPSHOT may have it: firmware has no key.
 */
#define DORMOUSE_FLAG_ENCRYPTED		1U
/* `algorithm`: AES-256-GCM over chunks of this size, each with a tag in the table of tags. */
#define DORMOUSE_ALGORITHM_AES_256_GCM	1U
#define DORMOUSE_SEAL_CHUNK_BYTES	(256ULL << 10)
#define DORMOUSE_SEAL_TAG_BYTES		16ULL
/* More usable RAM ranges than any firmware map that we know. */
#define DORMOUSE_MAX_RANGES		64

/* The way to sleep that made the image, and so the part that restores it. Append only. */
enum dormouse_kind {
	DORMOUSE_KIND_FIRMWARE = 0,	/* firmware saves and restores single pages */
	DORMOUSE_KIND_SNAPSHOT = 1,	/* the kernel's snapshot, given back by an initramfs */
	DORMOUSE_KIND_COUNT
};

/* empty -> prepared -> saving -> suspended -> restoring -> consumed */
enum dormouse_state {
	DORMOUSE_STATE_EMPTY = 0,	/* firmware made this header; no image */
	DORMOUSE_STATE_PREPARED = 1,	/* kernel wrote bitmaps and request */
	DORMOUSE_STATE_SAVING = 2,	/* firmware is copying DRAM pages */
	DORMOUSE_STATE_SUSPENDED = 3,	/* committed: the next power-on restores */
	DORMOUSE_STATE_RESTORING = 4,	/* firmware is copying back; repeatable */
	DORMOUSE_STATE_CONSUMED = 5,	/* the OS runs again; never restored twice */
	DORMOUSE_STATE_COUNT
};

/* How the last attempt to sleep and wake ended. */
enum dormouse_outcome {
	DORMOUSE_OUTCOME_NONE = 0,	/* never slept */
	DORMOUSE_OUTCOME_RESUMED = 1,
	DORMOUSE_OUTCOME_COLD_BOOT = 2,	/* an image was there and was not used */
	DORMOUSE_OUTCOME_REFUSED = 3,	/* firmware or kernel refused to sleep */
	DORMOUSE_OUTCOME_COUNT
};

/* Every way in which a sleep or a wake is refused. Append only: numbers are stored. */
enum dormouse_reason {
	DORMOUSE_OK = 0,
	DORMOUSE_E_NO_IMAGE = 1,	/* nothing was ever written here */
	DORMOUSE_E_MAGIC = 2,
	DORMOUSE_E_VERSION = 3,
	DORMOUSE_E_HEADER_SIZE = 4,
	DORMOUSE_E_HEADER_DIGEST = 5,	/* torn or corrupted header, both copies */
	DORMOUSE_E_FLAGS = 6,		/* a feature this version does not know */
	DORMOUSE_E_STATE = 7,		/* not the state this step needs */
	DORMOUSE_E_INCOMPLETE = 8,	/* power was lost before the commit */
	DORMOUSE_E_CONSUMED = 9,	/* already resumed once */
	DORMOUSE_E_IMAGE_EXISTS = 10,	/* a suspended image is waiting */
	DORMOUSE_E_MEMORY_MAP = 11,	/* firmware's memory map differs */
	DORMOUSE_E_DRAM_SIZE = 12,
	DORMOUSE_E_CXL_SIZE = 13,	/* base, size or reserved part differ */
	DORMOUSE_E_DEVICE = 14,		/* another CXL device (serial) */
	DORMOUSE_E_DIRTY_SHUTDOWN = 15,	/* device lost writes since the save */
	DORMOUSE_E_LAYOUT = 16,		/* an offset or size outside its place, or overlapping */
	DORMOUSE_E_BITMAP_DIGEST = 17,
	DORMOUSE_E_OUTSIDE_RAM = 18,	/* a page outside the RAM that firmware gave to the OS */
	DORMOUSE_E_NO_SPACE = 19,	/* saved pages do not fit into free CXL memory */
	DORMOUSE_E_SAVED_DIGEST = 20,	/* a saved page changed while asleep */
	DORMOUSE_E_WAKE_VECTOR = 21,
	DORMOUSE_E_ATTEMPTS = 22,	/* restore was tried too often */
	DORMOUSE_E_COMMAND = 23,	/* mailbox: unknown command or bad magic */
	DORMOUSE_E_NOT_READY = 24,	/* firmware has no memory map or no CXL window */
	DORMOUSE_E_NO_ANSWER = 25,	/* kernel: firmware did not answer the SMI */
	DORMOUSE_E_DISABLED = 26,	/* kernel: switched off in sysfs */
	DORMOUSE_E_SAVED_COUNT = 27,	/* page counts disagree */
	DORMOUSE_E_VOLATILE = 28,	/* no source vouches for the device */
	DORMOUSE_E_USER_DIGEST = 29,	/* a user page changed while asleep */
	DORMOUSE_E_KIND = 30,		/* an image of the other way to sleep */
	DORMOUSE_E_KERNEL = 31,		/* another kernel than the one that sleeps */
	DORMOUSE_E_NODE_IN_USE = 32,	/* Linux uses the memory of the user pages */
	DORMOUSE_E_RESTORE = 33,	/* the kernel did not take its snapshot (detail: errno) */
	DORMOUSE_E_NOT_SEALED = 34,	/* the machine takes sealed images only */
	DORMOUSE_E_KEY = 35,		/* the key of a sealed image is not to be had */
	DORMOUSE_E_WRONG_KEY = 36,	/* the key is another one */
	DORMOUSE_E_SEAL = 37,		/* changed since it was sealed (detail: chunk) */
	DORMOUSE_E_OLDER = 38,		/* not the last one of this machine (detail: its counter) */
	DORMOUSE_REASON_COUNT
};

/*
 * The source that vouches for the device keeping its contents when power is lost: that it has
 * Global Persistent Flush, armed, and counts the times that it failed. Append only.
 */
enum dormouse_persistence {
	DORMOUSE_PERSISTENCE_UNKNOWN = 0,	/* none: no image is made */
	DORMOUSE_PERSISTENCE_DEVICE = 1,	/* each CXL device, as Linux sees it */
	DORMOUSE_PERSISTENCE_FIRMWARE = 2,	/* the board's firmware */
	DORMOUSE_PERSISTENCE_ACCEPTED = 3,	/* none, and a person accepted the risk */
	DORMOUSE_PERSISTENCE_COUNT
};

/* Which user pages have a digest. Append only. */
enum dormouse_user_check {
	DORMOUSE_USER_CHECK_NONE = 0,
	DORMOUSE_USER_CHECK_SAMPLE = 1,	/* the first page of some groups */
	DORMOUSE_USER_CHECK_ALL = 2,	/* every page of every group that is online */
	DORMOUSE_USER_CHECK_COUNT
};

/* Phases whose times the header carries; ns since that power cycle's reset. */
enum dormouse_phase {
	DORMOUSE_PHASE_PREPARE = 0,	/* kernel: mark pages, write the request */
	DORMOUSE_PHASE_SAVE_CHECK = 1,	/* firmware: validate the request */
	DORMOUSE_PHASE_SAVE_COPY = 2,
	DORMOUSE_PHASE_FIRMWARE_INIT = 3, /* firmware: reset until our entry in ramstage */
	DORMOUSE_PHASE_RESTORE_CHECK = 4,
	DORMOUSE_PHASE_RESTORE_COPY = 5,
	DORMOUSE_PHASE_USER_DIGEST = 6,	/* kernel: digests of user pages */
	DORMOUSE_PHASE_USER_CHECK = 7,	/* firmware: compares them */
	DORMOUSE_PHASE_COUNT
};

struct dormouse_interval {
	dm_u64 begin_ns;
	dm_u64 end_ns;
};

/*
 * Authenticated encryption of an image with DORMOUSE_FLAG_ENCRYPTED; all zero in others. The crate
 * machine/seal makes and checks it; here only its place and what must be zero is judged.
 */
struct dormouse_encryption {
	dm_u32 algorithm;
	dm_u32 key_source;		/* holder of the key */
	dm_u8 key_id[32];		/* names it, and is no part of it */
	dm_u8 nonce[32];		/* random, of this image alone */
	dm_u8 tag[64];			/* over header, bitmap, digests, table of tags; 32 bytes */
	dm_u64 counter;			/* monotonic, against an older image of the same device */
	dm_u64 tag_table_offset;	/* right behind the snapshot: a tag for each chunk */
	dm_u64 tag_table_bytes;
};

/* Of DORMOUSE_KIND_SNAPSHOT only; all zero in other images. */
struct dormouse_snapshot {
	dm_u64 kernel_digest;		/* of the kernel's release, version and build */
	dm_u64 firmware_map_digest;	/* of firmware's whole memory map, RAM or not */
	dm_u64 node_base;		/* the device of the user pages */
	dm_u64 node_bytes;
	dm_u64 present_pages;		/* memory that the snapshot counts */
	dm_u64 node_present_pages;	/* of it on the node, which is not there when it wakes */
	dm_u64 room[8];			/* 0 */
};

struct dormouse_header {
	dm_u64 magic;
	dm_u32 version;
	dm_u32 header_bytes;		/* DORMOUSE_HEADER_BYTES */
	dm_u64 generation;		/* the valid copy with the larger one counts */
	dm_u32 state;			/* enum dormouse_state */
	dm_u32 flags;			/* features: DORMOUSE_FLAG_ENCRYPTED or 0 */

	/* Geometry: written by firmware, compared with its own before every use. */
	dm_u64 cxl_base;		/* physical address */
	dm_u64 cxl_bytes;
	dm_u64 reserved_bytes;		/* multiple of DORMOUSE_BLOCK_BYTES */
	dm_u64 dram_bytes;		/* RAM that the firmware's map gives to the OS */
	dm_u64 dram_pages;		/* highest usable page frame number + 1 */
	dm_u64 memory_map_digest;
	dm_u64 device_serial;
	dm_u64 dirty_shutdown_count;

	/* Request: written by the kernel. */
	dm_u64 dram_bitmap_offset;	/* bit i: page frame i */
	dm_u64 dram_bitmap_bytes;	/* multiple of 8, covers dram_pages */
	dm_u64 dram_bitmap_digest;
	dm_u64 cxl_bitmap_offset;	/* bit i: page i of the CXL window */
	dm_u64 cxl_bitmap_bytes;
	dm_u64 cxl_bitmap_digest;
	dm_u64 data_offset;		/* pages below it never hold saved data */
	dm_u64 request_pages;		/* set bits of the DRAM bitmap */

	/* Result: written by firmware. */
	dm_u64 saved_pages;
	dm_u64 saved_digest;		/* over all saved pages in plan order */
	dm_u64 restored_pages;
	dm_u64 wake_vector;		/* physical address below 1 MiB */
	dm_u32 restore_attempts;
	dm_u32 kind;			/* enum dormouse_kind */

	/* History: survives from image to image. */
	dm_u64 sleep_count;		/* commits so far */
	dm_u64 resume_count;
	dm_u32 last_outcome;		/* enum dormouse_outcome */
	dm_u32 last_reason;		/* enum dormouse_reason */
	dm_u64 last_detail;		/* page frame, offset or bytes, by reason */

	struct dormouse_interval phase[DORMOUSE_PHASE_COUNT];

	/* Request: the kernel's knowledge of the device, and digests of user pages. */
	dm_u32 persistence;		/* enum dormouse_persistence */
	dm_u32 user_check;		/* enum dormouse_user_check */
	dm_u64 user_table_offset;	/* word i: digest of group i, 0 if it has none */
	dm_u64 user_table_bytes;	/* multiple of 8, covers the window */
	dm_u64 user_table_digest;
	dm_u64 user_groups;		/* words that are not 0 */
	dm_u64 user_pages;		/* pages that they cover */

	struct dormouse_encryption encryption;
	struct dormouse_snapshot snapshot;

	dm_u8 reserved[3408];		/* zero; room for device lists */
	dm_u64 header_digest;		/* XXH64 of every byte before it */
};

#ifdef __cplusplus
#define DM_STATIC_ASSERT(c, m) static_assert(c, m)
#else
#define DM_STATIC_ASSERT(c, m) _Static_assert(c, m)
#endif
DM_STATIC_ASSERT(sizeof(struct dormouse_header) == DORMOUSE_HEADER_BYTES,
		 "the header fills its page");

/* Kernel asks, firmware answers; lies at DORMOUSE_MAILBOX_OFFSET. Untrusted both ways. */
enum dormouse_command {
	DORMOUSE_CMD_SLEEP = 1,		/* save, commit, power off; returns only on refusal */
	DORMOUSE_CMD_CHECK = 2,		/* the same checks, nothing changed */
};

#define DORMOUSE_STATUS_PENDING		0xffffffffU

struct dormouse_mailbox {
	dm_u64 magic;
	dm_u32 command;			/* enum dormouse_command */
	dm_u32 status;			/* kernel: PENDING; firmware: enum dormouse_reason */
	dm_u64 detail;			/* page frame or offset that was refused */
	dm_u64 needed_bytes;		/* with DORMOUSE_E_NO_SPACE, and after CHECK */
	dm_u64 available_bytes;
};

struct dormouse_range {
	dm_u64 base;			/* bytes, page-aligned */
	dm_u64 bytes;
};

/*
 * What the checker itself knows and trusts: firmware keeps it in SMRAM, ramstage
 * derives it anew at each boot. Never read from CXL memory.
 */
struct dormouse_geometry {
	dm_u64 cxl_base;
	dm_u64 cxl_bytes;
	dm_u64 reserved_bytes;
	dm_u64 device_serial;
	dm_u64 dirty_shutdown_count;
	dm_u32 range_count;		/* ascending, disjoint, DRAM given to the OS */
	dm_u32 reserved0;
	struct dormouse_range range[DORMOUSE_MAX_RANGES];
};

/* --- xxh64.c: streaming XXH64 (the algorithm's public specification) --- */
struct dormouse_xxh64 {
	dm_u64 lane[4];
	dm_u64 total_bytes;
	dm_u8 tail[32];
	dm_u32 tail_bytes;
};
void dormouse_xxh64_init(struct dormouse_xxh64 *hash);
void dormouse_xxh64_update(struct dormouse_xxh64 *hash, const void *data, dm_u64 bytes);
dm_u64 dormouse_xxh64_final(const struct dormouse_xxh64 *hash);
dm_u64 dormouse_xxh64(const void *data, dm_u64 bytes);

/* --- strings.c --- */
const char *dormouse_state_name(dm_u32 state);		/* "suspended" */
const char *dormouse_outcome_name(dm_u32 outcome);	/* "cold-boot" */
const char *dormouse_reason_name(dm_u32 reason);	/* "saved-digest": stable, for scripts */
const char *dormouse_reason_text(dm_u32 reason);	/* one sentence for people */
const char *dormouse_phase_name(dm_u32 phase);		/* "save-copy" */
const char *dormouse_persistence_name(dm_u32 persistence); /* "firmware" */
const char *dormouse_user_check_name(dm_u32 user_check);	/* "sample" */
const char *dormouse_kind_name(dm_u32 kind);		/* "snapshot" */

/* --- header.c --- */
/* Magic, version, size, flags, state number and digest of one copy. */
enum dormouse_reason dormouse_header_check(const struct dormouse_header *header);
/*
 * Index (0 or 1) of the valid copy with the larger generation, or -1 with the
 * reason of the better-looking copy in *why (E_NO_IMAGE when both are all zero).
 */
int dormouse_header_select(const struct dormouse_header copies[DORMOUSE_HEADER_COPIES],
			   enum dormouse_reason *why);
/*
 * Generation + 1, digest; writes over the copy that is not the newest valid one, flushes.
 * EMPTY and CONSUMED then go into the other copy too (generation + 2), so that a bad bit
 * in the newest copy never brings back an image that ran before. `header` is the
 * caller's own, never one of the copies.
 */
void dormouse_header_commit(struct dormouse_header copies[DORMOUSE_HEADER_COPIES],
			    struct dormouse_header *header);
/*
 * Makes it a request to save these pages, as PREPARED, with nothing of an earlier image in it.
 * Where the bitmaps are is in the header; the table of user pages is the caller's.
 */
void dormouse_header_request(struct dormouse_header *header, const void *dram_bitmap,
			     const void *cxl_bitmap, dm_u64 pages,
			     enum dormouse_persistence persistence);
/* A fresh EMPTY header for this geometry; history is kept from `previous` if not NULL. */
void dormouse_header_init(struct dormouse_header *header, const struct dormouse_geometry *geometry,
			  const struct dormouse_header *previous);
/* Write back [data, data + bytes) to memory: clflush of each line, then sfence. */
void dormouse_flush(const volatile void *data, dm_u64 bytes);

/* --- geometry.c --- */
dm_u64 dormouse_geometry_digest(const struct dormouse_geometry *geometry);
dm_u64 dormouse_geometry_dram_bytes(const struct dormouse_geometry *geometry);
dm_u64 dormouse_geometry_dram_pages(const struct dormouse_geometry *geometry);
/* 1 if [base, base + bytes) lies wholly inside one run of the ranges. */
int dormouse_geometry_contains(const struct dormouse_geometry *geometry, dm_u64 base, dm_u64 bytes);
/* Sorted, disjoint, aligned, not wrapping, not inside the CXL window, sizes plausible. */
enum dormouse_reason dormouse_geometry_check(const struct dormouse_geometry *geometry);
/* Where the bitmaps go for this geometry: fills the offsets and sizes and data_offset. */
enum dormouse_reason dormouse_layout(const struct dormouse_geometry *geometry,
				     struct dormouse_header *header);

/* --- check.c --- */
/*
 * The whole image against what the checker knows: state, persistence, geometry, layout,
 * digests of bitmaps and of the table of user pages, each set bit inside
 * `geometry->range`, page counts, space, and from SUSPENDED on the wake vector. Reads
 * neither saved pages (copying does that) nor user pages (dormouse_user_compare does).
 *   window    the CXL window as the caller maps it; at least reserved_bytes readable
 *   allowed   bit mask of (1 << enum dormouse_state)
 *   detail    NULL, or what was refused
 */
enum dormouse_reason dormouse_image_check(const struct dormouse_header *header,
					  const struct dormouse_geometry *geometry,
					  const void *window, dm_u32 allowed, dm_u64 *detail);
/*
 * What saving needs and what the free pages of the window offer, for the mailbox: OK,
 * E_NO_SPACE, or with zeros E_LAYOUT (or why the geometry is unusable). Safe to call
 * with any header, whatever dormouse_image_check said.
 */
enum dormouse_reason dormouse_image_space(const struct dormouse_header *header,
					  const struct dormouse_geometry *geometry,
					  const void *window, dm_u64 *needed_bytes,
					  dm_u64 *available_bytes);
/* Below 1 MiB, inside RAM, and its page is marked for saving. */
enum dormouse_reason dormouse_wake_vector_check(dm_u64 wake_vector,
						const struct dormouse_geometry *geometry,
						const dm_u64 *dram_bitmap);

/* --- snapshot.c: images of DORMOUSE_KIND_SNAPSHOT --- */
/*
 * What the checker knows by itself. The window of `geometry` is the head; of `snapshot`,
 * present_pages is the memory of the machine without the node, and node_present_pages is
 * not used.
 */
struct dormouse_snapshot_facts {
	struct dormouse_geometry geometry;
	struct dormouse_snapshot snapshot;
};
/* A fresh EMPTY header; history is kept from `previous` if not NULL. */
enum dormouse_reason dormouse_snapshot_init(struct dormouse_header *header,
					    const struct dormouse_snapshot_facts *facts,
					    const struct dormouse_header *previous);
/* Bytes of the table of tags for a sealed snapshot of so many bytes. */
dm_u64 dormouse_tag_table_bytes(dm_u64 bytes);
/*
 * As dormouse_image_check, with the head as `window`, at least data_offset bytes of it
 * readable. Reads neither the snapshot nor user pages.
 */
enum dormouse_reason dormouse_snapshot_check(const struct dormouse_header *header,
					     const struct dormouse_snapshot_facts *facts,
					     const void *window, dm_u32 allowed, dm_u64 *detail);
/*
 * As dormouse_user_compare, for the groups of the node, which `node` maps from its start.
 * Only after dormouse_snapshot_check.
 */
dm_u64 dormouse_snapshot_compare(const struct dormouse_header *header, const void *window,
				 const void *node, dm_u64 first, dm_u64 end);

/* --- plan.c --- */
/*
 * Pairs each run of set bits of the DRAM bitmap with free CXL pages, both
 * ascending. Streaming: no memory, O(words). Save and restore walk the same plan,
 * save from DRAM to CXL, restore back, so one is the inverse of the other.
 */
struct dormouse_copy {
	dm_u64 dram_page;		/* page frame number */
	dm_u64 cxl_page;		/* page of the CXL window */
	dm_u64 pages;			/* > 0 */
};
struct dormouse_plan {
	const dm_u64 *dram_bitmap;
	const dm_u64 *cxl_bitmap;
	dm_u64 dram_pages;		/* bits to look at */
	dm_u64 cxl_pages;
	dm_u64 dram_next, dram_end;	/* rest of the current run of set bits */
	dm_u64 cxl_next, cxl_end;	/* rest of the current run of clear bits */
};
void dormouse_plan_init(struct dormouse_plan *plan, const dm_u64 *dram_bitmap, dm_u64 dram_pages,
			const dm_u64 *cxl_bitmap, dm_u64 cxl_pages, dm_u64 first_cxl_page);
/* 1: *copy is the next piece. 0: done. -1: DRAM pages remain and CXL is full. */
int dormouse_plan_next(struct dormouse_plan *plan, struct dormouse_copy *copy);
dm_u64 dormouse_bitmap_count(const dm_u64 *bitmap, dm_u64 first, dm_u64 bits);
/* First set (or clear) bit in [from, bits), or bits. A word at a time. */
dm_u64 dormouse_bitmap_next_set(const dm_u64 *bitmap, dm_u64 from, dm_u64 bits);
dm_u64 dormouse_bitmap_next_clear(const dm_u64 *bitmap, dm_u64 from, dm_u64 bits);
void dormouse_bitmap_set_range(dm_u64 *bitmap, dm_u64 first, dm_u64 count);
void dormouse_bitmap_clear_range(dm_u64 *bitmap, dm_u64 first, dm_u64 count);

/* --- user_pages.c --- */
/* The pages of a group that its digest covers: `word` is the CXL bitmap's. */
dm_u64 dormouse_user_pages(dm_u32 user_check, dm_u64 word);
/* Of the pages of a group whose bit is set in `pages`, ascending; never 0. */
dm_u64 dormouse_group_digest(const void *group, dm_u64 pages);
/*
 * Compares groups [first, end) with the table, where it has a digest: the first that
 * differs, or `end`. Only after dormouse_image_check; the whole window must be readable.
 */
dm_u64 dormouse_user_compare(const struct dormouse_header *header, const void *window,
			     dm_u64 first, dm_u64 end);
/* Groups of the window, the last one perhaps smaller. */
dm_u64 dormouse_groups(dm_u64 cxl_bytes);

/* --- copy.c: copy and digest in one pass; never uses SSE/AVX registers (SMM) --- */
enum dormouse_copy_method {
	DORMOUSE_COPY_PLAIN = 0,	/* cached 64-bit stores, then flushed */
	DORMOUSE_COPY_MOVNTI = 1,	/* non-temporal 64-bit stores */
	DORMOUSE_COPY_MOVDIR64B = 2,	/* 64-byte direct stores */
	DORMOUSE_COPY_METHOD_COUNT
};
/* From CPUID; `to_persistent` chooses between what is best for CXL and for DRAM. */
enum dormouse_copy_method dormouse_copy_best(int to_persistent);
const char *dormouse_copy_method_name(enum dormouse_copy_method method);
/* bytes: multiple of 64; dst 64-byte aligned; regions must not overlap. Adds the data to *hash. */
void dormouse_copy_digest(enum dormouse_copy_method method, void *dst, const void *src,
			  dm_u64 bytes, struct dormouse_xxh64 *hash);

#endif /* DORMOUSE_IMAGE_H */
