// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Functions that a kernel has itself, beside those of offload.c. */
typedef unsigned int u32;

static u32 memory[64];

void mutex_lock(void *lock)
{
	*(volatile u32 *)lock = 1;
}

void mutex_unlock(void *lock)
{
	*(volatile u32 *)lock = 0;
}

void *__kmalloc_noprof(u32 bytes, u32 flags)
{
	(void)flags;
	return bytes <= sizeof(memory) ? memory : 0;
}

void msleep(u32 ms)
{
	for (volatile u32 i = 0; i < ms; i++)
		;
}
