/*
 * Whether the flags after cmpxchg16b are those of hardware: a word of which most bits are zero. Where the
 * processor does not offer the instruction, there is nothing to get wrong.
 */
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>

/* CF, bit 1, PF, AF, ZF, SF, IF and OF: what a program may find set that neither steps nor copies backwards. */
#define FLAGS_POSSIBLE 0xad7ull

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
	if (flags & ~FLAGS_POSSIBLE)
		printf("flags %#llx\n", (unsigned long long)flags);
	else
		puts("as on hardware");
	return 0;
}
