/*
 * Settings that processes and threads make for themselves, and that are easily lost. Says "ready", waits
 * until a file "go" appears in its directory, and checks all of it. The number of differences is the exit
 * code.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif
#define EXCEPT_ADVISED 2
#define POLICY_BIND 2
#define NO_SETUID_FIXUP 4
#define PERSONA_OF_THREAD (0x0040000 | 0x0200000)

static volatile int stage;
static int merges, advised, faults_at_cpuid;

static void wait_for_stage(int wanted)
{
	while (stage != wanted)
		usleep(1000);
}

/* The name is no UTF-8, and none of the characters that /proc escapes. */
static const char name[] = "\xff\xfe\xc3(z";

static void *other(void *unused)
{
	char is[17] = "";
	unsigned long nodes[16] = { 0 };
	int mode = -1, tsc = 0;

	CHECK(prctl(PR_SET_NAME, name) == 0);
	CHECK(prctl(PR_SET_TIMERSLACK, 777777UL) == 0);
	CHECK(syscall(SYS_personality, PERSONA_OF_THREAD) >= 0);
	CHECK(prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP) == 0);
	CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
	CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
	CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
	nodes[0] = 1;
	CHECK(syscall(SYS_set_mempolicy, POLICY_BIND, nodes, 65) == 0);
	stage = 1;
	wait_for_stage(2);
	CHECK(prctl(PR_GET_NAME, is) == 0 && !strcmp(is, name));
	CHECK(prctl(PR_GET_TIMERSLACK) == 777777);
	CHECK(syscall(SYS_personality, 0xffffffff) == PERSONA_OF_THREAD);
	CHECK(prctl(PR_GET_SECUREBITS) == (NO_SETUID_FIXUP | 1 << 4));
	CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY);
	CHECK(prctl(PR_GET_TSC, &tsc) == 0 && tsc == PR_TSC_SIGSEGV);
	memset(nodes, 0, sizeof(nodes));
	CHECK(syscall(SYS_get_mempolicy, &mode, nodes, 1024, 0, 0) == 0);
	CHECK(mode == POLICY_BIND && nodes[0] == 1);
	stage = 3;
	return unused;
}

static void make_main(void)
{
	int filter = open("/proc/self/coredump_filter", O_WRONLY);

	CHECK(filter >= 0 && write(filter, "0x7f", 4) == 4);
	close(filter);
	CHECK(prctl(PR_SET_TIMERSLACK, 123456UL) == 0);
	CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_LATE, 0, 0) == 0);
	merges = prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) == 0;
	advised = prctl(PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) == 0;
	faults_at_cpuid = syscall(SYS_arch_prctl, 0x1012, 0) == 0;
	CHECK(prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0);
}

static void check_main(void)
{
	char text[32] = "";
	int tsc = 0, mode = -1;
	int filter = open("/proc/self/coredump_filter", O_RDONLY);

	CHECK(read(filter, text, sizeof(text) - 1) > 0 && strtol(text, NULL, 16) == 0x7f);
	close(filter);
	CHECK(prctl(PR_GET_TIMERSLACK) == 123456);
	CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_LATE);
	CHECK(prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) == merges);
	CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == (advised ? 1 | EXCEPT_ADVISED : 0));
	CHECK(syscall(SYS_arch_prctl, 0x1011) == !faults_at_cpuid);
	CHECK(prctl(PR_GET_MDWE, 0, 0, 0, 0) == 1);
	CHECK(mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
	      MAP_FAILED);
	/* Those of the other thread are its own. */
	CHECK(prctl(PR_GET_TSC, &tsc) == 0 && tsc == PR_TSC_ENABLE);
	CHECK(syscall(SYS_personality, 0xffffffff) == 0);
	CHECK(prctl(PR_GET_SECUREBITS) == 0);
	CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0, 0, 0) == 0 && mode == 0);
}

int main(void)
{
	pthread_t thread;

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
	wait_for_stage(1);
	make_main();
	printf("ready\n");
	while (access("go", F_OK))
		usleep(10000);
	check_main();
	stage = 2;
	pthread_join(thread, NULL);
	return failures;
}
