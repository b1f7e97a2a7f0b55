/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Graph-ordered suspend and resume: how it reaches the PM core. This is the file of the series,
 * which is part of that core; the loadable module has one of its own with the same names.
 */
#ifndef _DPM_GRAPH_HOST_H
#define _DPM_GRAPH_HOST_H

#include <linux/device.h>
#include <linux/pm-trace.h>
#include <linux/pm_graph.h>

#include "../base.h"
#include "power.h"

/* The state of a device: a field of it. */
static inline struct dpm_graph_device *dpm_graph_of(const struct device *dev)
{
	return (struct dpm_graph_device *)&dev->power.graph;
}

/* Whether the device has a state of its own. */
static inline bool dpm_graph_is_known(const struct dpm_graph_device *gd)
{
	return true;
}

/* Before a transition: every device of the list gets its state. */
static inline int dpm_graph_know(struct list_head *list)
{
	return 0;
}

/* Devices that are in the PM core's list, and in no graph. */
static inline bool dpm_graph_is_stranger(const struct device *dev)
{
	return false;
}

/* The mode is latched when the suspend phase begins. */
#define DPM_GRAPH_CHOOSES_EARLY	false

/* Whether callbacks are measured: main.c calls at any time. */
static inline int dpm_graph_measure_switch(bool on)
{
	return 0;
}

static inline bool dpm_graph_may_switch_on(void)
{
	return true;
}

/* main.c takes one device through one phase. */
#define DPM_GRAPH_CALL(function, dev, state)	((function)((dev), (state), false))

/* What /sys/power/pm_async says. */
static inline bool dpm_graph_user_async(void)
{
	return pm_async_enabled;
}

#endif
