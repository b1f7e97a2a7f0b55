// SPDX-License-Identifier: GPL-2.0-only
/*
 * Made-up devices: the order of their callbacks, recorded by the callbacks.
 *
 *	PHASE DEVICE BEGIN END BEGIN-us END-us ERROR
 *
 * BEGIN and END number all begins and ends of callbacks in the order in which they happened;
 * END is 0 while the callback runs.
 */
#include <linux/atomic.h>
#include <linux/ktime.h>

#include "graph_test.h"

#define MAX_EVENTS	32768

static struct test_event {
	char name[TEST_NAME_BYTES];
	ktime_t begin;
	ktime_t end;
	u32 begin_number;
	u32 end_number;
	s16 error;
	u8 phase;
} events[MAX_EVENTS];

static atomic_t used = ATOMIC_INIT(0);
static atomic_t number = ATOMIC_INIT(0);

u32 test_event_begin(struct test_device *device, enum dpm_graph_phase phase)
{
	u32 at = atomic_inc_return(&used) - 1;
	struct test_event *event;

	if (at >= MAX_EVENTS)
		return MAX_EVENTS;
	event = &events[at];
	strscpy(event->name, dev_name(&device->dev));
	event->phase = phase;
	event->error = 0;
	event->end_number = 0;
	event->begin = ktime_get();
	event->begin_number = atomic_inc_return(&number);
	return at;
}

void test_event_end(u32 at, int error)
{
	if (at >= MAX_EVENTS)
		return;
	events[at].error = error;
	events[at].end = ktime_get();
	events[at].end_number = atomic_inc_return(&number);
}

void test_events_show(struct seq_file *file)
{
	u32 count = min_t(u32, atomic_read(&used), MAX_EVENTS);
	ktime_t first;
	u32 i;

	for (i = 0; i < count; i++) {
		const struct test_event *event = &events[i];

		if (!i)
			first = event->begin;
		seq_printf(file, "%s %s %u %u %lld %lld %d\n", test_phase_names[event->phase],
			   event->name, event->begin_number, event->end_number,
			   ktime_us_delta(event->begin, first),
			   event->end_number ? ktime_us_delta(event->end, first) : 0,
			   event->error);
	}
	if (atomic_read(&used) > MAX_EVENTS)
		seq_printf(file, "lost %u\n", atomic_read(&used) - MAX_EVENTS);
}

void test_events_clear(void)
{
	atomic_set(&used, 0);
	atomic_set(&number, 0);
}
