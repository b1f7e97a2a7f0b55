// SPDX-License-Identifier: GPL-2.0-only
/*
 * The last step of S3 entry: mark, write the request, hand over to firmware.
 *
 *	PM_SUSPEND_PREPARE      user space still runs
 *	  … devices suspended, other CPUs off, interrupts off, CPU state saved …
 *	dormouse_prepare_sleep  marks pages, commits PREPARED, raises the SMI
 *	  refused: returns -1, Linux resumes as from a failed S3
 *	  done:    never returns; the next power-on enters at the wake vector
 *	PM_POST_SUSPEND         user space runs again soon
 *
 * Nothing may allocate or free a page between the marking and the SMI, so nothing is
 * printed there either.
 */
#define pr_fmt(fmt) "dormouse: " fmt

#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/smp.h>
#include <linux/suspend.h>

#include "dormouse.h"

/* An SMI comes within microseconds; an emulator delivers it a few instructions late. */
#define DORMOUSE_ANSWER_POLLS		1000
#define DORMOUSE_ANSWER_POLL_US		100

static void print_event(u64 t_ns, const char *phase, const char *name, const char *kind)
{
	pr_notice("event t_ns=%llu phase=%s name=%s kind=%s\n", t_ns, phase, name, kind);
}

static struct dormouse_mailbox *mailbox(const struct dormouse_device *d)
{
	return d->window + DORMOUSE_MAILBOX_OFFSET;
}

static void write_mailbox(const struct dormouse_device *d, enum dormouse_command command)
{
	struct dormouse_mailbox *m = mailbox(d);

	*m = (struct dormouse_mailbox) {
		.magic = DORMOUSE_MAILBOX_MAGIC,
		.command = command,
		.status = DORMOUSE_STATUS_PENDING,
	};
	dormouse_flush(m, sizeof(*m));
}

/* Untrusted: a number that no reason has, or a success that returns, is no answer. */
static enum dormouse_reason read_mailbox(struct dormouse_device *d, u64 *detail)
{
	const struct dormouse_mailbox *m = mailbox(d);
	u32 status = READ_ONCE(m->status);

	*detail = READ_ONCE(m->detail);
	d->needed_bytes = READ_ONCE(m->needed_bytes);
	d->available_bytes = READ_ONCE(m->available_bytes);
	if (status == DORMOUSE_OK || status >= DORMOUSE_REASON_COUNT)
		return DORMOUSE_E_NO_ANSWER;
	return status;
}

static void raise_smi(const struct dormouse_device *d)
{
	int i;

	outb(d->smi_command, d->smi_port);
	for (i = 0; i < DORMOUSE_ANSWER_POLLS; i++) {
		inb(d->smi_port);
		if (READ_ONCE(mailbox(d)->status) != DORMOUSE_STATUS_PENDING)
			return;
		udelay(DORMOUSE_ANSWER_POLL_US);
	}
}

static enum dormouse_reason prepare_image(struct dormouse_device *d, u64 begin_ns, u64 *detail)
{
	struct dormouse_header *h = d->header;
	struct dormouse_marks *m = &d->marks;
	enum dormouse_reason reason;

	d->needed_bytes = 0;
	d->available_bytes = 0;

	reason = dormouse_header_load(d, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	*detail = h->state;
	if (h->state == DORMOUSE_STATE_SUSPENDED || h->state == DORMOUSE_STATE_RESTORING)
		return DORMOUSE_E_IMAGE_EXISTS;
	*detail = d->persistence;
	if (d->persistence == DORMOUSE_PERSISTENCE_UNKNOWN)
		return DORMOUSE_E_VOLATILE;

	dormouse_marks_init(m, h, d->window + h->dram_bitmap_offset,
			    d->window + h->cxl_bitmap_offset);
	reason = dormouse_mark(d, m, h->data_offset, detail);
	if (reason != DORMOUSE_OK)
		return reason;
	dormouse_flush(m->dram, m->dram_bitmap_bytes);
	dormouse_flush(m->cxl, m->cxl_bitmap_bytes);

	dormouse_header_request(h, m->dram, m->cxl, m->save_pages, d->persistence);
	dormouse_user_digest(d);
	h->phase[DORMOUSE_PHASE_PREPARE].begin_ns = begin_ns;
	h->phase[DORMOUSE_PHASE_PREPARE].end_ns = dormouse_now_ns();
	dormouse_header_commit(dormouse_copies(d), h);
	return DORMOUSE_OK;
}

/* Afterwards: a console may allocate memory to print (netconsole does). */
static void report_prepare(const struct dormouse_device *d, u64 begin_ns, u64 end_ns)
{
	const struct dormouse_interval *user = &d->header->phase[DORMOUSE_PHASE_USER_DIGEST];

	if (user->end_ns) {
		print_event(user->begin_ns, "suspend", "user-digest", "begin");
		pr_notice("event t_ns=%llu phase=suspend name=user-digest kind=end pages=%llu\n",
			  user->end_ns, d->header->user_pages);
	}
	print_event(begin_ns, "suspend", "prepare", "begin");
	pr_notice("event t_ns=%llu phase=suspend name=prepare kind=end pages=%llu free_pages=%llu\n",
		  end_ns, d->marks.save_pages, d->marks.cxl_free_pages);
}

static int dormouse_prepare_sleep(u8 state, u32 pm1a, u32 pm1b)
{
	struct dormouse_device *d = &dormouse;
	enum dormouse_reason reason;
	u64 begin_ns, end_ns, detail = 0;

	if (state != ACPI_STATE_S3 || !d->enabled)
		return 0;

	begin_ns = dormouse_now_ns();
	reason = prepare_image(d, begin_ns, &detail);
	end_ns = dormouse_now_ns();
	if (reason == DORMOUSE_OK) {
		write_mailbox(d, DORMOUSE_CMD_SLEEP);
		/* The image keeps this value: true after waking means that the machine slept. */
		WRITE_ONCE(d->asked, true);
		if (d->trigger == DORMOUSE_TRIGGER_SLP_EN)
			return 0;
		raise_smi(d);
		d->asked = false;
		reason = read_mailbox(d, &detail);
	}
	report_prepare(d, begin_ns, end_ns);
	dormouse_refused(d, reason, detail);
	return -1;
}

/*
 * Was it a sleep without power, or (where SLP_EN raises the SMI) an ordinary S3
 * after firmware had refused?
 */
static void after_sleep(struct dormouse_device *d)
{
	const struct dormouse_interval *phase = d->header->phase;
	enum dormouse_reason reason;
	u64 detail;

	reason = dormouse_header_load(d, &detail);
	report_prepare(d, phase[DORMOUSE_PHASE_PREPARE].begin_ns,
		       phase[DORMOUSE_PHASE_PREPARE].end_ns);
	if (reason == DORMOUSE_OK && d->header->state != DORMOUSE_STATE_CONSUMED)
		reason = read_mailbox(d, &detail);
	if (reason != DORMOUSE_OK) {
		dormouse_refused(d, reason, detail);
		return;
	}

	dormouse_outcome_from_header(d);
	print_event(phase[DORMOUSE_PHASE_RESTORE_COPY].end_ns, "resume", "kernel", "begin");
	pr_notice("event t_ns=%llu phase=resume name=kernel kind=end pages=%llu resumes=%llu\n",
		  dormouse_now_ns(), d->header->restored_pages, d->header->resume_count);
}

static int dormouse_pm_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	struct dormouse_device *d = &dormouse;

	if (!d->enabled)
		return NOTIFY_DONE;
	mutex_lock(&d->lock);
	switch (action) {
	case PM_SUSPEND_PREPARE:
		d->asked = false;
		print_event(dormouse_now_ns(), "suspend", "kernel", "begin");
		dormouse_user_begin(d);
		break;
	case PM_POST_SUSPEND:
		dormouse_user_end(d);
		if (d->asked)
			after_sleep(d);
		d->asked = false;
		break;
	}
	mutex_unlock(&d->lock);
	return NOTIFY_DONE;
}

static struct notifier_block dormouse_pm_notifier = {
	.notifier_call = dormouse_pm_notify,
};

static int ask_for_check(void *data)
{
	struct dormouse_device *d = data;

	write_mailbox(d, DORMOUSE_CMD_CHECK);
	raise_smi(d);
	return 0;
}

int dormouse_firmware_answers(struct dormouse_device *d)
{
	/* On the CPU from which sleep will ask. The answer does not matter, that it came does. */
	int error = smp_call_on_cpu(0, ask_for_check, d, false);

	if (error)
		return error;
	if (READ_ONCE(mailbox(d)->status) != DORMOUSE_STATUS_PENDING)
		return 0;
	pr_err("firmware has the device DORM0001, but does not answer command 0x%x\n",
	       d->smi_command);
	return -ETIMEDOUT;
}

int dormouse_handover_register(void)
{
	int error = register_pm_notifier(&dormouse_pm_notifier);

	if (!error)
		dormouse_set_prepare_sleep(dormouse_prepare_sleep);
	return error;
}

void dormouse_handover_unregister(void)
{
	dormouse_set_prepare_sleep(NULL);
	unregister_pm_notifier(&dormouse_pm_notifier);
}
