/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SMM: what may be trusted, and the answer to a request from the OS.
 *
 * Nothing that lies in memory that the OS can write is trusted: the geometry
 * comes from ramstage before any OS runs, headers are copied into SMRAM before
 * they are looked at, and each page is checked again when it is copied.
 */

#include <acpi/acpi.h>
#include <cpu/x86/save_state.h>
#include <cpu/x86/smm.h>
#include <string.h>
#include <types.h>

#include "dormouse.h"

static struct dormouse_geometry geometry;
static uint64_t facs_address;
static bool locked;	/* ramstage has set the device; later requests are ignored */
static bool ready;	/* and what it said makes sense */

/* In SMRAM, not on the small SMM stack. */
static struct dormouse_header snapshot[DORMOUSE_HEADER_COPIES];

static bool outside_smram(uint64_t base, uint64_t bytes)
{
	struct region region;

	if (region_create_untrusted(&region, base, bytes) != CB_SUCCESS)
		return false;
	return !smm_region_overlaps_handler(&region);
}

static enum dormouse_reason check_handover(void)
{
	const uint64_t map_end = (uint64_t)CONFIG_CPU_PT_ROM_MAP_GB * GiB;
	enum dormouse_reason reason = dormouse_geometry_check(&geometry);

	if (reason != DORMOUSE_OK)
		return reason;
	if (geometry.cxl_bytes > map_end || geometry.cxl_base > map_end - geometry.cxl_bytes)
		return DORMOUSE_E_CXL_SIZE;
	if (!outside_smram(geometry.cxl_base, geometry.cxl_bytes))
		return DORMOUSE_E_CXL_SIZE;
	for (uint32_t i = 0; i < geometry.range_count; i++) {
		const struct dormouse_range *range = &geometry.range[i];

		if (!outside_smram(range->base, range->bytes) ||
		    range->base + range->bytes > map_end)
			return DORMOUSE_E_MEMORY_MAP;
	}
	if (!facs_address || !outside_smram(facs_address, sizeof(acpi_facs_t)))
		return DORMOUSE_E_NOT_READY;
	return DORMOUSE_OK;
}

/* The first SMI of our command comes from ramstage, with a pointer in RBX. */
static void accept_handover(void)
{
	const int cpu = get_apmc_node(CONFIG_DORMOUSE_SMI_COMMAND);
	struct dormouse_handover *handover = NULL;

	locked = true;
	if (cpu < 0 || get_save_state_reg(RBX, cpu, &handover, sizeof(handover)))
		return;
	if (!handover || smm_points_to_smram(handover, sizeof(*handover)) ||
	    handover->magic != DORMOUSE_HANDOVER_MAGIC)
		return;

	memcpy(&geometry, &handover->geometry, sizeof(geometry));
	facs_address = handover->facs;
	dormouse_set_tsc_khz(handover->tsc_khz);
	dormouse_fault_select(handover->fault);
	handover->status = check_handover();
	ready = handover->status == DORMOUSE_OK;
}

/* The newest header, copied to where the OS cannot change it any more. */
static enum dormouse_reason take_header(struct dormouse_header **header)
{
	enum dormouse_reason reason;
	int newest;

	memcpy(snapshot, (void *)(uintptr_t)geometry.cxl_base, sizeof(snapshot));
	newest = dormouse_header_select(snapshot, &reason);
	if (newest < 0)
		return reason;
	*header = &snapshot[newest];
	return DORMOUSE_OK;
}

static enum dormouse_reason check_request(const struct dormouse_header *header,
					  struct dormouse_mailbox *answer)
{
	const void *window = (const void *)(uintptr_t)geometry.cxl_base;
	const enum dormouse_reason reason =
		dormouse_image_check(header, &geometry, window, 1 << DORMOUSE_STATE_PREPARED,
				     &answer->detail);

	if (reason == DORMOUSE_OK || reason == DORMOUSE_E_NO_SPACE)
		dormouse_image_space(header, &geometry, window, &answer->needed_bytes,
				     &answer->available_bytes);
	return reason;
}

/* Only an OS that is about to sleep has left a wake vector. */
static enum dormouse_reason take_wake_vector(struct dormouse_header *header,
					     struct dormouse_mailbox *answer)
{
	const acpi_facs_t *facs = (const void *)(uintptr_t)facs_address;
	const uint64_t bitmap = geometry.cxl_base + header->dram_bitmap_offset;

	header->wake_vector = facs->firmware_waking_vector;
	answer->detail = header->wake_vector;
	return dormouse_wake_vector_check(header->wake_vector, &geometry,
					  (const void *)(uintptr_t)bitmap);
}

static enum dormouse_reason sleep(struct dormouse_mailbox *answer)
{
	struct dormouse_interval check = { .begin_ns = dormouse_now_ns() };
	struct dormouse_header *header = NULL;
	enum dormouse_reason reason;

	dormouse_event(check.begin_ns, "suspend", "save-check", "begin", NULL, 0);
	reason = take_header(&header);
	if (reason == DORMOUSE_OK)
		reason = check_request(header, answer);
	if (reason == DORMOUSE_OK)
		reason = take_wake_vector(header, answer);
	check.end_ns = dormouse_now_ns();
	dormouse_event(check.end_ns, "suspend", "save-check", "end", "reason", reason);
	if (reason != DORMOUSE_OK)
		return reason;

	header->phase[DORMOUSE_PHASE_SAVE_CHECK] = check;
	dormouse_fault_point("prepared");
	return dormouse_save(header, (void *)(uintptr_t)geometry.cxl_base, &geometry,
			     &answer->detail);
}

static enum dormouse_reason request(uint32_t command, struct dormouse_mailbox *answer)
{
	struct dormouse_header *header = NULL;
	enum dormouse_reason reason;

	switch (command) {
	case DORMOUSE_CMD_SLEEP:
		return sleep(answer);
	case DORMOUSE_CMD_CHECK:
		reason = take_header(&header);
		return reason == DORMOUSE_OK ? check_request(header, answer) : reason;
	default:
		return DORMOUSE_E_COMMAND;
	}
}

void dormouse_smi(void)
{
	struct dormouse_mailbox *mailbox;
	struct dormouse_mailbox answer = { 0 };

	if (!locked) {
		accept_handover();
		return;
	}
	/* Without a geometry there is not even a mailbox: the OS sees no answer. */
	if (!ready)
		return;

	mailbox = (void *)(uintptr_t)(geometry.cxl_base + DORMOUSE_MAILBOX_OFFSET);
	/* Nothing was asked: on a real board this is an ordinary S3. */
	if (mailbox->status != DORMOUSE_STATUS_PENDING)
		return;
	if (mailbox->magic != DORMOUSE_MAILBOX_MAGIC)
		answer.status = DORMOUSE_E_COMMAND;
	else
		answer.status = request(mailbox->command, &answer);

	mailbox->detail = answer.detail;
	mailbox->needed_bytes = answer.needed_bytes;
	mailbox->available_bytes = answer.available_bytes;
	mailbox->status = answer.status;
	dormouse_flush(mailbox, sizeof(*mailbox));
}
