/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ramstage: user pages stay where they are on the device, so no code reads them on the
 * way up. Where the image has digests of them they are compared here, before anything
 * of the OS runs: a page that changed is a cold boot like any other damage.
 *
 * All of them are as much as the programs use, so all CPUs take part, where the board
 * keeps them waiting for work (PARALLEL_MP_AP_WORK).
 */

#include <cpu/x86/cr.h>
#include <cpu/x86/mp.h>
#include <timer.h>
#include <types.h>

#include "dormouse.h"

/* What a CPU takes at a time: 4 MiB of window. */
#define GROUPS_AT_A_TIME	16
#define START_TIMEOUT_US	(5 * USECS_PER_SEC)
/* For the last piece that another CPU has taken; seconds even in an emulator. */
#define END_TIMEOUT_US		(60 * USECS_PER_SEC)

static struct {
	const struct dormouse_header *header;
	const void *window;
	uint64_t groups;
	uint64_t next;
	uint64_t wrong;		/* the first group that differs, or `groups` */
	uint32_t busy;		/* CPUs that are in compare_pieces() */
	CRx_TYPE tables;
} job;

static void note_wrong(uint64_t group)
{
	uint64_t known = __atomic_load_n(&job.wrong, __ATOMIC_SEQ_CST);

	while (group < known &&
	       !__atomic_compare_exchange_n(&job.wrong, &known, group, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST))
		;
}

static void compare_pieces(void *unused)
{
	/* Other CPUs still have the tables that they came up with. */
	const CRx_TYPE own_tables = read_cr3();

	__atomic_fetch_add(&job.busy, 1, __ATOMIC_SEQ_CST);
	write_cr3(job.tables);
	for (;;) {
		const uint64_t first =
			__atomic_fetch_add(&job.next, GROUPS_AT_A_TIME, __ATOMIC_SEQ_CST);
		const uint64_t end = MIN(first + GROUPS_AT_A_TIME, job.groups);
		uint64_t group;

		if (first >= job.groups)
			break;
		group = dormouse_user_compare(job.header, job.window, first, end);
		if (group != end)
			note_wrong(group);
	}
	write_cr3(own_tables);
	__atomic_fetch_sub(&job.busy, 1, __ATOMIC_SEQ_CST);
}

/* False: a CPU took a piece and never came back. */
static bool compare_everywhere(void)
{
	struct stopwatch timeout;

	/* Whoever does not take part leaves more to the others. */
	if (CONFIG(PARALLEL_MP_AP_WORK))
		mp_run_on_all_aps(compare_pieces, NULL, START_TIMEOUT_US, true);
	compare_pieces(NULL);
	stopwatch_init_usecs_expire(&timeout, END_TIMEOUT_US);
	while (__atomic_load_n(&job.busy, __ATOMIC_SEQ_CST)) {
		if (stopwatch_expired(&timeout))
			return false;
		asm volatile("pause");
	}
	return true;
}

enum dormouse_reason dormouse_check_user_pages(const struct dormouse_header *header,
					       const struct dormouse_geometry *geometry,
					       uint64_t *detail)
{
	job.header = header;
	job.window = (const void *)(uintptr_t)geometry->cxl_base;
	job.groups = dormouse_groups(geometry->cxl_bytes);
	job.next = 0;
	job.wrong = job.groups;
	job.tables = read_cr3();
	if (header->user_check == DORMOUSE_USER_CHECK_ALL) {
		if (!compare_everywhere())
			return DORMOUSE_E_NOT_READY;
	} else {
		compare_pieces(NULL);
	}
	*detail = job.wrong;
	return job.wrong == job.groups ? DORMOUSE_OK : DORMOUSE_E_USER_DIGEST;
}
