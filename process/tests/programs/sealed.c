/* Memory with seals and locks, and mappings that can never be written. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#ifndef SHM_LOCKED
#define SHM_LOCKED 02000
#endif
#define MSEAL 462

static void *anonymous(void)
{
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memory[0] = 's';
	return memory;
}

/* Whether smaps has a flag for the mapping at an address. */
static int has_flag(void *address, const char *flag)
{
	char line[512], found = 0;
	int here = 0;
	FILE *file = fopen("/proc/self/smaps", "r");

	while (fgets(line, sizeof(line), file)) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (unsigned long)address && (unsigned long)address < end;
		else if (here && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, flag) != NULL;
	}
	fclose(file);
	return found;
}

int main(void)
{
	char path[64];

	setvbuf(stdout, NULL, _IONBF, 0);
	int memory = memfd_create("future", MFD_ALLOW_SEALING);
	CHECK(!ftruncate(memory, 8192));
	char *written = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	CHECK(!fcntl(memory, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK));
	int seals = fcntl(memory, F_GET_SEALS);
	strcpy(written, "data");

	int plain = memfd_create("plain", 0);
	CHECK(!ftruncate(plain, 4096));
	sprintf(path, "/proc/self/fd/%d", plain);
	int to_read = open(path, O_RDONLY);
	char *read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED, to_read, 0);
	char *not_yet = mmap(NULL, 4096, PROT_READ, MAP_SHARED, plain, 0);
	close(to_read);

	char *locked = anonymous(), *locked_on_fault = anonymous();
	CHECK(!mlock(locked, 8192));
	CHECK(!mlock2(locked_on_fault, 8192, MLOCK_ONFAULT));

	int segment = shmget(IPC_PRIVATE, 4096, 0600);
	struct shmid_ds about;
	char *attached = shmat(segment, NULL, 0);
	CHECK(!shmctl(segment, SHM_LOCK, NULL));
	strcpy(attached, "segment");

	CHECK(!mlockall(MCL_FUTURE));
	char *sealed = anonymous();
	int can_seal = !syscall(MSEAL, sealed, 8192, 0);

	puts("ready");
	while (access("go", F_OK))
		usleep(10000);

	CHECK(!strcmp(written, "data"));
	written[4] = '+';
	CHECK(fcntl(memory, F_GET_SEALS) == seals);
	CHECK(pwrite(memory, "x", 1, 0) < 0 && errno == EPERM);

	CHECK(mprotect(read_only, 4096, PROT_READ | PROT_WRITE) && errno == EACCES);
	CHECK(!mprotect(not_yet, 4096, PROT_READ | PROT_WRITE));

	CHECK(has_flag(locked, " lo") && !has_flag(locked, " lf"));
	CHECK(has_flag(locked_on_fault, " lo") && has_flag(locked_on_fault, " lf"));

	CHECK(!shmctl(segment, IPC_STAT, &about));
	CHECK(about.shm_perm.mode == (0600 | SHM_LOCKED));
	CHECK(!strcmp(attached, "segment"));
	shmctl(segment, IPC_RMID, NULL);

	char *fresh = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(has_flag(fresh, " lo") && !has_flag(fresh, " lf"));

	if (can_seal)
		CHECK(mprotect(sealed, 8192, PROT_READ) && errno == EPERM);
	CHECK(sealed[0] == 's');
	return failures;
}
