// SPDX-License-Identifier: GPL-2.0-only
/* lib/kfifo.c: bytes and records in and out of rings of several sizes. */
#include <linux/kfifo.h>

#include "programs.h"

static u32 ring[64];

u32 run_kfifo(u32 seed, u32 rounds)
{
	u32 digest = seed, out[16], in[16];
	struct __kfifo fifo;

	__kfifo_init(&fifo, ring, sizeof(ring), dice(&seed) % 2 ? 1 : 4);
	while (rounds--) {
		u32 count = dice(&seed) % 16;

		for (u32 i = 0; i < 16; i++)
			in[i] = dice(&seed);
		digest = mix(digest, __kfifo_in(&fifo, in, count));
		if (dice(&seed) & 1)
			digest = mix(digest, __kfifo_out_peek(&fifo, out, count / 2));
		for (u32 i = 0; i < 16; i++)
			out[i] = 0;
		digest = mix(digest, __kfifo_out(&fifo, out, dice(&seed) % 16));
		for (u32 i = 0; i < 16; i++)
			digest = mix(digest, out[i]);
		digest = mix(digest, fifo.in - fifo.out);
	}
	return digest;
}
