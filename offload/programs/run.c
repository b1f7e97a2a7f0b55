// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs one of the kernel's own tests of lib/: the cases of its KUnit suites, or what it does as a module that
 * is loaded. Compiled with the kernel's headers and options.
 */
#include <kunit/test.h>
#include <kunit/test-bug.h>
#include <linux/init.h>
#include <linux/sched/task.h>

extern u32 warnings, absences;
void fakes_begin(u32 seed);
void rcu_barrier(void);
u32 run_program(u32 seed, u32 rounds);

/* Of what kernel/ and lib/ prepare at the start. */
extern void radix_tree_init(void) __attribute__((weak));
extern void maple_tree_init(void) __attribute__((weak));

extern struct kunit_suite *suites_start[], *suites_end[];
extern initcall_t initcalls_start[], initcalls_end[];

/* The results are of the program's digest. */
u32 run_digest, run_failures;
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
	go_back(way_out);
}

void __kunit_do_failed_assertion(struct kunit *test, const struct kunit_loc *loc,
				 enum kunit_assert_type type, const struct kunit_assert *assert,
				 assert_format_t assert_format, const char *fmt, ...)
{
	kunit_set_failure(test);
	run_failures++;
}

void *kunit_kmalloc_array(struct kunit *test, size_t n, size_t size, gfp_t gfp)
{
	return kmalloc_array(n, size, gfp);
}

void kunit_kfree(struct kunit *test, const void *ptr)
{
	kfree(ptr);
}

int kunit_add_action(struct kunit *test, kunit_action_t *action, void *ctx)
{
	return 0;
}

void kunit_log_append(struct string_stream *log, const char *fmt, ...)
{
}

static noinline void run_case(struct kunit *test, struct kunit_suite *suite, struct kunit_case *one)
{
	if (suite->init && suite->init(test))
		return;
	if (!remember(way_out))
		one->run_case(test);
	if (suite->exit)
		suite->exit(test);
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
			rcu_barrier();
			mix(test.status);
			if (value)
				value = one->generate_params(value, description);
		} while (value);
	}
	if (suite->suite_exit)
		suite->suite_exit(suite);
}

u32 run_program(u32 seed, u32 rounds)
{
	run_digest = 0x811c9dc5;
	run_failures = 0;
	fakes_begin(seed);
#ifndef CONFIG_OFFLOAD_M3
	__asm__ volatile ("mcr p15, 0, %0, c13, c0, 3" : : "r" (&init_task));	/* current */
#endif
	if (radix_tree_init)
		radix_tree_init();
	if (maple_tree_init)
		maple_tree_init();
	while (rounds--) {
		for (initcall_t *call = initcalls_start; call < initcalls_end; call++) {
			mix((*call)());
			rcu_barrier();
		}
		for (struct kunit_suite **suite = suites_start; suite < suites_end; suite++)
			run_suite(*suite);
	}
	mix(warnings);
	/* What did not run as in a kernel is no result. */
	return absences ? 0 : run_digest | 1;
}
