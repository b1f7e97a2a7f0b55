/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Made-up devices with any dependencies, for tests of suspend and resume on any kernel.
 *
 * The text, one line for each item; devices appear in the PM core's list as they are written:
 *
 *	device NAME [parent=NAME|under=NAME] [async] [noops] [nodriver] [suspended] [direct]
 *	            [bus=0..15] [PHASE=MICROSECONDS[:busy]]...
 *	link SUPPLIER CONSUMER stateless|managed|runtime|sync_state
 *
 *	under=NAME  is a child of a device of the machine: the first one that was added by this name
 *	async       has permission to leave the list's order (power/async)
 *	noops       has no callbacks at all
 *	nodriver    is bound to no driver
 *	suspended   is runtime-suspended, and so is what is below it; all others are in use
 *	direct      asks for direct-complete if it is runtime-suspended
 *	bus=N       its callbacks hold lock N: they share a slow bus
 *	PHASE       suspend, suspend_late, suspend_noirq, resume_noirq, resume_early or resume;
 *	            the callback sleeps that long, or keeps a processor busy
 */
#ifndef _PM_GRAPH_TEST_H
#define _PM_GRAPH_TEST_H

#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/list.h>
#include <linux/pm_graph.h>
#include <linux/seq_file.h>

#define TEST_BUSES	16

enum test_injection {
	TEST_NOTHING,
	/* The callback returns an error. */
	TEST_FAIL,
	/* Something wakes the system while the callback runs. */
	TEST_WAKE,
	/* The callback takes that much longer. */
	TEST_HANG,
	/* The callback removes another device, or adds one: as a hub's driver does. */
	TEST_REMOVE,
	TEST_ADD,
};

#define TEST_NAME_BYTES	24

struct test_phase {
	u32 us;
	bool busy;
	/* Happens once. */
	enum test_injection injection;
	int value;
	/* The device that is removed or added. */
	char other[TEST_NAME_BYTES];
};

struct test_device {
	struct device dev;
	struct list_head entry;
	struct test_phase phase[DPM_GRAPH_PHASES];
	/* -1: none. */
	int bus;
	bool async;
	bool noops;
	bool nodriver;
	bool suspended;
	bool direct;
};

struct test_link {
	struct device_link *link;
	struct list_head entry;
};

extern const char * const test_phase_names[DPM_GRAPH_PHASES];

/* graph_test_device.c; the caller holds one lock over all of these. */
int test_buses_register(void);
void test_buses_unregister(void);
struct test_device *test_device_new(const char *name);
/* Takes ownership of the device, also on failure. */
int test_device_add(struct test_device *device, struct device *parent);
struct test_device *test_device_find(const char *name);
/* Whether the device may be removed before the others: it has no children and no links. */
bool test_device_is_apart(const struct test_device *device);
/* A device of the machine, with a reference; @any: a device that was initialised. */
struct device *test_real_device_get(const struct device *any, const char *name);
int test_link_add(struct device *supplier, struct device *consumer, u32 flags);
void test_devices_remove(void);
/* All devices get the permission to leave the list's order, or none has it. */
void test_devices_permit(bool all);
u32 test_devices_count(void);

/* graph_test_events.c */
u32 test_event_begin(struct test_device *device, enum dpm_graph_phase phase);
void test_event_end(u32 event, int error);
void test_events_show(struct seq_file *file);
void test_events_clear(void);

/* graph_test_phases.c */
int test_phases_add(struct dentry *folder);
void test_phases_remove(void);

/* graph_test_parse.c; -EINVAL and what is wrong in @complaint. */
int test_phase_find(const char *name);
int test_parse_graph(char *text, char *complaint, size_t bytes);
int test_parse_injection(char *text, char *complaint, size_t bytes);

#endif
