// SPDX-License-Identifier: GPL-2.0-only
/* lib/list_sort.c: merge sort of a list, with a comparison through a pointer. */
#include <linux/list.h>
#include <linux/list_sort.h>

#include "programs.h"

struct item {
	u32 key;
	struct list_head node;
};

static struct item items[64];

static int compare(void *unused, const struct list_head *a, const struct list_head *b)
{
	u32 one = container_of(a, struct item, node)->key;
	u32 two = container_of(b, struct item, node)->key;

	(void)unused;
	return one > two;
}

u32 run_list_sort(u32 seed, u32 rounds)
{
	u32 digest = seed;

	while (rounds--) {
		u32 count = 2 + dice(&seed) % (ARRAY_SIZE(items) - 2);
		struct list_head head, *at;

		INIT_LIST_HEAD(&head);
		for (u32 i = 0; i < count; i++) {
			items[i].key = dice(&seed) % 256;
			list_add(&items[i].node, &head);
		}
		list_sort(NULL, &head, compare);
		list_for_each(at, &head)
			digest = mix(digest, container_of(at, struct item, node)->key * 64 +
				     (u32)(container_of(at, struct item, node) - items));
	}
	return digest;
}
