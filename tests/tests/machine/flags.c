/*
 * Whether the flags after cmpxchg16b are those of hardware: a word of which most bits are zero. Where the
 * processor does not offer the instruction, there is nothing to get wrong.
 */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>

/* CF, PF, AF, ZF, SF, TF, IF, DF, OF, the bit that is always set, and no other. */
#define FLAGS_MAX 0xfffull
#define FLAGS_NEVER (1ull << 3 | 1ull << 5 | 1ull << 8 | 1ull << 10)

int main(void)
{
	static _Alignas(16) uint64_t pair[2] = { 1, 2 };
	uint64_t low = pair[0], high = pair[1], flags;
	/* An address as the kernel has them. */
	uint64_t address = 0xff2604bc41367b80ull;
	unsigned int a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_CMPXCHG16B)) {
		puts("as on hardware");
		return 0;
	}
	asm volatile("lock cmpxchg16b %[pair]\n\t"
		     "jne 1f\n"
		     "1:	add %[address], %%r8\n\t"
		     "lock cmpxchg16b %[pair]\n\t"
		     "jne 2f\n"
		     "2:	pushfq\n\t"
		     "pop %[flags]"
		     : [flags] "=r"(flags), [pair] "+m"(pair), "+a"(low), "+d"(high)
		     : [address] "r"(address), "b"(low), "c"(high)
		     : "cc", "memory", "r8");
	if (flags > FLAGS_MAX || (flags & FLAGS_NEVER))
		printf("flags %#llx\n", (unsigned long long)flags);
	else
		puts("as on hardware");
	return 0;
}
