// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: measures callbacks at the kernel's own tracepoints,
 * device_pm_callback_start and device_pm_callback_end.
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "graph_internal.h"
#include "host.h"

static struct tracepoint *start, *end;
static bool is_on;

/* The phase that the kernel's words for a callback mean; DPM_GRAPH_PHASES: none of the six. */
static enum dpm_graph_phase phase_of(const char *kind, int event)
{
	bool down = !(event & (PM_EVENT_RESUME | PM_EVENT_THAW | PM_EVENT_RESTORE |
			       PM_EVENT_RECOVER));

	/* prepare and complete. */
	if (!kind || !*kind)
		return DPM_GRAPH_PHASES;
	if (str_has_prefix(kind, "noirq "))
		return down ? DPM_GRAPH_SUSPEND_NOIRQ : DPM_GRAPH_RESUME_NOIRQ;
	if (str_has_prefix(kind, "late "))
		return DPM_GRAPH_SUSPEND_LATE;
	if (str_has_prefix(kind, "early "))
		return DPM_GRAPH_RESUME_EARLY;
	return down ? DPM_GRAPH_SUSPEND : DPM_GRAPH_RESUME;
}

static void begins(void *unused, struct device *dev, const char *kind, int event)
{
	enum dpm_graph_phase phase = phase_of(kind, event);

	if (phase != DPM_GRAPH_PHASES)
		dpm_graph_measure(dev, phase);
}

static void ends(void *unused, struct device *dev, int error)
{
	dpm_graph_callback_end(dev, error);
}

static void look_at(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "device_pm_callback_start"))
		start = tracepoint;
	else if (!strcmp(tracepoint->name, "device_pm_callback_end"))
		end = tracepoint;
}

int dpm_measure_find(void)
{
	for_each_kernel_tracepoint(look_at, NULL);
	if (start && end)
		return 0;
	pr_err("not loaded: this kernel lacks the trace events device_pm_callback_start and _end\n");
	return -ENOENT;
}

/* No transition is under way. */
int dpm_graph_measure_switch(bool on)
{
	int error;

	if (on == is_on)
		return 0;
	if (!on) {
		tracepoint_probe_unregister(start, begins, NULL);
		tracepoint_probe_unregister(end, ends, NULL);
		tracepoint_synchronize_unregister();
		is_on = false;
		return 0;
	}
	error = tracepoint_probe_register(end, ends, NULL);
	if (error)
		return error;
	error = tracepoint_probe_register(start, begins, NULL);
	if (error) {
		tracepoint_probe_unregister(end, ends, NULL);
		tracepoint_synchronize_unregister();
		return error;
	}
	is_on = true;
	return 0;
}
