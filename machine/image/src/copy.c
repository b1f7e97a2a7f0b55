// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Copies pages and computes their digest in one pass over the source, with general
 * purpose registers only: in SMM the vector registers hold the interrupted program's
 * data. Also chooses the method and writes cache lines back, both by CPUID.
 *
 * Four loads, four stores, then the arithmetic: grouped so, an emulator drops the
 * flags that the arithmetic sets between two memory accesses, and a real CPU fills
 * each write-combining line at once.
 */
#include "internal.h"
#include DM_PRIMITIVES

struct cpu_features {
	int clflushopt;
	int clwb;
	int movdir64b;
};

static struct cpu_features cpu_features(void)
{
	struct cpu_features features = { 0, 0, 0 };
	dm_u32 eax, ebx, ecx, edx, highest;

	cpuid(0, &ebx, &ecx, &edx, &highest);
	if (highest >= 7) {
		cpuid(7, &ebx, &ecx, &edx, &eax);
		features.clflushopt = ebx >> 23 & 1;
		features.clwb = ebx >> 24 & 1;
		features.movdir64b = ecx >> 28 & 1;
	}
	return features;
}

void dm_flush_lines(const volatile void *data, dm_u64 bytes)
{
	const struct cpu_features features = cpu_features();
	const volatile dm_u8 *line, *end = (const volatile dm_u8 *)data + bytes;

	if (!bytes)
		return;
	line = (const volatile dm_u8 *)((__UINTPTR_TYPE__)data & ~(DM_LINE_BYTES - 1));
	if (features.clwb) {
		for (; line < end; line += DM_LINE_BYTES)
			clwb(line);
	} else if (features.clflushopt) {
		for (; line < end; line += DM_LINE_BYTES)
			clflushopt(line);
	} else {
		for (; line < end; line += DM_LINE_BYTES)
			clflush(line);
	}
}

void dormouse_flush(const volatile void *data, dm_u64 bytes)
{
	dm_flush_lines(data, bytes);
	dm_sfence();
}

enum dormouse_copy_method dormouse_copy_best(int to_persistent)
{
	dm_u32 eax, ebx, ecx, edx;

	/*
	 * The same both ways as measured (examples/copy_bench.rs): pages that go back into
	 * DRAM are not read again before the OS runs, so caching them has no use.
	 */
	(void)to_persistent;
	if (cpu_features().movdir64b)
		return DORMOUSE_COPY_MOVDIR64B;
	cpuid(1, &ebx, &ecx, &edx, &eax);
	return edx >> 26 & 1 ? DORMOUSE_COPY_MOVNTI : DORMOUSE_COPY_PLAIN; /* SSE2 */
}

const char *dormouse_copy_method_name(enum dormouse_copy_method method)
{
	switch (method) {
	case DORMOUSE_COPY_PLAIN:
		return "plain";
	case DORMOUSE_COPY_MOVNTI:
		return "movnti";
	case DORMOUSE_COPY_MOVDIR64B:
		return "movdir64b";
	default:
		return "unknown";
	}
}

/* `method` is a constant at each call, so each call becomes a loop of its own. */
DM_INLINE void copy_lines(enum dormouse_copy_method method, dm_u8 *to, const dm_u8 *from,
			  dm_u64 lines, struct dormouse_xxh64 *hash)
{
	dm_u64 lane[4] = { hash->lane[0], hash->lane[1], hash->lane[2], hash->lane[3] };

	hash->total_bytes += lines * DM_LINE_BYTES;
	for (; lines; lines--) {
		if (method == DORMOUSE_COPY_MOVDIR64B) {
			movdir64b(to, from);
			COPY_LINE(NO_STORE, "", lane, to, from);
		} else if (method == DORMOUSE_COPY_MOVNTI) {
			COPY_LINE(STORE_WORD, "movnti", lane, to, from);
		} else {
			COPY_LINE(STORE_WORD, "mov", lane, to, from);
		}
		to += DM_LINE_BYTES;
		from += DM_LINE_BYTES;
	}
	hash->lane[0] = lane[0];
	hash->lane[1] = lane[1];
	hash->lane[2] = lane[2];
	hash->lane[3] = lane[3];
}

/* Lengths and alignments that the fast loops do not take; slow and always right. */
static void copy_slowly(dm_u8 *to, const dm_u8 *from, dm_u64 bytes, struct dormouse_xxh64 *hash)
{
	dm_copy_bytes(to, from, bytes);
	dormouse_xxh64_update(hash, to, bytes);
	dm_flush_lines(to, bytes);
}

void dormouse_copy_digest(enum dormouse_copy_method method, void *dst, const void *src,
			  dm_u64 bytes, struct dormouse_xxh64 *hash)
{
	dm_u64 lines = bytes / DM_LINE_BYTES;
	const dm_u8 *from = src;
	dm_u8 *to = dst;

	if (hash->tail_bytes || (__UINTPTR_TYPE__)dst & (DM_LINE_BYTES - 1))
		lines = 0;

	if (method == DORMOUSE_COPY_MOVDIR64B) {
		copy_lines(DORMOUSE_COPY_MOVDIR64B, to, from, lines, hash);
	} else if (method == DORMOUSE_COPY_MOVNTI) {
		copy_lines(DORMOUSE_COPY_MOVNTI, to, from, lines, hash);
	} else {
		copy_lines(DORMOUSE_COPY_PLAIN, to, from, lines, hash);
		dm_flush_lines(to, lines * DM_LINE_BYTES);
	}
	bytes -= lines * DM_LINE_BYTES;
	if (bytes)
		copy_slowly(to + lines * DM_LINE_BYTES, from + lines * DM_LINE_BYTES, bytes, hash);
	dm_sfence();
}
