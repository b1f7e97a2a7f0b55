/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pm_graph

#if !defined(_TRACE_PM_GRAPH_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_PM_GRAPH_H

#include <linux/device.h>
#include <linux/pm_graph.h>
#include <linux/tracepoint.h>

#define show_pm_graph_phase(phase)					\
	__print_symbolic(phase,						\
			 { DPM_GRAPH_SUSPEND, "suspend" },		\
			 { DPM_GRAPH_SUSPEND_LATE, "suspend_late" },	\
			 { DPM_GRAPH_SUSPEND_NOIRQ, "suspend_noirq" },	\
			 { DPM_GRAPH_RESUME_NOIRQ, "resume_noirq" },	\
			 { DPM_GRAPH_RESUME_EARLY, "resume_early" },	\
			 { DPM_GRAPH_RESUME, "resume" })

TRACE_DEFINE_ENUM(DPM_GRAPH_SUSPEND);
TRACE_DEFINE_ENUM(DPM_GRAPH_SUSPEND_LATE);
TRACE_DEFINE_ENUM(DPM_GRAPH_SUSPEND_NOIRQ);
TRACE_DEFINE_ENUM(DPM_GRAPH_RESUME_NOIRQ);
TRACE_DEFINE_ENUM(DPM_GRAPH_RESUME_EARLY);
TRACE_DEFINE_ENUM(DPM_GRAPH_RESUME);

/* A phase begins (number of devices) or ends (devices done, workers woken). */
TRACE_EVENT(pm_graph_phase,

	TP_PROTO(enum dpm_graph_phase phase, bool begins, u32 devices, u32 wakes),

	TP_ARGS(phase, begins, devices, wakes),

	TP_STRUCT__entry(
		__field(int, phase)
		__field(bool, begins)
		__field(u32, devices)
		__field(u32, wakes)
	),

	TP_fast_assign(
		__entry->phase = phase;
		__entry->begins = begins;
		__entry->devices = devices;
		__entry->wakes = wakes;
	),

	TP_printk("%s %s devices=%u wakes=%u", show_pm_graph_phase(__entry->phase),
		  __entry->begins ? "begins" : "ends", __entry->devices, __entry->wakes)
);

/* A worker takes a device. device_pm_callback_end marks the end. */
TRACE_EVENT(pm_graph_device,

	TP_PROTO(struct device *dev, enum dpm_graph_phase phase, u16 worker, u32 cost_us,
		 bool wakes),

	TP_ARGS(dev, phase, worker, cost_us, wakes),

	TP_STRUCT__entry(
		__string(device, dev_name(dev))
		__field(int, phase)
		__field(u16, worker)
		__field(u32, cost_us)
		__field(bool, wakes)
	),

	TP_fast_assign(
		__assign_str(device);
		__entry->phase = phase;
		__entry->worker = worker;
		__entry->cost_us = cost_us;
		__entry->wakes = wakes;
	),

	TP_printk("%s %s worker=%u known_us=%d%s", show_pm_graph_phase(__entry->phase),
		  __get_str(device), __entry->worker, (int)__entry->cost_us,
		  __entry->wakes ? " wakes another" : "")
);

#endif /* _TRACE_PM_GRAPH_H */

#include <trace/define_trace.h>
