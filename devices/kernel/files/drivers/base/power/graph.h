/* SPDX-License-Identifier: GPL-2.0-only */
/* Graph-ordered suspend and resume: the interface to main.c. */
#ifndef _DPM_GRAPH_H
#define _DPM_GRAPH_H

#include <linux/device.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/pm.h>
#include <linux/pm_graph.h>

#if IS_ENABLED(CONFIG_PM_GRAPH) || defined(MODULE)

#ifdef MODULE
typedef void (*dpm_graph_down_t)(struct device *dev, pm_message_t state);
typedef void (*dpm_graph_up_t)(struct device *dev, pm_message_t state);
#else
typedef int (*dpm_graph_down_t)(struct device *dev, pm_message_t state, bool async);
typedef void (*dpm_graph_up_t)(struct device *dev, pm_message_t state, bool async);
#endif

/*
 * main.c, with dpm_list_mtx held: takes all devices of @from through the phase and moves them to
 * @to; does nothing in the modes in which main.c itself takes the devices.
 */
void dpm_graph_down(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_down_t run,
		    struct list_head *from, struct list_head *to, int *error);
void dpm_graph_up(enum dpm_graph_phase phase, pm_message_t state, dpm_graph_up_t run,
		  struct list_head *from, struct list_head *to);

/* main.c, with dpm_list_mtx held: the phase is over. */
void dpm_graph_end_phase(void);

/* main.c: whether the graph has already waited for the neighbours of the device. */
bool dpm_graph_is_ready(struct device *dev);
/* main.c: whether a device may go to a work queue. */
bool dpm_graph_allows_async(void);
/* main.c: whether a device link orders suspend and resume. */
bool dpm_graph_link_counts(const struct device_link *link);
/* main.c: a driver waits for a device without a declared dependency; whether it has to. */
bool dpm_graph_block(struct device *subordinate, struct device *dev);
/* main.c: around each callback. */
void dpm_graph_callback_begin(struct device *dev);
void dpm_graph_callback_end(struct device *dev, int error);

#else

#define dpm_graph_down(...)		do { } while (0)
#define dpm_graph_up(...)		do { } while (0)
#define dpm_graph_end_phase()		do { } while (0)
#define dpm_graph_is_ready(dev)		false
#define dpm_graph_allows_async()	true
#define dpm_graph_link_counts(link)	true
#define dpm_graph_block(subordinate, dev) false
#define dpm_graph_callback_begin(dev)	do { } while (0)
#define dpm_graph_callback_end(dev, error) do { } while (0)

#endif /* CONFIG_PM_GRAPH */
#endif
