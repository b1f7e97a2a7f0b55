/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ramstage, before the payload is loaded: resume the OS from the image in CXL
 * memory, or write down why not and let the payload boot.
 */

#include <acpi/acpi.h>
#include <bootstate.h>
#include <console/console.h>
#include <cpu/x86/tsc.h>
#include <program_loading.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"

static struct dormouse_geometry geometry;
static struct dormouse_header header;
static struct dormouse_header fresh;

uint32_t __weak dormouse_board_tsc_khz(void)
{
	return tsc_freq_mhz() * 1000;
}

static void report_cold_boot(enum dormouse_reason reason, uint64_t detail)
{
	printk(BIOS_NOTICE, "dormouse: cold boot: %s: %s (detail 0x%llx)\n",
	       dormouse_reason_name(reason), dormouse_reason_text(reason), detail);
}

/* `previous` NULL: no header was valid, so there is no history to keep. */
static void cold_boot(struct dormouse_header *copies, const struct dormouse_header *previous,
		      enum dormouse_reason reason, uint64_t detail)
{
	dormouse_header_init(&fresh, &geometry, previous);
	/* Without an image nothing was lost: the last outcome stays what it was. */
	if (reason != DORMOUSE_E_NO_IMAGE) {
		fresh.last_outcome = DORMOUSE_OUTCOME_COLD_BOOT;
		fresh.last_reason = reason;
		fresh.last_detail = detail;
	}
	dormouse_header_commit(copies, &fresh);
	report_cold_boot(reason, detail);
}

static enum dormouse_reason look_at_user_pages(uint64_t *detail)
{
	struct dormouse_interval *const phase = &header.phase[DORMOUSE_PHASE_USER_CHECK];
	enum dormouse_reason reason;

	if (header.user_check == DORMOUSE_USER_CHECK_NONE)
		return DORMOUSE_OK;
	phase->begin_ns = dormouse_now_ns();
	dormouse_event(phase->begin_ns, "resume", "user-check", "begin", "pages",
		       header.user_pages);
	reason = dormouse_check_user_pages(&header, &geometry, detail);
	phase->end_ns = dormouse_now_ns();
	dormouse_event(phase->end_ns, "resume", "user-check", "end", "reason", reason);
	return reason;
}

/* DORMOUSE_OK: the OS's memory is back and `header` holds its wake vector. */
static enum dormouse_reason look_at_image(struct dormouse_header *copies, uint64_t begin_ns,
					  uint64_t *detail)
{
	enum dormouse_reason reason;
	const uint32_t allowed = 1 << DORMOUSE_STATE_SUSPENDED | 1 << DORMOUSE_STATE_RESTORING;

	*detail = 0;
	reason = dormouse_image_check(&header, &geometry, copies, allowed, detail);
	header.phase[DORMOUSE_PHASE_RESTORE_CHECK].begin_ns = begin_ns;
	header.phase[DORMOUSE_PHASE_RESTORE_CHECK].end_ns = dormouse_now_ns();
	dormouse_event(header.phase[DORMOUSE_PHASE_RESTORE_CHECK].end_ns, "resume",
		       "restore-check", "end", "reason", reason);
	if (reason == DORMOUSE_OK)
		reason = look_at_user_pages(detail);
	if (reason != DORMOUSE_OK)
		return reason;
	return dormouse_restore(&header, copies, &geometry, detail);
}

/*
 * What this board does before an ordinary S3 resume it must do before ours:
 * chipsets lock themselves here, and debug registers are put away.
 */
static void run_resume_callbacks(void)
{
	extern struct boot_state_init_entry *_bs_init_begin[];

	for (struct boot_state_init_entry **entry = _bs_init_begin; *entry; entry++)
		if ((*entry)->state == BS_OS_RESUME && (*entry)->when == BS_ON_ENTRY)
			(*entry)->bscb.callback((*entry)->bscb.arg);
}

static void __noreturn jump_to_os(void)
{
	run_resume_callbacks();
	dormouse_event(dormouse_now_ns(), "resume", "wake", "mark", "vector",
		       header.wake_vector);
	arch_bootstate_coreboot_exit();
	acpi_resume((void *)(uintptr_t)header.wake_vector);
}

/* Nothing that was asked before the power was lost is still being asked. */
static void clear_mailbox(void)
{
	struct dormouse_mailbox *mailbox =
		(void *)(uintptr_t)(geometry.cxl_base + DORMOUSE_MAILBOX_OFFSET);

	memset(mailbox, 0, sizeof(*mailbox));
	dormouse_flush(mailbox, sizeof(*mailbox));
}

static void wake(uint64_t entry_ns)
{
	struct dormouse_header *const copies = (void *)(uintptr_t)geometry.cxl_base;
	const uint64_t begin_ns = dormouse_now_ns();
	enum dormouse_reason reason;
	uint64_t detail;
	int newest;

	clear_mailbox();
	dormouse_event(begin_ns, "resume", "restore-check", "begin", NULL, 0);
	newest = dormouse_header_select(copies, &reason);
	if (newest < 0) {
		dormouse_event(dormouse_now_ns(), "resume", "restore-check", "end", "reason",
			       reason);
		cold_boot(copies, NULL, reason, 0);
		return;
	}
	memcpy(&header, &copies[newest], sizeof(header));
	header.phase[DORMOUSE_PHASE_FIRMWARE_INIT].begin_ns = 0;
	header.phase[DORMOUSE_PHASE_FIRMWARE_INIT].end_ns = entry_ns;

	reason = look_at_image(copies, begin_ns, &detail);
	if (reason == DORMOUSE_OK)
		jump_to_os();
	cold_boot(copies, &header, reason, detail);
}

static void dormouse_entry(void *unused)
{
	struct dormouse_device device;
	enum dormouse_reason reason;
	uint64_t entry_ns;

	dormouse_set_tsc_khz(dormouse_board_tsc_khz());
	entry_ns = dormouse_now_ns();
	dormouse_event(0, "resume", "firmware-init", "begin", NULL, 0);
	dormouse_event(entry_ns, "resume", "firmware-init", "end", NULL, 0);

	if (!dormouse_board_device(&device)) {
		/* SMM must still learn that no other geometry may be trusted. */
		dormouse_handover(NULL);
		printk(BIOS_NOTICE, "dormouse: no persistent CXL memory\n");
		return;
	}
	reason = dormouse_map_memory() ? dormouse_build_geometry(&device, &geometry)
				       : DORMOUSE_E_NOT_READY;
	if (reason == DORMOUSE_OK)
		reason = dormouse_handover(&geometry);
	else
		dormouse_handover(NULL);
	if (reason != DORMOUSE_OK) {
		/* An image may be there that other hardware could still use: not touched. */
		report_cold_boot(reason, 0);
		return;
	}
	wake(entry_ns);
}

BOOT_STATE_INIT_ENTRY(BS_PAYLOAD_LOAD, BS_ON_ENTRY, dormouse_entry, NULL);
