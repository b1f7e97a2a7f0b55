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

struct cpu_features {
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

/* movdir64b (%rdx), %rax in bytes, for assemblers that do not know it. */
DM_INLINE void movdir64b(dm_u8 *to, const dm_u8 *from)
{
	__asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x02"
			 : : "d"(from), "a"(to) : "memory");
}

#define LOAD_WORD(at, w)	"mov " #at "(%[from]), %[" #w "]\n\t"
#define STORE_WORD(store, at, w) store " %[" #w "], " #at "(%[to])\n\t"
#define NO_STORE(store, at, w)	""
/* dm_xxh64_round(), the four lanes in step so that a CPU overlaps them. */
#define ROUND_ALL			\
	"imul %[p2], %[w0]\n\t"		\
	"imul %[p2], %[w1]\n\t"		\
	"imul %[p2], %[w2]\n\t"		\
	"imul %[p2], %[w3]\n\t"		\
	"add %[w0], %[lane0]\n\t"	\
	"rol $31, %[lane0]\n\t"		\
	"imul %[p1], %[lane0]\n\t"	\
	"add %[w1], %[lane1]\n\t"	\
	"rol $31, %[lane1]\n\t"		\
	"imul %[p1], %[lane1]\n\t"	\
	"add %[w2], %[lane2]\n\t"	\
	"rol $31, %[lane2]\n\t"		\
	"imul %[p1], %[lane2]\n\t"	\
	"add %[w3], %[lane3]\n\t"	\
	"rol $31, %[lane3]\n\t"		\
	"imul %[p1], %[lane3]\n\t"

#define COPY_STRIPE(STORE, store, a, b, c, d)						\
	LOAD_WORD(a, w0) LOAD_WORD(b, w1) LOAD_WORD(c, w2) LOAD_WORD(d, w3)		\
	STORE(store, a, w0) STORE(store, b, w1) STORE(store, c, w2) STORE(store, d, w3)	\
	ROUND_ALL

/*
 * One line of 64 bytes. In assembly because no compiler keeps lanes, words and primes
 * in registers by itself at each optimisation level that the three users build with.
 */
#define COPY_LINE(STORE, store, lane, to_, from_)					\
	do {										\
		dm_u64 w0, w1, w2, w3;							\
											\
		__asm__ volatile(COPY_STRIPE(STORE, store, 0, 8, 16, 24)		\
				 COPY_STRIPE(STORE, store, 32, 40, 48, 56)		\
			: [lane0] "+r"((lane)[0]), [lane1] "+r"((lane)[1]),		\
			  [lane2] "+r"((lane)[2]), [lane3] "+r"((lane)[3]),		\
			  [w0] "=&r"(w0), [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3) \
			: [p1] "r"(DM_XXH_P1), [p2] "r"(DM_XXH_P2),			\
			  [to] "r"(to_), [from] "r"(from_)				\
			: "memory", "cc");						\
	} while (0)

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
