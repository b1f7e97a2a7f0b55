/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef OFFLOAD_TESTS_CACHES_CHECK_H
#define OFFLOAD_TESTS_CACHES_CHECK_H

#include <stdint.h>

/* maintenance.c: the kernel's functions for ranges and for the first level do in the model what they are for. */
int check_maintenance(uint32_t rounds);

#endif
