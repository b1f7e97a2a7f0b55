// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs one of the kernel's own tests of lib/: the cases of its KUnit suites, or what it does as a module that
 * is loaded. Compiled with the kernel's headers and options.
 */
#include <kunit/device.h>
#include <kunit/test.h>
#include <kunit/test-bug.h>
#include <linux/device.h>
#include <linux/init.h>
#include <linux/sched/task.h>

#include "fakes.h"

/* Of what kernel/ and lib/ prepare at the start. */
extern void radix_tree_init(void) __attribute__((weak));
extern void maple_tree_init(void) __attribute__((weak));

extern struct kunit_suite *suites_start[], *suites_end[];
extern initcall_t initcalls_start[], initcalls_end[];

/* What is no result: odd numbers are digests of results. The driver knows these, too (bench/lib_tests.rs). */
enum { RUN_CALLED_ABSENT = 0, RUN_FAILED = 2, RUN_SKIPPED = 4 };

/* The results are of the program's digest; a bit for each status that a case had. */
static u32 run_digest, done;
static u32 way_out[10];

static void mix(u32 value)
{
	run_digest = ((run_digest << 5 | run_digest >> 27) ^ value) * 0x01000193;
}

/* --- KUnit, as far as a test calls it --- */

/* As setjmp() and longjmp(): a failed assertion ends its case from wherever it is. */
int remember(u32 *registers) __attribute__((returns_twice));
void __noreturn go_back(u32 *registers);
__asm__ (
	".pushsection .text.remember, \"ax\", %progbits\n"
	".syntax unified\n"
#ifdef __thumb__
	/* Otherwise each call of them would change the instruction set. */
	".thumb\n"
#endif
	".global remember, go_back\n"
	".type remember, %function\n"
	"remember: mov ip, sp\n\tstmia r0, {r4-r11, ip, lr}\n\tmov r0, #0\n\tbx lr\n"
	".type go_back, %function\n"
	"go_back: ldmia r0, {r4-r11, ip, lr}\n\tmov sp, ip\n\tmov r0, #1\n\tbx lr\n"
	".popsection");

void __noreturn __kunit_abort(struct kunit *test)
{
	kunit_set_failure(test);
	go_back(way_out);
}

void __kunit_do_failed_assertion(struct kunit *test, const struct kunit_loc *loc,
				 enum kunit_assert_type type, const struct kunit_assert *assert,
				 assert_format_t assert_format, const char *fmt, ...)
{
	kunit_set_failure(test);
	printk("assertion at %s:%d\n", loc->file, loc->line);
}

void __noreturn kunit_try_catch_throw(struct kunit_try_catch *try_catch)
{
	go_back(way_out);
}

/* What is done when a case ends, the last first. */
static struct action {
	struct action *next;
	kunit_action_t *action;
	void *context;
} *actions;

int kunit_add_action(struct kunit *test, kunit_action_t *action, void *context)
{
	struct action *one = kmalloc(sizeof(*one), GFP_KERNEL);

	if (!one)
		return -ENOMEM;
	*one = (struct action){ actions, action, context };
	actions = one;
	return 0;
}

int kunit_add_action_or_reset(struct kunit *test, kunit_action_t *action, void *context)
{
	int result = kunit_add_action(test, action, context);

	if (result)
		action(context);
	return result;
}

void kunit_remove_action(struct kunit *test, kunit_action_t *action, void *context)
{
	for (struct action **at = &actions; *at; at = &(*at)->next) {
		struct action *one = *at;

		if (one->action == action && one->context == context) {
			*at = one->next;
			kfree(one);
			return;
		}
	}
}

void kunit_release_action(struct kunit *test, kunit_action_t *action, void *context)
{
	kunit_remove_action(test, action, context);
	action(context);
}

static void end_actions(void)
{
	while (actions) {
		struct action *one = actions;

		actions = one->next;
		one->action(one->context);
		kfree(one);
	}
}

static void end_memory(void *memory)
{
	kfree(memory);
}

void *kunit_kmalloc_array(struct kunit *test, size_t n, size_t size, gfp_t gfp)
{
	void *memory = kmalloc_array(n, size, gfp);

	if (memory && kunit_add_action_or_reset(test, end_memory, memory))
		return NULL;
	return memory;
}

void kunit_kfree(struct kunit *test, const void *ptr)
{
	if (ptr)
		kunit_release_action(test, end_memory, (void *)ptr);
}

/* --- devices of tests, and memory that goes with them --- */

struct managed {
	struct list_head entry;
	u8 data[] __aligned(ARCH_DMA_MINALIGN);
};

static void end_device(void *data)
{
	struct device *device = data;
	struct managed *one, *next;

	list_for_each_entry_safe(one, next, &device->devres_head, entry)
		kfree(one);
	kfree(device);
}

struct device *kunit_device_register(struct kunit *test, const char *name)
{
	struct device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&device->devres_head);
	device->init_name = name;
	kunit_add_action(test, end_device, device);
	return device;
}

void kunit_device_unregister(struct kunit *test, struct device *device)
{
	kunit_release_action(test, end_device, device);
}

void *devm_kmalloc(struct device *device, size_t bytes, gfp_t gfp)
{
	struct managed *one;

	if (!bytes)
		return ZERO_SIZE_PTR;
	if (bytes > SIZE_MAX - sizeof(*one))
		return NULL;
	one = kmalloc(sizeof(*one) + bytes, gfp);
	if (!one)
		return NULL;
	list_add(&one->entry, &device->devres_head);
	return one->data;
}

void devm_kfree(struct device *device, const void *data)
{
	struct managed *one = container_of((u8 (*)[])data, struct managed, data);

	if (ZERO_OR_NULL_PTR(data))
		return;
	list_del(&one->entry);
	kfree(one);
}

void *devm_krealloc(struct device *device, void *data, size_t bytes, gfp_t gfp)
{
	size_t had = ZERO_OR_NULL_PTR(data) ? 0 :
		     ksize(container_of((u8 (*)[])data, struct managed, data)) - sizeof(struct managed);
	void *new = devm_kmalloc(device, bytes, gfp);

	if (!new)
		return NULL;
	if (bytes)
		memcpy(new, data, min(had, bytes));
	devm_kfree(device, data);
	return new;
}

void *devm_kmemdup(struct device *device, const void *data, size_t bytes, gfp_t gfp)
{
	void *new = devm_kmalloc(device, bytes, gfp);

	return new ? memcpy(new, data, bytes) : NULL;
}

/* --- cases and modules --- */

void kunit_log_append(struct string_stream *log, const char *fmt, ...)
{
}

static noinline void run_case(struct kunit *test, struct kunit_suite *suite, struct kunit_case *one)
{
	/* Its init() may end it, too. */
	if (!remember(way_out)) {
		if (suite->init && suite->init(test))
			__kunit_abort(test);
		one->run_case(test);
	}
	if (!remember(way_out) && suite->exit)
		suite->exit(test);
	end_actions();
}

static void run_suite(struct kunit_suite *suite)
{
	static struct kunit test;
	static char description[KUNIT_PARAM_DESC_SIZE];

	if (suite->suite_init && suite->suite_init(suite))
		return;
	for (struct kunit_case *one = suite->test_cases; one && one->run_case; one++) {
		const void *value = one->generate_params ? one->generate_params(NULL, description) : NULL;

		do {
			test.status = KUNIT_SUCCESS;
			test.priv = NULL;
			test.param_value = value;
			INIT_LIST_HEAD(&test.resources);
			run_case(&test, suite, one);
			settle();
			mix(test.status);
			done |= 1 << test.status;
			if (value)
				value = one->generate_params(value, description);
		} while (value);
	}
	if (suite->suite_exit)
		suite->suite_exit(suite);
}

/* Of the linker's script: all data, of which the test's own comes first. */
extern u8 data_start[], test_data_end[], data_end[], bss_start[], test_bss_end[], bss_end[], data_saved[];
KEPT static bool is_saved;

/* As after a start: a run may leave pointers to what is on the heap. */
static void fresh_start(void)
{
	if (is_saved) {
		memcpy(data_start, data_saved, data_end - data_start);
		memset(bss_start, 0, bss_end - bss_start);
	} else {
		memcpy(data_saved, data_start, data_end - data_start);
		is_saved = true;
	}
}

/* As where a module is loaded again. */
static void fresh_module(void)
{
	memcpy(data_start, data_saved, test_data_end - data_start);
	memset(bss_start, 0, test_bss_end - bss_start);
}

/* What it returns is no verdict where it is one of these, with which modules ask not to stay. */
static void run_module(initcall_t call)
{
	int result = call();

	settle();
	mix(result);
	if (result && result != -EAGAIN && result != -EINVAL)
		complaints++;
}

u32 run_program(u32 seed, u32 rounds)
{
	fresh_start();
	run_digest = 0x811c9dc5;
	fakes_begin(seed);
	kernel_begin();
	if (radix_tree_init)
		radix_tree_init();
	if (maple_tree_init)
		maple_tree_init();
	while (rounds--) {
		if (initcalls_start < initcalls_end)
			fresh_module();
		for (initcall_t *call = initcalls_start; call < initcalls_end; call++) {
			run_module(*call);
		}
		for (struct kunit_suite **suite = suites_start; suite < suites_end; suite++)
			run_suite(*suite);
	}
	mix(warnings);
	if (absences)
		return RUN_CALLED_ABSENT;
	if (done & 1 << KUNIT_FAILURE || complaints)
		return RUN_FAILED;
	return done == 1 << KUNIT_SKIPPED ? RUN_SKIPPED : run_digest | 1;
}
