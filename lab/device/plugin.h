/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few parts of the emulator's interface for plugins (version 1 of it) that are used here: no
 * package of the distribution has its header. The emulator itself has the functions.
 */

#ifndef DORMOUSE_LAB_PLUGIN_H
#define DORMOUSE_LAB_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLUGIN_VERSION 1
#define PLUGIN_EXPORT __attribute__((visibility("default")))

/* The emulator's description of itself. */
struct qemu_info {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
};

/* Of callbacks: they look at no register. */
enum qemu_plugin_cb_flags {
	QEMU_PLUGIN_CB_NO_REGS,
};

enum qemu_plugin_mem_rw {
	QEMU_PLUGIN_MEM_R = 1,
	QEMU_PLUGIN_MEM_W,
	QEMU_PLUGIN_MEM_RW,
};

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;

typedef void qemu_plugin_vcpu_tb_trans_cb_t(uint64_t id, struct qemu_plugin_tb *tb);
typedef void qemu_plugin_vcpu_mem_cb_t(unsigned int vcpu, uint32_t info, uint64_t vaddr,
				       void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, qemu_plugin_vcpu_tb_trans_cb_t *call);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      qemu_plugin_vcpu_mem_cb_t *call,
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw which, void *data);
bool qemu_plugin_mem_is_store(uint32_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(uint32_t info, uint64_t vaddr);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

#endif
