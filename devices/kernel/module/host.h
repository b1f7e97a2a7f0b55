/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the loadable module share. */
#ifndef _DPM_HOST_H
#define _DPM_HOST_H

#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/pm.h>

/* find.c: the address of a name that the kernel has exactly once; 0 and a message otherwise. */
int dpm_find_begin(void);
unsigned long dpm_find(const char *name);
/* As above; 0 without a message if the kernel does not have it. */
unsigned long dpm_find_optional(const char *name);
/* The bytes of a function's code. */
unsigned long dpm_find_size(unsigned long address);
int dpm_find_all(void);
struct kobject *dpm_find_power(void);

/* find.c: the stock kernel takes one device through one phase. */
void dpm_host_suspend(struct device *dev, pm_message_t state);
void dpm_host_suspend_late(struct device *dev, pm_message_t state);
void dpm_host_suspend_noirq(struct device *dev, pm_message_t state);
void dpm_host_resume_noirq(struct device *dev, pm_message_t state);
void dpm_host_resume_early(struct device *dev, pm_message_t state);
void dpm_host_resume(struct device *dev, pm_message_t state);

/* check.c: the kernel's functions are those that this module was written for. */
int dpm_check_kernel(void);

/* table.c */
void dpm_table_free(void);

/* measure.c */
int dpm_measure_find(void);

/* phases.c */
int dpm_phases_add(void);
void dpm_phases_remove(void);

/* patch.c */
int dpm_patch_enable(void);

#endif
