/* SPDX-License-Identifier: GPL-2.0-only */
/* What changed in the kernel's interfaces since 6.12; the only place that knows versions. */
#ifndef DORMOUSE_COMPAT_H
#define DORMOUSE_COMPAT_H

#include <linux/kernfs.h>
#include <linux/rcupdate.h>
#include <linux/sysfs.h>
#include <linux/version.h>

/* For nodes that never move. */
#if KERNEL_VERSION(6, 15, 0) <= LINUX_VERSION_CODE
static inline struct kernfs_node *dormouse_kernfs_parent(const struct kernfs_node *node)
{
	return rcu_dereference_protected(node->__parent, true);
}
#else
static inline struct kernfs_node *dormouse_kernfs_parent(const struct kernfs_node *node)
{
	return node->parent;
}
#endif

#if KERNEL_VERSION(6, 16, 0) <= LINUX_VERSION_CODE
#define dormouse_bin_attribute	const struct bin_attribute
#else
#define dormouse_bin_attribute	struct bin_attribute
#endif

#endif /* DORMOUSE_COMPAT_H */
