// SPDX-License-Identifier: GPL-2.0-only
/* lib/rbtree.c: inserts, looks up, walks and erases. */
#include <linux/rbtree.h>

#include "programs.h"

struct item {
	u32 key;
	bool present;
	struct rb_node node;
};

static struct item items[64];
static struct rb_root root;

static void insert(struct item *item)
{
	struct rb_node **link = &root.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		if (item->key < container_of(parent, struct item, node)->key)
			link = &parent->rb_left;
		else
			link = &parent->rb_right;
	}
	rb_link_node(&item->node, parent, link);
	rb_insert_color(&item->node, &root);
}

u32 run_rbtree(u32 seed, u32 rounds)
{
	u32 digest = seed;
	struct rb_node *node;

	root = (struct rb_root){ NULL };
	for (u32 i = 0; i < ARRAY_SIZE(items); i++)
		items[i].present = false;
	while (rounds--) {
		for (u32 i = 0; i < 32; i++) {
			struct item *item = &items[dice(&seed) % ARRAY_SIZE(items)];

			if (item->present) {
				rb_erase(&item->node, &root);
			} else {
				item->key = dice(&seed);
				insert(item);
			}
			item->present = !item->present;
		}
		for (node = rb_first(&root); node; node = rb_next(node))
			digest = mix(digest, container_of(node, struct item, node)->key);
	}
	return digest;
}
