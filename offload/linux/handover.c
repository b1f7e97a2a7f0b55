// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hands the phases of suspend and resume of devices to the small core of an STM32MP15 or an i.MX7D, whose remoteproc
 * runs dormouse's firmware (include/handover.h), and goes on from what that leaves. No silicon has run it.
 *
 * A kprobe at each phase's function redirects its call to switch.S. Registers and memory are the small core's then:
 * other CPUs are offline, interrupts masked, caches clean. Where the small core cannot go on, the big core does, from
 * the same instruction; if it does not take the job, the big core runs the phase itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/kprobes.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/of_platform.h>
#include <linux/platform_device.h>
#include <linux/remoteproc.h>
#include <linux/sched/task_stack.h>
#include <linux/suspend.h>
#include <linux/timekeeping.h>
#include <asm/cacheflush.h>
#include <asm/tlbflush.h>

#include "handover.h"
#include "offload.h"

/* What switch.S pushes, and what it goes on with. */
struct handover_frame {
	u32 registers[13];
	u32 link;
};

struct handover_context {
	u32 registers[16];	/* the last is PC, which switch.S takes from the stack */
};

enum { LINK = 14, STACK = 13, COUNTER = 15, GREATER = 0xf0000 };

void handover_entry(void);
struct handover_context *handover_call(struct handover_frame *frame, u32 status);

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
static struct kprobe *own;	/* the phase that the big core runs itself */
static bool alone;		/* other CPUs are offline */
static struct cpumask taken_offline;

static struct platform_device *parent;
static struct rproc *rproc;
static struct offload_handover __iomem *shared;
static struct target_job job;
static struct handover_context context;
/* v7_flush_kern_cache_all(): cleans and invalidates every cache of this core; it is not exported. */
static void (*flush_all)(void);

/* --- the job --- */

static void fill_layout(struct offload_layout *layout, u32 text, u32 text_end)
{
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
	u32 mhz = readl(&shared->systick_mhz);

	job.magic = TARGET_MAGIC;
	job.bytes = sizeof(job);
	job.runs = 1;
	job.keep = 1;
	job.cache_bytes = readl(&shared->cache_bytes);
	/* Ten milliseconds. */
	job.tick = mhz * 10000;
	job.budget = limit_s * 100;
	fill_layout(&job.job.layout, text, text_end);
	job.job.physical_base = PHYS_OFFSET;
	job.job.page_table = page_table;
	job.job.native[0] = (struct offload_native){ schedule & ~1, NATIVE_FALLBACK };
	job.job.natives = 1;
	/* All of the bus; the firmware judges each access. */
	job.job.device[0].physical = readl(&shared->devices);
	job.job.device[0].size = readl(&shared->devices_end) - readl(&shared->devices);
	job.job.device[0].host = readl(&shared->devices);
	job.job.devices = 1;
}

static void fill_call(const struct handover_frame *frame, u32 status)
{
	struct offload_job *call = &job.job;
	u32 sp = (u32)(frame + 1);

	call->entry = (u32)called->addr & ~1;
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		call->entry |= 1;
	memcpy(call->registers, frame->registers, sizeof(call->registers));
	/* Where the function returns to, the big core goes on. */
	call->link = frame->link;
	call->control = status & (PSR_A_BIT | PSR_I_BIT | PSR_F_BIT | MODE_MASK);
	asm volatile("mrc p15, 0, %0, c13, c0, 2" : "=r" (call->thread[0]));
	asm volatile("mrc p15, 0, %0, c13, c0, 3" : "=r" (call->thread[1]));
	asm volatile("mrc p15, 0, %0, c13, c0, 4" : "=r" (call->thread[2]));
	call->stack_top = sp;
	call->stack_bottom = sp & ~(THREAD_SIZE - 1);
	call->stack_guard = call->stack_bottom;
	call->arena_start = PAGE_OFFSET + call->layout.size;
	call->arena_end = call->arena_start;
}

/* --- the small core --- */

static void wait_a_little(void)
{
	/* Without the event stream nothing would end WFE. */
	if (IS_ENABLED(CONFIG_ARM_ARCH_TIMER_EVTSTREAM))
		wfe();
	else
		cpu_relax();
}

/* Runs the job; false: the small core has not taken it, and will not. */
static bool run_on_small_core(void)
{
	u32 before = readl(&shared->answer), number = before + 1;
	u64 until = ktime_get_mono_fast_ns() + NSEC_PER_SEC;

	memcpy_toio(&shared->job, &job, sizeof(job));
	flush_all();
	/* Behind the job's words. */
	wmb();
	writel(number, &shared->offer);
	rproc->ops->kick(rproc, 1);
	while (readl(&shared->answer) != number) {
		wait_a_little();
		if (readl(&shared->taken) == number || ktime_get_mono_fast_ns() < until)
			continue;
		writel(before, &shared->offer);
		/* It may have been taking it just now. */
		mdelay(10);
		if (readl(&shared->taken) != number)
			return false;
		until = U64_MAX;
	}
	/* What this core has read meanwhile is old. Lines of guest memory are clean. */
	flush_all();
	local_flush_tlb_all();
	return true;
}

/* The phase's function itself, as if nothing had been. */
static void go_on_alone(const struct handover_frame *frame, u32 *status)
{
	own = called;
	memcpy(context.registers, frame->registers, sizeof(frame->registers));
	context.registers[STACK] = (u32)(frame + 1);
	context.registers[LINK] = frame->link;
	context.registers[COUNTER] = (u32)called->addr & ~1;
	*status &= ~PSR_T_BIT;
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		*status |= PSR_T_BIT;
}

/* Goes on from what the small core left. */
static void take_outcome(u32 stop, u32 *status)
{
	switch (stop) {
	case OFFLOAD_FALLBACK:
	case OFFLOAD_UNDEFINED:
	case OFFLOAD_UNPREDICTABLE:
	case OFFLOAD_REFUSED:
	case OFFLOAD_UNALIGNED:
	case OFFLOAD_UNMAPPED_READ:
	case OFFLOAD_UNMAPPED_WRITE:
	case OFFLOAD_UNMAPPED_CODE:
	case OFFLOAD_CODE_WRITTEN:
	case OFFLOAD_BUDGET:
		break;
	default:
		/* Registers or memory are not what the kernel left there. */
		panic(KBUILD_MODNAME ": the small core stopped %s with %u; the trace of its remoteproc says more",
		      called->symbol_name, stop);
	}
	for (int i = 0; i < 16; i++)
		context.registers[i] = readl(&shared->registers[i]);
	*status = (readl(&shared->status) & ~GREATER) | (*status & GREATER);
}

struct handover_context *handover_call(struct handover_frame *frame, u32 status)
{
	u32 stop = OFFLOAD_BAD_JOB, *below;

	fill_call(frame, status);
	if (run_on_small_core())
		stop = readl(&shared->stop);
	if (stop == OFFLOAD_BAD_JOB)
		go_on_alone(frame, &status);
	else
		take_outcome(stop, &status);
	/* For RFE, where the thread keeps nothing. */
	below = (u32 *)context.registers[STACK];
	below[-2] = context.registers[COUNTER];
	below[-1] = status;
	return &context;
}

/* --- the call of a phase --- */

static int on_call(struct kprobe *probe, struct pt_regs *regs)
{
	/* A stack outside linear memory, as with VMAP_STACK, the small core does not reach. */
	if (own == probe || !alone || !virt_addr_valid((void *)regs->ARM_sp) || (regs->ARM_sp & 7)) {
		own = NULL;
		return 0;
	}
	called = probe;
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
	flush_all = (void *)lookup("v7_flush_kern_cache_all");
	if (!text || !text_end || !table || !schedule_at || !flush_all) {
		pr_err("the kernel lacks a symbol: it must be of ARMv7 with CONFIG_KALLSYMS_ALL\n");
		return -ENOENT;
	}
	/* Of symbols it gives bit 0 as the table of symbols has it. */
	if (IS_ENABLED(CONFIG_THUMB2_KERNEL))
		flush_all = (void *)((u32)flush_all | 1);
	fill_job(text, text_end, virt_to_phys((void *)table), schedule_at);
	asm volatile("mrc p15, 0, %0, c14, c0, 0" : "=r" (frequency));
	writel(frequency / 1000, &shared->timer_khz);
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
