/*
 * System V shared memory, semaphores and message queues, and POSIX shared memory. Says "ready", waits
 * until a file "go" appears in its directory, checks all of it, and removes it. The number of
 * differences is the exit code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096

struct message {
	long type;
	char text[16];
};

static int attached, split, detached, doomed, set, fresh, queue, empty;
static char *memory, *only_read, *pieces, *last;
static char name[64];
static char *posix;
static int posix_fd;
static sem_t *semaphore;
static struct shmid_ds before;

static void make(void)
{
	key_t key = 0x0d0c0000 | (getpid() & 0xffff);

	attached = shmget(key, 3 * PAGE - 100, IPC_CREAT | IPC_EXCL | 0640);
	CHECK(attached >= 0);
	memory = shmat(attached, NULL, 0);
	only_read = shmat(attached, NULL, SHM_RDONLY);
	CHECK(memory != (void *)-1 && only_read != (void *)-1);
	strcpy(memory, "attached");
	strcpy(memory + 2 * PAGE, "its last page");
	CHECK(shmctl(attached, IPC_STAT, &before) == 0);

	/* Of the third page nothing is left, and the second cannot be written. */
	split = shmget(IPC_PRIVATE, 4 * PAGE, 0600);
	pieces = shmat(split, NULL, 0);
	memset(pieces, 's', 4 * PAGE);
	CHECK(mprotect(pieces + PAGE, PAGE, PROT_READ) == 0 && munmap(pieces + 2 * PAGE, PAGE) == 0);

	detached = shmget(IPC_PRIVATE, PAGE, 0600);
	char *soon = shmat(detached, NULL, 0);
	strcpy(soon, "nobody has it");
	CHECK(shmdt(soon) == 0);

	doomed = shmget(IPC_PRIVATE, PAGE, 0600);
	last = shmat(doomed, NULL, 0);
	strcpy(last, "goes with me");
	CHECK(shmctl(doomed, IPC_RMID, NULL) == 0);

	set = semget(key, 3, IPC_CREAT | IPC_EXCL | 0600);
	unsigned short values[3] = { 4, 0, 2 };
	CHECK(semctl(set, 0, SETALL, values) == 0);
	fresh = semget(IPC_PRIVATE, 2, 0600);
	CHECK(fresh >= 0);

	queue = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
	struct message one = { 7, "seven" }, two = { 3, "three" };
	CHECK(msgsnd(queue, &one, 6, 0) == 0 && msgsnd(queue, &two, 6, 0) == 0);
	empty = msgget(IPC_PRIVATE, 0600);
	CHECK(empty >= 0);

	snprintf(name, sizeof(name), "/dormouse-test-%d", getpid());
	posix_fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
	CHECK(posix_fd >= 0 && ftruncate(posix_fd, 2 * PAGE) == 0);
	posix = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, posix_fd, 0);
	strcpy(posix + PAGE, "posix");
	semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 5);
	CHECK(semaphore != SEM_FAILED);
}

static void check_segments(void)
{
	struct shmid_ds now;

	CHECK(!strcmp(memory, "attached") && !strcmp(memory + 2 * PAGE, "its last page"));
	CHECK(shmctl(attached, IPC_STAT, &now) == 0);
	CHECK(now.shm_segsz == before.shm_segsz && now.shm_nattch == before.shm_nattch);
	CHECK(now.shm_perm.__key == before.shm_perm.__key && now.shm_perm.mode == before.shm_perm.mode);
	CHECK(now.shm_perm.uid == before.shm_perm.uid && now.shm_perm.cuid == before.shm_perm.cuid);
	/* One memory, also of a child. */
	strcpy(memory, "written");
	CHECK(!strcmp(only_read, "written"));
	CHECK(mprotect(only_read, PAGE, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
	int status, child = fork();
	if (child == 0) {
		strcpy(memory + PAGE, "by a child");
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!strcmp(only_read + PAGE, "by a child"));
	CHECK(shmdt(memory) == 0 && shmdt(only_read) == 0);

	CHECK(pieces[0] == 's' && pieces[PAGE] == 's' && pieces[4 * PAGE - 1] == 's');
	CHECK(mprotect(pieces + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);

	CHECK(shmctl(detached, IPC_STAT, &now) == 0 && now.shm_nattch == 0);
	char *again = shmat(detached, NULL, SHM_RDONLY);
	CHECK(again != (void *)-1 && !strcmp(again, "nobody has it"));

	CHECK(!strcmp(last, "goes with me"));
	CHECK(shmctl(doomed, IPC_STAT, &now) == 0 && now.shm_perm.mode & 01000);
	CHECK(shmdt(last) == 0 && shmctl(doomed, IPC_STAT, &now) < 0);
	CHECK(shmctl(attached, IPC_RMID, NULL) == 0);
	CHECK(shmctl(split, IPC_RMID, NULL) == 0 && shmctl(detached, IPC_RMID, NULL) == 0);
}

static void check_others(void)
{
	unsigned short values[3];
	struct semid_ds sets;
	struct message got;

	CHECK(semctl(set, 0, GETALL, values) == 0);
	CHECK(values[0] == 4 && values[1] == 0 && values[2] == 2);
	CHECK(semctl(fresh, 0, IPC_STAT, &sets) == 0 && sets.sem_nsems == 2);
	CHECK(semctl(set, 0, IPC_RMID) == 0 && semctl(fresh, 0, IPC_RMID) == 0);

	CHECK(msgrcv(queue, &got, 16, 3, IPC_NOWAIT) == 6 && !strcmp(got.text, "three"));
	CHECK(msgrcv(queue, &got, 16, 0, IPC_NOWAIT) == 6 && got.type == 7 && !strcmp(got.text, "seven"));
	CHECK(msgrcv(queue, &got, 16, 0, IPC_NOWAIT) < 0 && errno == ENOMSG);
	CHECK(msgrcv(empty, &got, 16, 0, IPC_NOWAIT) < 0 && errno == ENOMSG);
	CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && msgctl(empty, IPC_RMID, NULL) == 0);

	struct stat stat;
	int value;
	CHECK(!strcmp(posix + PAGE, "posix"));
	CHECK(fstat(posix_fd, &stat) == 0 && stat.st_size == 2 * PAGE && (stat.st_mode & 0777) == 0640);
	/* The name leads to the same memory. */
	int again = shm_open(name, O_RDWR, 0);
	CHECK(again >= 0 && pwrite(again, "named", 5, PAGE) == 5 && !strcmp(posix + PAGE, "named"));
	CHECK(sem_getvalue(semaphore, &value) == 0 && value == 5);
	CHECK(shm_unlink(name) == 0 && sem_unlink(name) == 0);
}

int main(void)
{
	make();
	printf("ready\n");
	fflush(stdout);
	while (access("go", F_OK))
		poll(NULL, 0, 10);
	check_segments();
	check_others();
	printf("%d failures\n", failures);
	return failures > 99 ? 99 : failures;
}
