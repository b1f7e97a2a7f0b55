// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The search trees that the static libelf of Debian 13 (elfutils 0.192) calls and that no static library
// of the distribution has: they are in elfutils' internal libeu, which is not shipped.
//
// Weak, so that a libelf with its own takes precedence. A tree begins with its root; what elfutils keeps
// behind it is a lock, and libbpf opens an object in one thread only.

#define _GNU_SOURCE
#include <search.h>
#include <stddef.h>

struct search_tree {
	void *root;
};

typedef int (*compare_fn)(const void *, const void *);

__attribute__((weak)) void eu_search_tree_init(struct search_tree *tree)
{
	tree->root = NULL;
}

__attribute__((weak)) void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *))
{
	tdestroy(tree->root, free_node);
	tree->root = NULL;
}

__attribute__((weak)) void *eu_tsearch(const void *key, struct search_tree *tree, compare_fn compare)
{
	return tsearch(key, &tree->root, compare);
}

__attribute__((weak)) void *eu_tfind(const void *key, struct search_tree *tree, compare_fn compare)
{
	return tfind(key, &tree->root, compare);
}

__attribute__((weak)) void *eu_tdelete(const void *key, struct search_tree *tree, compare_fn compare)
{
	return tdelete(key, &tree->root, compare);
}
