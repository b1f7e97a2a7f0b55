// SPDX-License-Identifier: GPL-2.0-only
/*
 * Offers a job to the small core and waits for its answer. The data cache is off from before the offer until after the
 * answer: with it on, a line that is brought in by speculation, or written while this core waits, would hide or
 * overwrite what the small core writes, and maintenance by set and way cannot prevent that. Meanwhile no function is
 * called that accesses memory exclusively: the caches' monitor is off, too. No silicon has run it.
 */
#include <linux/kernel.h>
#include <linux/timekeeping.h>
#include <asm/barrier.h>
#include <asm/tlbflush.h>

#include "rendezvous.h"

static void wait_a_little(void)
{
	/* Without the event stream nothing would end WFE. */
	if (IS_ENABLED(CONFIG_ARM_ARCH_TIMER_EVTSTREAM))
		wfe();
	else
		cpu_relax();
}

/*
 * Waits for the answer; false: the job was not taken within a second, and is withdrawn. The small core writes that it
 * takes a job before it reads once more whether the offer stands, and this core withdraws before it reads whether the
 * job is taken: so they cannot both run it (include/offer.h).
 */
static bool wait_for_answer(struct offload_handover __iomem *shared, u32 before, u32 number)
{
	u64 until = ktime_get_mono_fast_ns() + NSEC_PER_SEC;
	bool withdrawn = false;

	while (readl(&shared->answer) != number) {
		wait_a_little();
		if (readl(&shared->taken) == number)
			continue;
		if (withdrawn)
			return false;
		if (ktime_get_mono_fast_ns() < until)
			continue;
		writel(before, &shared->offer);
		/* Before it is read again whether it is taken. */
		mb();
		withdrawn = true;
	}
	return true;
}

bool run_on_small_core(void)
{
	struct offload_handover __iomem *shared = rendezvous.shared;
	u32 before = readl(&shared->answer), number = before + 1;
	bool answered;

	memcpy_toio(&shared->job, &rendezvous.job, sizeof(rendezvous.job));
	/* Before the caches are cleaned: a mailbox's driver writes memory of the kernel. */
	rendezvous.ring();
	caches_off(rendezvous.flush_dcache);
	/* Behind the job's words. */
	wmb();
	writel(number, &shared->offer);
	answered = wait_for_answer(shared, before, number);
	caches_on(rendezvous.flush_dcache);
	local_flush_tlb_all();
	return answered;
}
