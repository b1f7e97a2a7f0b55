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

#define STRIPE_BYTES 32

struct cpu_features {
	int movnti;
	int clflushopt;
	int clwb;
	int movdir64b;
};

DM_INLINE void cpuid(dm_u32 leaf, dm_u32 *ebx, dm_u32 *ecx, dm_u32 *edx, dm_u32 *eax)
{
	__asm__ volatile("cpuid"
			 : "=a"(*eax), "=b"(*ebx), "=c"(*ecx), "=d"(*edx)
			 : "0"(leaf), "2"(0));
}

static struct cpu_features cpu_features(void)
{
	struct cpu_features features = { 0, 0, 0, 0 };
	dm_u32 eax, ebx, ecx, edx, highest;

	cpuid(0, &ebx, &ecx, &edx, &highest);
	cpuid(1, &ebx, &ecx, &edx, &eax);
	features.movnti = edx >> 26 & 1;	/* SSE2 brought it */
	if (highest >= 7) {
		cpuid(7, &ebx, &ecx, &edx, &eax);
		features.clflushopt = ebx >> 23 & 1;
		features.clwb = ebx >> 24 & 1;
		features.movdir64b = ecx >> 28 & 1;
	}
	return features;
}

/* As prefix + older instruction: assemblers need not know the newer name. */
DM_INLINE void clflushopt(const volatile void *line)
{
	__asm__ volatile(".byte 0x66; clflush %0" : : "m"(*(const volatile char *)line) : "memory");
}

DM_INLINE void clwb(const volatile void *line)
{
	__asm__ volatile(".byte 0x66; xsaveopt %0"
			 : : "m"(*(const volatile char *)line) : "memory");
}

DM_INLINE void clflush(const volatile void *line)
{
	__asm__ volatile("clflush %0" : : "m"(*(const volatile char *)line) : "memory");
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
	const struct cpu_features features = cpu_features();

	(void)to_persistent;
	if (features.movdir64b)
		return DORMOUSE_COPY_MOVDIR64B;
	return features.movnti ? DORMOUSE_COPY_MOVNTI : DORMOUSE_COPY_PLAIN;
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

DM_INLINE void movnti(dm_u8 *to, dm_u64 word)
{
	__asm__ volatile("movnti %1, %0" : "=m"(*(dm_u64 *)to) : "r"(word));
}

/* movdir64b (%rdx), %rax in bytes, for assemblers that do not know it. */
DM_INLINE void movdir64b(dm_u8 *to, const dm_u8 *from)
{
	__asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x02"
			 : : "d"(from), "a"(to) : "memory");
}

DM_INLINE void store_word(enum dormouse_copy_method method, dm_u8 *to, dm_u64 word)
{
	if (method == DORMOUSE_COPY_MOVNTI)
		movnti(to, word);
	else if (method == DORMOUSE_COPY_PLAIN)
		dm_store64(to, word);
}

DM_INLINE void copy_stripe(enum dormouse_copy_method method, dm_u64 lane[4], dm_u8 *to,
			   const dm_u8 *from)
{
	const dm_u64 a = dm_load64(from), b = dm_load64(from + 8);
	const dm_u64 c = dm_load64(from + 16), d = dm_load64(from + 24);

	store_word(method, to, a);
	store_word(method, to + 8, b);
	store_word(method, to + 16, c);
	store_word(method, to + 24, d);
	lane[0] = dm_xxh64_round(lane[0], a);
	lane[1] = dm_xxh64_round(lane[1], b);
	lane[2] = dm_xxh64_round(lane[2], c);
	lane[3] = dm_xxh64_round(lane[3], d);
}

/* `method` is a constant at each call, so each call becomes a loop of its own. */
DM_INLINE void copy_lines(enum dormouse_copy_method method, dm_u8 *to, const dm_u8 *from,
			  dm_u64 lines, struct dormouse_xxh64 *hash)
{
	dm_u64 lane[4] = { hash->lane[0], hash->lane[1], hash->lane[2], hash->lane[3] };

	hash->total_bytes += lines * DM_LINE_BYTES;
	for (; lines; lines--) {
		if (method == DORMOUSE_COPY_MOVDIR64B)
			movdir64b(to, from);
		copy_stripe(method, lane, to, from);
		copy_stripe(method, lane, to + STRIPE_BYTES, from + STRIPE_BYTES);
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
