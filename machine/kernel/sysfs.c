// SPDX-License-Identifier: GPL-2.0-only
/* /sys/power/dormouse: the switch, the state of the image, and what the last sleep did. */
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "compat.h"
#include "dormouse.h"

static struct kobject *dormouse_kobject;

/* Of an attribute that can be written, too. */
#define DORMOUSE_SHOWN(_name, _format, _value)						\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf) \
{											\
	return sysfs_emit(buf, _format "\n", _value);					\
}

#define DORMOUSE_SHOW(_name, _format, _value)						\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf) \
{											\
	return sysfs_emit(buf, _format "\n", _value);					\
}											\
static struct kobj_attribute _name##_attribute = __ATTR_RO(_name)

/* From the header as it is now in CXL memory; -EIO if no copy is valid. */
#define DORMOUSE_SHOW_HEADER(_name, _value)						\
static ssize_t _name##_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf) \
{											\
	const struct dormouse_header *h = dormouse.header;				\
	ssize_t bytes = -EIO;								\
	u64 detail;									\
											\
	mutex_lock(&dormouse.lock);							\
	if (dormouse_header_load(&dormouse, &detail) == DORMOUSE_OK)			\
		bytes = sysfs_emit(buf, "%llu\n", (u64)(_value));			\
	mutex_unlock(&dormouse.lock);							\
	return bytes;									\
}											\
static struct kobj_attribute _name##_attribute = __ATTR_RO(_name)

DORMOUSE_SHOW(cxl_base, "0x%llx", dormouse.cxl_base);
DORMOUSE_SHOW(cxl_bytes, "%llu", dormouse.cxl_bytes);
DORMOUSE_SHOW(reserved_bytes, "%llu", dormouse.reserved_bytes);
DORMOUSE_SHOW(global_persistent_flush, "%s", dormouse.flush);
DORMOUSE_SHOW(dirty_shutdowns_counted, "%d", dormouse.counts_dirty_shutdowns);
DORMOUSE_SHOW(last_outcome, "%s", dormouse_outcome_name(dormouse.last_outcome));
DORMOUSE_SHOW(last_reason, "%s", dormouse_reason_name(dormouse.last_reason));
DORMOUSE_SHOW(last_detail, "0x%llx", dormouse.last_detail);
DORMOUSE_SHOW(needed_bytes, "%llu", dormouse.needed_bytes);
DORMOUSE_SHOW(available_bytes, "%llu", dormouse.available_bytes);

DORMOUSE_SHOW_HEADER(sleep_count, h->sleep_count);
DORMOUSE_SHOW_HEADER(resume_count, h->resume_count);
DORMOUSE_SHOW_HEADER(saved_bytes, h->saved_pages << PAGE_SHIFT);
DORMOUSE_SHOW_HEADER(restored_bytes, h->restored_pages << PAGE_SHIFT);
DORMOUSE_SHOW_HEADER(device_serial, h->device_serial);
DORMOUSE_SHOW_HEADER(dirty_shutdown_count, h->dirty_shutdown_count);

DORMOUSE_SHOWN(enabled, "%d", dormouse.enabled)

static ssize_t enabled_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
			     size_t bytes)
{
	bool enabled;
	int error = kstrtobool(buf, &enabled);

	if (error)
		return error;
	mutex_lock(&dormouse.lock);
	dormouse.enabled = enabled;
	mutex_unlock(&dormouse.lock);
	return bytes;
}

static struct kobj_attribute enabled_attribute = __ATTR_RW(enabled);

/* The number that has the name in `buf`. */
static int number_of(const char *buf, const char *(*name_of)(u32 number), u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (sysfs_streq(buf, name_of(i)))
			return i;
	}
	return -EINVAL;
}

DORMOUSE_SHOWN(persistence, "%s", dormouse_persistence_name(dormouse.persistence))

static ssize_t persistence_store(struct kobject *kobj, struct kobj_attribute *attr,
				 const char *buf, size_t bytes)
{
	int i = number_of(buf, dormouse_persistence_name, DORMOUSE_PERSISTENCE_COUNT);

	if (i < 0)
		return i;
	/* Only firmware may state this. */
	if (i == DORMOUSE_PERSISTENCE_FIRMWARE && !dormouse_firmware_vouches(&dormouse))
		return -EPERM;
	mutex_lock(&dormouse.lock);
	dormouse.persistence = i;
	mutex_unlock(&dormouse.lock);
	return bytes;
}

static struct kobj_attribute persistence_attribute = __ATTR_RW(persistence);

DORMOUSE_SHOWN(verify_user_pages, "%s", dormouse_user_check_name(dormouse.user_check))

static ssize_t verify_user_pages_store(struct kobject *kobj, struct kobj_attribute *attr,
				       const char *buf, size_t bytes)
{
	int i = number_of(buf, dormouse_user_check_name, DORMOUSE_USER_CHECK_COUNT);

	if (i < 0)
		return i;
	mutex_lock(&dormouse.lock);
	dormouse.user_check = i;
	mutex_unlock(&dormouse.lock);
	return bytes;
}

static struct kobj_attribute verify_user_pages_attribute = __ATTR_RW(verify_user_pages);

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	const char *name = "invalid";
	u64 detail;

	mutex_lock(&dormouse.lock);
	if (dormouse_header_load(&dormouse, &detail) == DORMOUSE_OK)
		name = dormouse_state_name(dormouse.header->state);
	mutex_unlock(&dormouse.lock);
	return sysfs_emit(buf, "%s\n", name);
}

static struct kobj_attribute state_attribute = __ATTR_RO(state);

static ssize_t phases_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	const struct dormouse_interval *phase = dormouse.header->phase;
	ssize_t bytes = 0;
	u64 detail;
	u32 i;

	mutex_lock(&dormouse.lock);
	if (dormouse_header_load(&dormouse, &detail) != DORMOUSE_OK)
		bytes = -EIO;
	for (i = 0; bytes >= 0 && i < DORMOUSE_PHASE_COUNT; i++)
		bytes += sysfs_emit_at(buf, bytes, "%s %llu %llu\n", dormouse_phase_name(i),
				       phase[i].begin_ns, phase[i].end_ns);
	mutex_unlock(&dormouse.lock);
	return bytes;
}

static struct kobj_attribute phases_attribute = __ATTR_RO(phases);

static ssize_t emit_bytes(char *buf, ssize_t at, const char *name, u64 pages)
{
	return at + sysfs_emit_at(buf, at, "%s %llu\n", name, pages << PAGE_SHIFT);
}

static ssize_t emit_breakdown(char *buf, ssize_t at, const struct dormouse_marks *m)
{
	int i;

	for (i = 0; i < DORMOUSE_CLASS_COUNT; i++)
		at = emit_bytes(buf, at, dormouse_class_name(i), m->class_pages[i]);
	at = emit_bytes(buf, at, "skipped_swiotlb", m->skipped_swiotlb_pages);
	at = emit_bytes(buf, at, "skipped_unreadable", m->skipped_unreadable_pages);
	return emit_bytes(buf, at, "skipped_offline", m->skipped_offline_pages);
}

static ssize_t breakdown_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	ssize_t bytes;

	mutex_lock(&dormouse.lock);
	bytes = emit_breakdown(buf, 0, &dormouse.marks);
	mutex_unlock(&dormouse.lock);
	return bytes;
}

static struct kobj_attribute breakdown_attribute = __ATTR_RO(breakdown);

static ssize_t estimate_locked(char *buf)
{
	const struct dormouse_header *h = dormouse.header;
	struct dormouse_marks m;
	ssize_t bytes = -ENOMEM;
	u64 *dram, *cxl, detail;

	if (dormouse_header_load(&dormouse, &detail) != DORMOUSE_OK)
		return -EIO;
	dram = kvmalloc(h->dram_bitmap_bytes, GFP_KERNEL);
	cxl = kvmalloc(h->cxl_bitmap_bytes, GFP_KERNEL);
	if (!dram || !cxl)
		goto free;

	dormouse_marks_init(&m, h, dram, cxl);
	bytes = -ENXIO;
	if (dormouse_mark(&dormouse, &m, h->data_offset, &detail) != DORMOUSE_OK)
		goto free;
	bytes = emit_bytes(buf, 0, "dram_used_bytes", m.dram_used_pages);
	bytes = emit_bytes(buf, bytes, "save_bytes", m.save_pages);
	bytes = emit_bytes(buf, bytes, "cxl_used_bytes", m.cxl_used_pages);
	bytes = emit_bytes(buf, bytes, "free_bytes", m.cxl_free_pages);
	bytes = emit_breakdown(buf, bytes, &m);
free:
	kvfree(cxl);
	kvfree(dram);
	return bytes;
}

static ssize_t estimate_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	ssize_t bytes;

	mutex_lock(&dormouse.lock);
	bytes = estimate_locked(buf);
	mutex_unlock(&dormouse.lock);
	return bytes;
}

/* It walks all memory: not for everyone. */
static struct kobj_attribute estimate_attribute = __ATTR_RO_MODE(estimate, 0400);

static ssize_t header_read(struct file *file, struct kobject *kobj, dormouse_bin_attribute *attr,
			   char *buf, loff_t offset, size_t bytes)
{
	ssize_t result = -EIO;
	u64 detail;

	mutex_lock(&dormouse.lock);
	if (dormouse_header_load(&dormouse, &detail) == DORMOUSE_OK)
		result = memory_read_from_buffer(buf, bytes, &offset, dormouse.header,
						 sizeof(*dormouse.header));
	mutex_unlock(&dormouse.lock);
	return result;
}

static struct bin_attribute header_attribute = {
	.attr = { .name = "header", .mode = 0400 },
	.size = DORMOUSE_HEADER_BYTES,
	.read = header_read,
};

static struct attribute *dormouse_attributes[] = {
	&enabled_attribute.attr,
	&state_attribute.attr,
	&last_outcome_attribute.attr,
	&last_reason_attribute.attr,
	&last_detail_attribute.attr,
	&needed_bytes_attribute.attr,
	&available_bytes_attribute.attr,
	&sleep_count_attribute.attr,
	&resume_count_attribute.attr,
	&saved_bytes_attribute.attr,
	&restored_bytes_attribute.attr,
	&cxl_base_attribute.attr,
	&cxl_bytes_attribute.attr,
	&reserved_bytes_attribute.attr,
	&device_serial_attribute.attr,
	&dirty_shutdown_count_attribute.attr,
	&global_persistent_flush_attribute.attr,
	&dirty_shutdowns_counted_attribute.attr,
	&persistence_attribute.attr,
	&verify_user_pages_attribute.attr,
	&phases_attribute.attr,
	&breakdown_attribute.attr,
	&estimate_attribute.attr,
	NULL
};

static const struct attribute_group dormouse_group = {
	.attrs = dormouse_attributes,
};

int dormouse_sysfs_create(void)
{
	struct kobject *power = dormouse_power_kobject();
	int error;

	if (!power)
		return -ENOENT;
	dormouse_kobject = kobject_create_and_add("dormouse", power);
	kobject_put(power);
	if (!dormouse_kobject)
		return -ENOMEM;
	error = sysfs_create_group(dormouse_kobject, &dormouse_group);
	if (!error)
		error = sysfs_create_bin_file(dormouse_kobject, &header_attribute);
	if (error)
		kobject_put(dormouse_kobject);
	return error;
}

void dormouse_sysfs_remove(void)
{
	kobject_put(dormouse_kobject);
}
