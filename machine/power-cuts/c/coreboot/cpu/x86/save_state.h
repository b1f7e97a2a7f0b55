/* SPDX-License-Identifier: GPL-2.0-only */
#include <types.h>

enum cpu_reg { RBX };
static inline int get_apmc_node(uint8_t command) { return 0; }
int get_save_state_reg(enum cpu_reg reg, int node, void *out, uint8_t bytes);
