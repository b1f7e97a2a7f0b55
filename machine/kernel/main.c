// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dormouse: suspend to persistent CXL memory on stock kernels.
 *
 * Binds to firmware's ACPI device DORM0001, which names the CXL window. Whatever is
 * missing, the module does not load and logs the reason; suspend is unchanged.
 */
#define pr_fmt(fmt) "dormouse: " fmt

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/pm.h>
#include <linux/property.h>
#include <linux/sizes.h>
#include <linux/suspend.h>

#include "dormouse.h"

struct dormouse_device dormouse = {
	.lock = __MUTEX_INITIALIZER(dormouse.lock),
	.enabled = true,
	.user_check = DORMOUSE_USER_CHECK_SAMPLE,
};

/* platform_driver_probe() only returns that nothing was bound. */
static int dormouse_probe_error __initdata = -ENODEV;

static int __init read_number(struct device *dev, const char *name, u64 limit, u64 *value)
{
	int error = device_property_read_u64(dev, name, value);

	if (!error && *value > limit)
		error = -ERANGE;
	if (error)
		pr_err("firmware's device DORM0001 has no usable %s (error %d)\n", name, error);
	return error;
}

static int __init read_trigger(struct dormouse_device *d)
{
	const char *trigger;
	int error = device_property_read_string(d->dev, "sleep-trigger", &trigger);

	if (!error && !strcmp(trigger, "apm"))
		d->trigger = DORMOUSE_TRIGGER_APM;
	else if (!error && !strcmp(trigger, "slp-en"))
		d->trigger = DORMOUSE_TRIGGER_SLP_EN;
	else
		error = error ?: -EINVAL;
	if (error)
		pr_err("firmware's device DORM0001 has no known sleep-trigger (error %d)\n",
		       error);
	return error;
}

/* The board's word for a device that cannot be asked; nothing said is no word. */
static void __init read_persistence(struct dormouse_device *d)
{
	u64 counted;

	if (device_property_read_string(d->dev, "global-persistent-flush", &d->flush))
		d->flush = "unknown";
	d->counts_dirty_shutdowns =
		!device_property_read_u64(d->dev, "dirty-shutdowns-counted", &counted) && counted;
	d->persistence = dormouse_firmware_vouches(d) ? DORMOUSE_PERSISTENCE_FIRMWARE :
							DORMOUSE_PERSISTENCE_UNKNOWN;
}

static int __init read_properties(struct platform_device *pdev, struct dormouse_device *d)
{
	struct resource *reserved = platform_get_resource(pdev, IORESOURCE_MEM, 0);
	u64 version, command, port, cxl_mib;
	int error;

	error = read_number(d->dev, "format-version", U32_MAX, &version);
	if (error)
		return error;
	if (version != DORMOUSE_VERSION) {
		pr_err("firmware writes image format %llu, this module knows %d\n", version,
		       DORMOUSE_VERSION);
		return -EPROTONOSUPPORT;
	}
	/* In MiB: where the DSDT has revision 1, ACPI integers have 32 bits. */
	error = read_number(d->dev, "cxl-mib", U32_MAX, &cxl_mib) ?:
		read_number(d->dev, "smi-command", U8_MAX, &command) ?:
		read_number(d->dev, "smi-port", U16_MAX, &port) ?:
		read_trigger(d);
	if (error)
		return error;
	d->cxl_bytes = cxl_mib * SZ_1M;
	d->smi_command = command;
	d->smi_port = port;
	read_persistence(d);

	if (!reserved) {
		pr_err("firmware's device DORM0001 names no memory\n");
		return -ENXIO;
	}
	d->cxl_base = reserved->start;
	d->reserved_bytes = resource_size(reserved);
	if (!IS_ALIGNED(d->cxl_base | d->reserved_bytes, DORMOUSE_BLOCK_BYTES) ||
	    d->reserved_bytes > d->cxl_bytes || !IS_ALIGNED(d->cxl_bytes, PAGE_SIZE) ||
	    d->cxl_base + d->cxl_bytes < d->cxl_base) {
		pr_err("firmware's CXL window makes no sense: %pR of 0x%llx bytes\n", reserved,
		       d->cxl_bytes);
		return -EINVAL;
	}
	return 0;
}

static int __init check_header(struct dormouse_device *d)
{
	u64 detail;
	enum dormouse_reason reason = dormouse_header_load(d, &detail);

	if (reason == DORMOUSE_OK) {
		dormouse_outcome_from_header(d);
		return 0;
	}
	pr_err("the header in CXL memory is not firmware's: %s: %s (detail 0x%llx)\n",
	       dormouse_reason_name(reason), dormouse_reason_text(reason), detail);
	return -EIO;
}

static int __init start(struct platform_device *pdev, struct dormouse_device *d)
{
	int error;

	error = read_properties(pdev, d) ?: dormouse_window_map(d);
	if (error)
		return error;
	error = check_header(d) ?: dormouse_firmware_answers(d) ?: dormouse_sysfs_create();
	if (error)
		goto unmap;
	error = dormouse_handover_register();
	if (error)
		goto remove_sysfs;
	return 0;

remove_sysfs:
	dormouse_sysfs_remove();
unmap:
	dormouse_window_unmap(d);
	return error;
}

static int __init dormouse_probe(struct platform_device *pdev)
{
	struct dormouse_device *d = &dormouse;

	if (d->dev)
		return -EBUSY;
	d->dev = &pdev->dev;
	dormouse_probe_error = start(pdev, d);
	if (dormouse_probe_error) {
		d->dev = NULL;
		return dormouse_probe_error;
	}
	pr_info("CXL window 0x%llx + %llu MiB, %llu MiB reserved; last outcome %s (%s)\n",
		d->cxl_base, d->cxl_bytes >> 20, d->reserved_bytes >> 20,
		dormouse_outcome_name(d->last_outcome), dormouse_reason_name(d->last_reason));
	return 0;
}

static void dormouse_remove(struct platform_device *pdev)
{
	dormouse_handover_unregister();
	dormouse_sysfs_remove();
	dormouse_window_unmap(&dormouse);
	dormouse.dev = NULL;
}

static int dormouse_suspend_noirq(struct device *dev)
{
	if (dormouse.enabled && pm_suspend_target_state == PM_SUSPEND_MEM)
		dormouse_user_digest_early(&dormouse);
	return 0;
}

static const struct dev_pm_ops dormouse_pm_ops = {
	.suspend_noirq = pm_sleep_ptr(dormouse_suspend_noirq),
};

static const struct acpi_device_id dormouse_ids[] = {
	{ "DORM0001" },
	{ }
};
MODULE_DEVICE_TABLE(acpi, dormouse_ids);

static struct platform_driver dormouse_driver = {
	.driver = {
		.name = "dormouse",
		.acpi_match_table = dormouse_ids,
		.pm = pm_sleep_ptr(&dormouse_pm_ops),
	},
	.remove = dormouse_remove,
};

static int __init dormouse_init(void)
{
	int error;

	/* Free pages come back with other contents, and with these options that matters. */
	if (want_init_on_free() || page_poisoning_enabled_static()) {
		pr_err("init_on_free=1 and page_poison=1 rely on the contents of free pages, which a sleep does not keep: not loaded\n");
		return -EOPNOTSUPP;
	}

	error = dormouse_symbols_find();
	if (error)
		return error;
	error = platform_driver_probe(&dormouse_driver, dormouse_probe);
	if (error && dormouse_probe_error == -ENODEV)
		pr_err("this machine's firmware does not offer Suspend-to-CXL: suspend stays as it is\n");
	return error == -ENODEV ? dormouse_probe_error : error;
}
module_init(dormouse_init);

static void __exit dormouse_exit(void)
{
	platform_driver_unregister(&dormouse_driver);
}
module_exit(dormouse_exit);

MODULE_DESCRIPTION("Suspend to persistent CXL memory");
MODULE_LICENSE("GPL");
