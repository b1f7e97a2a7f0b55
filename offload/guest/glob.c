// SPDX-License-Identifier: GPL-2.0-only
/* lib/glob.c: matches names of kernel functions against patterns. */
#include <linux/glob.h>

#include "programs.h"

static const char *const patterns[] = {
	"*", "dpm_*", "*_suspend", "*_resume*", "[!a-m]*", "?pm_*", "*end*dev*", "__*", "*a*b*c*",
	"device_pm_?*", "[a-fx]*[0-9]", "*s?s*", "dev_pm_get_subsys_data", "\\*x", "*_*_*_*",
};

static const char *const names[] = {
	"dpm_suspend", "dpm_resume_early", "device_pm_add", "device_pm_wait_for_dev", "pm_verb",
	"async_suspend_late", "__device_suspend_noirq", "legacy_resume", "dpm_prepare", "x86_cpu1",
	"suspend_devices_and_enter", "dpm_wait_for_superior", "dev_pm_get_subsys_data",
	"cpufreq_suspend", "abcabc", "syscore_suspend", "pm_op", "dpm_run_callback", "m0",
};

u32 run_glob(u32 seed, u32 rounds)
{
	u32 digest = seed;
	char text[16];

	while (rounds--) {
		const char *pattern = patterns[dice(&seed) % ARRAY_SIZE(patterns)];

		for (u32 i = 0; i < ARRAY_SIZE(names); i++)
			digest = mix(digest, glob_match(pattern, names[i]));
		for (u32 i = 0; i < sizeof(text) - 1; i++)
			text[i] = 'a' + dice(&seed) % 4;
		text[sizeof(text) - 1] = 0;
		digest = mix(digest, glob_match("*a[bc]*d?a*", text));
	}
	return digest;
}
