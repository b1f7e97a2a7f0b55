// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated machine's other way: what user space does of a sleep by the kernel's snapshot, in the
 * order of machine/src/snapshot/save.rs (prepare, save) and wake.rs (check, give_back, forget), which
 * need a kernel to run. The window's first block is the head, its second one the node.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dormouse_image.h"
#include "hooks.h"

#define PAGE_BYTES DORMOUSE_PAGE_BYTES
/* Memory as this kernel counts it, and what the node adds while it is online. */
#define PRESENT_PAGES 1000
#define NODE_PRESENT_PAGES 500

static struct {
	struct dormouse_geometry geometry;
	const uint64_t *dram;		/* the marks that the test wants */
	const uint64_t *node;
	uint32_t user_check;
} request;

static struct dormouse_header own;

/* What /dev/snapshot holds until the restore: DRAM, so it goes with the power. */
static uint8_t *given;
static uint64_t given_pages;

void sim_snapshot_board(const struct dormouse_geometry *geometry)
{
	request.geometry = *geometry;
}

void sim_snapshot_request(const uint64_t *dram, const uint64_t *node, uint32_t user_check)
{
	request.dram = dram;
	request.node = node;
	request.user_check = user_check;
}

static uint8_t *head(void)
{
	return (uint8_t *)(uintptr_t)request.geometry.cxl_base;
}

static const uint8_t *node(void)
{
	return head() + request.geometry.cxl_bytes;
}

static struct dormouse_header *copies(void)
{
	return (struct dormouse_header *)head();
}

static struct dormouse_snapshot_facts facts(void)
{
	struct dormouse_snapshot_facts facts = { .geometry = request.geometry };

	facts.snapshot.kernel_digest = 1;
	facts.snapshot.firmware_map_digest = 2;
	facts.snapshot.node_base = (uintptr_t)node();
	facts.snapshot.node_bytes = request.geometry.cxl_bytes;
	facts.snapshot.present_pages = PRESENT_PAGES;
	return facts;
}

static void say_cold_boot(enum dormouse_reason reason)
{
	char line[128];

	snprintf(line, sizeof(line), "dormouse: cold boot: %s: ", dormouse_reason_name(reason));
	sim_line(line);
}

static int load(void)
{
	enum dormouse_reason why;
	int newest = dormouse_header_select(copies(), &why);

	if (newest >= 0)
		own = copies()[newest];
	return newest >= 0 ? DORMOUSE_OK : (int)why;
}

/* Head::store: past the caches, or written back. */
static void store(uint64_t offset, const void *data, uint64_t bytes, struct dormouse_xxh64 *hash)
{
	dormouse_copy_digest(dormouse_copy_best(1), head() + offset, data, bytes, hash);
}

static uint64_t store_words(uint64_t offset, const uint64_t *words, uint64_t bytes)
{
	struct dormouse_xxh64 hash;

	dormouse_xxh64_init(&hash);
	store(offset, words, bytes, &hash);
	return dormouse_xxh64(words, bytes);
}

static uint64_t *digests(void)
{
	const uint64_t groups = dormouse_groups(own.snapshot.node_bytes);
	uint64_t *table = calloc(groups, sizeof(*table));
	uint64_t group, pages;

	for (group = 0; group < groups && own.user_check != DORMOUSE_USER_CHECK_NONE; group++) {
		pages = dormouse_user_pages(own.user_check, request.node[group]);
		if (!pages)
			continue;
		table[group] = dormouse_group_digest(node() + group * DORMOUSE_GROUP_BYTES, pages);
		own.user_groups++;
	}
	return table;
}

static void copy_snapshot(void)
{
	struct dormouse_xxh64 hash;
	uint64_t page, done = 0;

	dormouse_xxh64_init(&hash);
	for (page = 0; page < own.dram_pages; page++) {
		if (!(request.dram[page / 64] >> page % 64 & 1))
			continue;
		store(own.data_offset + done * PAGE_BYTES, (void *)(uintptr_t)(page * PAGE_BYTES),
		      PAGE_BYTES, &hash);
		done++;
	}
	own.saved_pages = done;
	own.saved_digest = dormouse_xxh64_final(&hash);
}

void sim_snapshot_sleep(void)
{
	const struct dormouse_snapshot_facts machine = facts();
	uint64_t *table;

	if (load() || own.state == DORMOUSE_STATE_SUSPENDED ||
	    own.state == DORMOUSE_STATE_RESTORING)
		return;
	if (dormouse_snapshot_init(&own, &machine, &own) != DORMOUSE_OK)
		return;
	own.snapshot.present_pages = PRESENT_PAGES + NODE_PRESENT_PAGES;
	own.snapshot.node_present_pages = NODE_PRESENT_PAGES;
	own.persistence = DORMOUSE_PERSISTENCE_DEVICE;
	own.user_check = request.user_check;
	own.state = DORMOUSE_STATE_PREPARED;
	dormouse_header_commit(copies(), &own);

	own.request_pages = dormouse_bitmap_count(request.dram, 0, own.dram_pages);
	own.state = DORMOUSE_STATE_SAVING;
	dormouse_header_commit(copies(), &own);
	table = digests();
	own.cxl_bitmap_digest = store_words(own.cxl_bitmap_offset, request.node,
					    own.cxl_bitmap_bytes);
	own.user_table_digest = store_words(own.user_table_offset, table, own.user_table_bytes);
	free(table);
	copy_snapshot();
	own.sleep_count++;
	/* fsync of /dev/dormouse_range: the caches of all processors. */
	sim_write_back_all();
	own.state = DORMOUSE_STATE_SUSPENDED;
	dormouse_header_commit(copies(), &own);
	sim_stop(SIM_OFF);
}

static void forget(enum dormouse_reason reason, uint64_t detail)
{
	const struct dormouse_snapshot_facts machine = facts();

	dormouse_snapshot_init(&own, &machine, &own);
	own.state = DORMOUSE_STATE_EMPTY;
	own.last_outcome = DORMOUSE_OUTCOME_COLD_BOOT;
	own.last_reason = reason;
	own.last_detail = detail;
	dormouse_header_commit(copies(), &own);
	say_cold_boot(reason);
}

static enum dormouse_reason give_back(void)
{
	struct dormouse_xxh64 hash;

	given = realloc(given, own.saved_pages * PAGE_BYTES);
	given_pages = own.saved_pages;
	memcpy(given, head() + own.data_offset, given_pages * PAGE_BYTES);
	dormouse_xxh64_init(&hash);
	dormouse_xxh64_update(&hash, given, given_pages * PAGE_BYTES);
	return dormouse_xxh64_final(&hash) == own.saved_digest ? DORMOUSE_OK :
								  DORMOUSE_E_SAVED_DIGEST;
}

/* The kernel's part: which page goes where is in the snapshot, here in the test's marks. */
static void restore(void)
{
	uint64_t page, done = 0;

	for (page = 0; page < own.dram_pages && done < given_pages; page++)
		if (request.dram[page / 64] >> page % 64 & 1)
			memcpy((void *)(uintptr_t)(page * PAGE_BYTES),
			       given + done++ * PAGE_BYTES, PAGE_BYTES);
	sim_stop(SIM_RESUMED);
}

/* dormouse wake; a head that is none is set up, as its owner does it then. */
void sim_snapshot_power_on(void)
{
	const struct dormouse_snapshot_facts machine = facts();
	const uint32_t image = 1U << DORMOUSE_STATE_SUSPENDED | 1U << DORMOUSE_STATE_RESTORING;
	enum dormouse_reason reason = load();
	uint64_t groups, differs, detail = 0;

	if (reason != DORMOUSE_OK) {
		memset(&own, 0, sizeof(own));
		forget(reason, 0);
		return;
	}
	if (own.state == DORMOUSE_STATE_EMPTY || own.state == DORMOUSE_STATE_CONSUMED) {
		say_cold_boot(DORMOUSE_E_NO_IMAGE);
		return;
	}
	reason = dormouse_snapshot_check(&own, &machine, head(), image, &detail);
	if (reason != DORMOUSE_OK) {
		forget(reason, detail);
		return;
	}
	own.restore_attempts++;
	own.state = DORMOUSE_STATE_RESTORING;
	dormouse_header_commit(copies(), &own);
	reason = give_back();
	if (reason != DORMOUSE_OK) {
		forget(reason, 0);
		return;
	}
	groups = dormouse_groups(own.snapshot.node_bytes);
	differs = dormouse_snapshot_compare(&own, head(), node(), 0, groups);
	if (own.user_groups && differs < groups) {
		forget(DORMOUSE_E_USER_DIGEST, differs);
		return;
	}
	own.restored_pages = own.saved_pages;
	own.resume_count++;
	own.last_outcome = DORMOUSE_OUTCOME_RESUMED;
	own.last_reason = DORMOUSE_OK;
	own.state = DORMOUSE_STATE_CONSUMED;
	dormouse_header_commit(copies(), &own);
	restore();
}
