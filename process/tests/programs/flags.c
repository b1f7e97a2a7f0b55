/*
 * Processor flags that the kernel keeps for a thread, in threads that differ in them: direction, alignment
 * check, nested task, identification. Says "ready", waits with these flags until a file "go" appears in its
 * directory, and compares. The number of differences is the exit code.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define DIRECTION 0x400UL
#define NESTED 0x4000UL
#define ALIGNMENT 0x40000UL
#define IDENTIFICATION 0x200000UL
#define ALL (DIRECTION | NESTED | ALIGNMENT | IDENTIFICATION)

static const unsigned long kinds[] = { 0, IDENTIFICATION, DIRECTION, NESTED | ALIGNMENT, 0, ALL };
#define THREADS (sizeof(kinds) / sizeof(kinds[0]))

/* How many of them wait. */
static unsigned int waiting;

/* The flags of these after a wait for the file with them. No code of the compiler runs with them. */
static unsigned long kept(unsigned long flags)
{
	static const char go[] = "go";
	static const struct timespec pause = { .tv_nsec = 5000000 };
	unsigned long seen;

	asm volatile("lea -128(%%rsp), %%rsp\n\t"
		     "pushfq\n\t"
		     "pushfq\n\t"
		     "or %[flags], (%%rsp)\n\t"
		     "popfq\n\t"
		     "lock incl %[waiting]\n\t"
		     "1: mov %[pause], %%rdi\n\t"
		     "xor %%esi, %%esi\n\t"
		     "mov %[nanosleep], %%eax\n\t"
		     "syscall\n\t"
		     "mov %[go], %%rdi\n\t"
		     "xor %%esi, %%esi\n\t"
		     "mov %[access], %%eax\n\t"
		     "syscall\n\t"
		     "test %%rax, %%rax\n\t"
		     "jnz 1b\n\t"
		     "pushfq\n\t"
		     "pop %[seen]\n\t"
		     "popfq\n\t"
		     "lea 128(%%rsp), %%rsp"
		     : [seen] "=&r"(seen), [waiting] "+m"(waiting)
		     : [flags] "r"(flags), [pause] "r"(&pause), [go] "r"(go), [nanosleep] "i"(SYS_nanosleep),
		       [access] "i"(SYS_access)
		     : "rax", "rcx", "r11", "rdi", "rsi", "cc", "memory");
	return seen & ALL;
}

static void *thread(void *of)
{
	const unsigned long *flags = of;

	return (void *)kept(*flags);
}

static void *say_ready(void *unused)
{
	while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) <= THREADS)
		usleep(1000);
	printf("ready\n");
	fflush(stdout);
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS], speaker;

	for (size_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, thread, (void *)&kinds[i]) == 0);
	CHECK(pthread_create(&speaker, NULL, say_ready, NULL) == 0);
	/* The threads were created without it, and must come back without it. */
	CHECK(kept(IDENTIFICATION) == IDENTIFICATION);
	for (size_t i = 0; i < THREADS; i++) {
		void *seen = NULL;

		pthread_join(threads[i], &seen);
		if ((unsigned long)seen != kinds[i])
			printf("thread %zu: %lx, not %lx\n", i, (unsigned long)seen, kinds[i]);
		CHECK((unsigned long)seen == kinds[i]);
	}
	return failures;
}
