// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hands the phases of suspend and resume of devices to the small core of an STM32MP15 or an i.MX7D, whose remoteproc
 * runs dormouse's firmware (include/handover.h), and goes on from what that leaves. No silicon has run it.
 *
 * A kprobe at each phase's function redirects its call to switch.S. Registers and memory are the small core's then:
 * other CPUs are offline, interrupts masked, the data cache off and empty (rendezvous.c).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/kprobes.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/of_platform.h>
#include <linux/platform_device.h>
#include <linux/remoteproc.h>
#include <linux/suspend.h>

#include "rendezvous.h"

static unsigned int limit_s = 30;
module_param(limit_s, uint, 0600);
MODULE_PARM_DESC(limit_s, "seconds that the small core may execute of one phase");

static const char *const chips[] = { "st,stm32mp1-m4", "fsl,imx7d-cm4" };
static const char *const functions[] = {
	"dpm_prepare", "dpm_suspend", "dpm_suspend_late", "dpm_suspend_noirq",
	"dpm_resume_noirq", "dpm_resume_early", "dpm_resume", "dpm_complete",
};
static struct kprobe probes[ARRAY_SIZE(functions)];
static struct kprobe *called;	/* the phase that is being handed over */
static bool alone;		/* other CPUs are offline */
static struct cpumask taken_offline;

static struct platform_device *parent;
static struct rproc *rproc;
struct rendezvous rendezvous;

/* --- the job --- */

static void fill_layout(struct offload_layout *layout, u32 text, u32 text_end)
{
	const struct offload_handover __iomem *shared = rendezvous.shared;
	u32 most = min_t(u32, readl(&shared->memory_max), (u32)high_memory - PAGE_OFFSET);

	layout->guest_base = PAGE_OFFSET;
	layout->size = rounddown_pow_of_two(most);
	layout->host_base = readl(&shared->memory);
	layout->text_start = text & ~3;
	layout->text_end = ALIGN(text_end, 4);
	layout->thumb = IS_ENABLED(CONFIG_THUMB2_KERNEL);
	layout->table_base = readl(&shared->table);
	layout->state = readl(&shared->state);
	/* There is no target table. */
	layout->options = OPTIONS_ALL & ~OPTION_TABLE;
	layout->scratch = 11;
}

/* What does not change from phase to phase; text and page table are the kernel's. */
static void fill_job(u32 text, u32 text_end, u32 page_table, u32 schedule)
{
	const struct offload_handover __iomem *shared = rendezvous.shared;
	struct target_job *job = &rendezvous.job;
	u32 mhz = readl(&shared->systick_mhz);

	job->magic = TARGET_MAGIC;
	job->bytes = sizeof(*job);
	job->runs = 1;
	job->keep = 1;
	job->cache_bytes = readl(&shared->cache_bytes);
	/* Ten milliseconds. */
	job->tick = mhz * 10000;
	job->budget = limit_s * 100;
	fill_layout(&job->job.layout, text, text_end);
	job->job.physical_base = PHYS_OFFSET;
	job->job.page_table = page_table;
	job->job.native[0] = (struct offload_native){ schedule & ~1, NATIVE_FALLBACK };
	job->job.natives = 1;
	/* All of the bus; the firmware judges each access. */
	job->job.device[0].physical = readl(&shared->devices);
	job->job.device[0].size = readl(&shared->devices_end) - readl(&shared->devices);
	job->job.device[0].host = readl(&shared->devices);
	job->job.devices = 1;
}

static void ring(void)
{
	/* A phase is called with interrupts on, and that of the i.MX7D sleeps until the small core has read the mailbox. */
	local_irq_enable();
	rproc->ops->kick(rproc, 1);
	local_irq_disable();
}

/* --- the call of a phase --- */

static int on_call(struct kprobe *probe, struct pt_regs *regs)
{
	bool again = rendezvous.goes_alone && called == probe;

	rendezvous.goes_alone = false;
	/* A stack outside linear memory, as with VMAP_STACK, the small core does not reach. */
	if (again || !alone || !virt_addr_valid((void *)regs->ARM_sp) || (regs->ARM_sp & 7))
		return 0;
	called = probe;
	rendezvous.entry = (u32)probe->addr & ~1;
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		rendezvous.entry |= 1;
	rendezvous.name = probe->symbol_name;
	regs->ARM_pc = (u32)handover_entry & ~1;
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		regs->ARM_cpsr |= PSR_T_BIT;
	return 1;
}

/* Caches of other CPUs are not seen by the small core. */
static int on_suspend(struct notifier_block *block, unsigned long action, void *data)
{
	unsigned int cpu;

	switch (action) {
	case PM_SUSPEND_PREPARE:
		cpumask_clear(&taken_offline);
		alone = true;
		for_each_online_cpu(cpu) {
			if (!cpu)
				continue;
			if (remove_cpu(cpu))
				alone = false;
			else
				cpumask_set_cpu(cpu, &taken_offline);
		}
		if (!alone)
			pr_warn("a CPU does not go offline; this suspend is the big core's alone\n");
		break;
	case PM_POST_SUSPEND:
		alone = false;
		break;
	}
	return NOTIFY_DONE;
}

static int on_resumed(struct notifier_block *block, unsigned long action, void *data)
{
	unsigned int cpu;

	if (action == PM_POST_SUSPEND) {
		for_each_cpu(cpu, &taken_offline)
			add_cpu(cpu);
		cpumask_clear(&taken_offline);
	}
	return NOTIFY_DONE;
}

/* Before the kernel's own notifier forbids that CPUs go offline, and behind where it allows it again. */
static struct notifier_block suspend_block = { .notifier_call = on_suspend, .priority = 1 };
static struct notifier_block resumed_block = { .notifier_call = on_resumed, .priority = -1 };

/* --- begin and end --- */

static int find_processor(void)
{
	struct device_node *node = NULL;

	for (unsigned int i = 0; !node && i < ARRAY_SIZE(chips); i++)
		node = of_find_compatible_node(NULL, NULL, chips[i]);
	if (!node) {
		pr_err("no small core of an STM32MP15 or an i.MX7D in the device tree\n");
		return -ENODEV;
	}
	parent = of_find_device_by_node(node);
	of_node_put(node);
	rproc = parent ? platform_get_drvdata(parent) : NULL;
	if (!rproc || rproc->state != RPROC_RUNNING || !rproc->table_ptr || !rproc->ops->kick) {
		pr_err("the small core does not run: name dormouse's firmware in /sys/class/remoteproc/remoteproc0/firmware and write start into state\n");
		return -ENODEV;
	}
	return 0;
}

/* Where the firmware says that the hand-over is. */
static int find_shared(void)
{
	struct offload_handover __iomem *shared = NULL;
	const struct resource_table *table = rproc->table_ptr;

	for (u32 i = 0; i < table->num; i++) {
		const struct handover_resource *entry = (void *)table + table->offset[i];

		if (table->offset[i] + sizeof(*entry) > rproc->table_sz || entry->type != HANDOVER_RESOURCE ||
		    entry->magic != HANDOVER_MAGIC || entry->bytes != sizeof(*shared))
			continue;
		shared = (void __iomem *)rproc_da_to_va(rproc, entry->address, entry->bytes, NULL);
		break;
	}
	if (!shared || readl(&shared->magic) != HANDOVER_MAGIC || readl(&shared->bytes) != sizeof(*shared)) {
		pr_err("the small core's firmware is not dormouse's, or of another version\n");
		return -EPROTO;
	}
	if (readl(&shared->memory) != PHYS_OFFSET) {
		pr_err("memory begins at %pa, not at %#x as the firmware has it\n", &(phys_addr_t){ PHYS_OFFSET },
		       readl(&shared->memory));
		return -EINVAL;
	}
	rendezvous.shared = shared;
	return 0;
}

/* kallsyms_lookup_name() is not exported; a kprobe knows where it is. */
static int find_kernel(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *name);
	u32 text, text_end, table, schedule_at, frequency;
	int error = register_kprobe(&probe);

	if (error)
		return error;
	lookup = (void *)probe.addr;
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		lookup = (void *)((u32)lookup | 1);
	unregister_kprobe(&probe);
	text = lookup("_stext");
	text_end = lookup("_etext");
	table = lookup("swapper_pg_dir");
	schedule_at = lookup("schedule");
	rendezvous.flush_dcache = (void *)lookup("v7_flush_dcache_all");
	if (!text || !text_end || !table || !schedule_at || !rendezvous.flush_dcache) {
		pr_err("the kernel lacks a symbol: it must be of ARMv7 with CONFIG_KALLSYMS_ALL\n");
		return -ENOENT;
	}
	/* Of symbols it gives bit 0 as the table of symbols has it. */
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		rendezvous.flush_dcache = (void *)((u32)rendezvous.flush_dcache | 1);
	rendezvous.ring = ring;
	fill_job(text, text_end, virt_to_phys((void *)table), schedule_at);
	asm volatile("mrc p15, 0, %0, c14, c0, 0" : "=r" (frequency));
	writel(frequency / 1000, &rendezvous.shared->timer_khz);
	return 0;
}

static int __init handover_init(void)
{
	int error, count;

	/* Long descriptors, and stacks that no linear address reaches, are not the executor's. */
	if (IS_ENABLED(CONFIG_ARM_LPAE) || IS_ENABLED(CONFIG_VMAP_STACK)) {
		pr_err("the kernel must be without CONFIG_ARM_LPAE and CONFIG_VMAP_STACK\n");
		return -EOPNOTSUPP;
	}
	error = find_processor();
	if (!error)
		error = find_shared();
	if (!error)
		error = find_kernel();
	if (!error)
		error = register_pm_notifier(&suspend_block);
	if (error)
		goto no_notifier;
	error = register_pm_notifier(&resumed_block);
	if (error)
		goto one_notifier;
	for (count = 0; count < ARRAY_SIZE(functions); count++) {
		probes[count].symbol_name = functions[count];
		probes[count].pre_handler = on_call;
		error = register_kprobe(&probes[count]);
		if (error) {
			pr_err("%s cannot be probed: %d\n", functions[count], error);
			goto no_probe;
		}
	}
	pr_info("suspend and resume of devices are handed over to %s\n", dev_name(&rproc->dev));
	return 0;

no_probe:
	while (count--)
		unregister_kprobe(&probes[count]);
	unregister_pm_notifier(&resumed_block);
one_notifier:
	unregister_pm_notifier(&suspend_block);
no_notifier:
	if (parent)
		put_device(&parent->dev);
	return error;
}

static void __exit handover_exit(void)
{
	for (int i = 0; i < ARRAY_SIZE(functions); i++)
		unregister_kprobe(&probes[i]);
	unregister_pm_notifier(&resumed_block);
	unregister_pm_notifier(&suspend_block);
	put_device(&parent->dev);
}

module_init(handover_init);
module_exit(handover_exit);
MODULE_DESCRIPTION("Hands suspend and resume of devices to a small core");
MODULE_LICENSE("GPL");
