// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Names and sentences for every number that an image stores: one wording for
 * firmware's console, the kernel log, sysfs and the command line. Names are stable.
 */
#include "internal.h"

static const char *const state_names[DORMOUSE_STATE_COUNT] = {
	[DORMOUSE_STATE_EMPTY] = "empty",
	[DORMOUSE_STATE_PREPARED] = "prepared",
	[DORMOUSE_STATE_SAVING] = "saving",
	[DORMOUSE_STATE_SUSPENDED] = "suspended",
	[DORMOUSE_STATE_RESTORING] = "restoring",
	[DORMOUSE_STATE_CONSUMED] = "consumed",
};

static const char *const outcome_names[DORMOUSE_OUTCOME_COUNT] = {
	[DORMOUSE_OUTCOME_NONE] = "none",
	[DORMOUSE_OUTCOME_RESUMED] = "resumed",
	[DORMOUSE_OUTCOME_COLD_BOOT] = "cold-boot",
	[DORMOUSE_OUTCOME_REFUSED] = "refused",
};

static const char *const phase_names[DORMOUSE_PHASE_COUNT] = {
	[DORMOUSE_PHASE_PREPARE] = "prepare",
	[DORMOUSE_PHASE_SAVE_CHECK] = "save-check",
	[DORMOUSE_PHASE_SAVE_COPY] = "save-copy",
	[DORMOUSE_PHASE_FIRMWARE_INIT] = "firmware-init",
	[DORMOUSE_PHASE_RESTORE_CHECK] = "restore-check",
	[DORMOUSE_PHASE_RESTORE_COPY] = "restore-copy",
	[DORMOUSE_PHASE_USER_DIGEST] = "user-digest",
	[DORMOUSE_PHASE_USER_CHECK] = "user-check",
};

static const char *const persistence_names[DORMOUSE_PERSISTENCE_COUNT] = {
	[DORMOUSE_PERSISTENCE_UNKNOWN] = "unknown",
	[DORMOUSE_PERSISTENCE_DEVICE] = "device",
	[DORMOUSE_PERSISTENCE_FIRMWARE] = "firmware",
	[DORMOUSE_PERSISTENCE_ACCEPTED] = "accepted",
};

static const char *const user_check_names[DORMOUSE_USER_CHECK_COUNT] = {
	[DORMOUSE_USER_CHECK_NONE] = "none",
	[DORMOUSE_USER_CHECK_SAMPLE] = "sample",
	[DORMOUSE_USER_CHECK_ALL] = "all",
};

static const char *const kind_names[DORMOUSE_KIND_COUNT] = {
	[DORMOUSE_KIND_FIRMWARE] = "firmware",
	[DORMOUSE_KIND_SNAPSHOT] = "snapshot",
};

static const struct {
	const char *name;
	const char *text;
} reasons[DORMOUSE_REASON_COUNT] = {
	[DORMOUSE_OK] = { "ok", "nothing is wrong" },
	[DORMOUSE_E_NO_IMAGE] = { "no-image", "there is no sleep image on this device" },
	[DORMOUSE_E_MAGIC] = { "magic", "this is not a sleep image" },
	[DORMOUSE_E_VERSION] = { "version", "the image has a version that is not known here" },
	[DORMOUSE_E_HEADER_SIZE] = { "header-size", "the header has a wrong size" },
	[DORMOUSE_E_HEADER_DIGEST] = { "header-digest", "the header is torn or corrupted" },
	[DORMOUSE_E_FLAGS] = { "flags", "the image uses a feature that is not known here" },
	[DORMOUSE_E_STATE] = { "state", "the image is not in the state that this step needs" },
	[DORMOUSE_E_INCOMPLETE] = { "incomplete", "power was lost before the image was complete" },
	[DORMOUSE_E_CONSUMED] = { "consumed", "the image was resumed before" },
	[DORMOUSE_E_IMAGE_EXISTS] = { "image-exists", "a complete image is waiting to be resumed" },
	[DORMOUSE_E_MEMORY_MAP] = { "memory-map", "the firmware's memory map is another one" },
	[DORMOUSE_E_DRAM_SIZE] = { "dram-size", "the size of DRAM is another one" },
	[DORMOUSE_E_CXL_SIZE] = { "cxl-size",
		"the CXL window has another base, size or reserved part" },
	[DORMOUSE_E_DEVICE] = { "device", "the image was written on another CXL device" },
	[DORMOUSE_E_DIRTY_SHUTDOWN] = { "dirty-shutdown",
		"the CXL device lost writes since the image was made" },
	[DORMOUSE_E_LAYOUT] = { "layout", "a part of the image lies outside its place" },
	[DORMOUSE_E_BITMAP_DIGEST] = { "bitmap-digest", "a page bitmap is corrupted" },
	[DORMOUSE_E_OUTSIDE_RAM] = { "outside-ram",
		"a page lies outside the memory that the firmware gave to the system" },
	[DORMOUSE_E_NO_SPACE] = { "no-space",
		"the pages to save do not fit into free CXL memory" },
	[DORMOUSE_E_SAVED_DIGEST] = { "saved-digest", "a saved page is corrupted" },
	[DORMOUSE_E_WAKE_VECTOR] = { "wake-vector",
		"the wake vector does not point to a saved page below 1 MiB" },
	[DORMOUSE_E_ATTEMPTS] = { "attempts", "the restore was tried too often" },
	[DORMOUSE_E_COMMAND] = { "command", "the mailbox holds no command known here" },
	[DORMOUSE_E_NOT_READY] = { "not-ready",
		"the firmware has no memory map or no CXL window" },
	[DORMOUSE_E_NO_ANSWER] = { "no-answer", "the firmware did not answer" },
	[DORMOUSE_E_DISABLED] = { "disabled", "sleeping in CXL memory is switched off" },
	[DORMOUSE_E_SAVED_COUNT] = { "saved-count", "the numbers of pages disagree" },
	[DORMOUSE_E_VOLATILE] = { "volatile",
		"no source states that the CXL device keeps its contents without power" },
	[DORMOUSE_E_USER_DIGEST] = { "user-digest", "a program's page changed while asleep" },
	[DORMOUSE_E_KIND] = { "kind", "the image was made by the other way to sleep" },
	[DORMOUSE_E_KERNEL] = { "kernel", "another kernel was booted than the one that sleeps" },
	[DORMOUSE_E_NODE_IN_USE] = { "node-in-use",
		"Linux uses the memory in which the programs' pages lie" },
	[DORMOUSE_E_RESTORE] = { "restore", "the kernel did not take its snapshot back" },
	[DORMOUSE_E_NOT_SEALED] = { "not-sealed",
		"the image is not sealed, and this machine takes no other" },
	[DORMOUSE_E_KEY] = { "key", "the key that the image is sealed with is not to be had" },
	[DORMOUSE_E_WRONG_KEY] = { "wrong-key", "the image is sealed with another key" },
	[DORMOUSE_E_SEAL] = { "seal", "the image was changed after it was sealed" },
	[DORMOUSE_E_OLDER] = { "older", "the image is not the last one of this machine" },
};

static const char unknown[] = "unknown";

const char *dormouse_state_name(dm_u32 state)
{
	return state < DORMOUSE_STATE_COUNT ? state_names[state] : unknown;
}

const char *dormouse_outcome_name(dm_u32 outcome)
{
	return outcome < DORMOUSE_OUTCOME_COUNT ? outcome_names[outcome] : unknown;
}

const char *dormouse_reason_name(dm_u32 reason)
{
	return reason < DORMOUSE_REASON_COUNT ? reasons[reason].name : unknown;
}

const char *dormouse_reason_text(dm_u32 reason)
{
	return reason < DORMOUSE_REASON_COUNT ? reasons[reason].text
					      : "a reason that is not known here";
}

const char *dormouse_phase_name(dm_u32 phase)
{
	return phase < DORMOUSE_PHASE_COUNT ? phase_names[phase] : unknown;
}

const char *dormouse_persistence_name(dm_u32 persistence)
{
	return persistence < DORMOUSE_PERSISTENCE_COUNT ? persistence_names[persistence] : unknown;
}

const char *dormouse_user_check_name(dm_u32 user_check)
{
	return user_check < DORMOUSE_USER_CHECK_COUNT ? user_check_names[user_check] : unknown;
}

const char *dormouse_kind_name(dm_u32 kind)
{
	return kind < DORMOUSE_KIND_COUNT ? kind_names[kind] : unknown;
}
