/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * The instructions that copy.c is made of: the ones that store past the caches, write lines
 * back and order them, and the one that says which of them there are. Nothing else in
 * the library decides when a byte reaches the device.
 */
#ifndef DORMOUSE_PRIMITIVES_H
#define DORMOUSE_PRIMITIVES_H

DM_INLINE void cpuid(dm_u32 leaf, dm_u32 *ebx, dm_u32 *ecx, dm_u32 *edx, dm_u32 *eax)
{
	__asm__ volatile("cpuid"
			 : "=a"(*eax), "=b"(*ebx), "=c"(*ecx), "=d"(*edx)
			 : "0"(leaf), "2"(0));
}

DM_INLINE void dm_sfence(void)
{
	__asm__ volatile("sfence" ::: "memory");
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

#endif /* DORMOUSE_PRIMITIVES_H */
