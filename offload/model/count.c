// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A plugin of QEMU's translator (API version 1) that counts what an emulated core executes: how often each block
 * of instructions ran, and how often it was left for an address that does not follow it.
 *
 *   blocks=FILE   at the end: for each block struct record, then its instructions' bytes
 *   totals=FILE   meanwhile: struct totals, which another process may have mapped
 *   wait=HEX-HEX  instructions in this range are counted apart (delay loops); up to MAX_RANGES
 *
 * The distribution has no header of this interface, so what is used of it is declared here.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*callback)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*callback)(unsigned int, void *),
					  int flags, void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*callback)(plugin_id, void *), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);

EXPORT int qemu_plugin_version = 1;

enum { NO_REGISTERS = 0, MAX_RANGES = 16, MAX_BYTES = 4096 };

struct record {
	uint32_t start;
	uint32_t bytes;
	uint64_t executed;
	uint64_t left;		/* for an address that does not follow */
};

struct block {
	struct record record;
	struct block *next;
	uint32_t instructions;
	uint32_t end;		/* where what follows it begins */
	bool waits;
	uint8_t data[];
};

struct totals {
	uint64_t instructions;
	uint64_t waiting;	/* of these, in the ranges */
};

static struct block *blocks, *last;
static struct totals own_totals, *totals = &own_totals;
static const char *blocks_path;
static struct { uint32_t start, end; } ranges[MAX_RANGES];
static unsigned int range_count;

static void executed(unsigned int core, void *data)
{
	struct block *block = data;

	(void)core;
	if (last && last->end != block->record.start)
		last->record.left++;
	block->record.executed++;
	totals->instructions += block->instructions;
	if (block->waits)
		totals->waiting += block->instructions;
	last = block;
}

/*
 * The address behind a block. Of an instruction of 32 bits that crosses a page the emulator gives the first half
 * only. Only Thumb code has halves: other code's instructions have 4 bytes.
 */
static uint32_t end_of(const struct qemu_plugin_insn *insn)
{
	uint32_t start = (uint32_t)qemu_plugin_insn_vaddr(insn), size = (uint32_t)qemu_plugin_insn_size(insn);
	uint16_t half;

	if (size != sizeof(half))
		return start + size;
	memcpy(&half, qemu_plugin_insn_data(insn), sizeof(half));
	return start + (half >> 11 >= 0x1d ? 4 : 2);
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	static uint8_t data[MAX_BYTES];
	size_t count = qemu_plugin_tb_n_insns(tb), bytes = 0;
	struct block *block;
	uint32_t start;

	(void)id;
	for (size_t i = 0; i < count; i++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t size = qemu_plugin_insn_size(insn);

		if (bytes + size > sizeof(data)) {
			fprintf(stderr, "count: a block of more than %d bytes\n", MAX_BYTES);
			exit(1);
		}
		memcpy(data + bytes, qemu_plugin_insn_data(insn), size);
		bytes += size;
	}
	block = calloc(1, sizeof(*block) + bytes);
	if (!block || !count) {
		fprintf(stderr, "count: no memory for a block, or nothing in it\n");
		exit(1);
	}
	start = (uint32_t)qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
	block->record.start = start;
	block->record.bytes = (uint32_t)bytes;
	block->instructions = (uint32_t)count;
	block->end = end_of(qemu_plugin_tb_get_insn(tb, count - 1));
	memcpy(block->data, data, bytes);
	for (unsigned int i = 0; i < range_count; i++)
		block->waits |= start >= ranges[i].start && start < ranges[i].end;
	block->next = blocks;
	blocks = block;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, block);
}

static void ended(plugin_id id, void *data)
{
	FILE *file;

	(void)id;
	(void)data;
	if (!blocks_path)
		return;
	file = fopen(blocks_path, "wb");
	for (struct block *block = blocks; file && block; block = block->next)
		if (block->record.executed) {
			fwrite(&block->record, sizeof(block->record), 1, file);
			fwrite(block->data, 1, block->record.bytes, file);
		}
	if (!file || fclose(file))
		fprintf(stderr, "count: cannot write %s\n", blocks_path);
}

static bool map_totals(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	void *at;

	if (file < 0 || ftruncate(file, sizeof(*totals)))
		return false;
	at = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (at == MAP_FAILED)
		return false;
	totals = at;
	return true;
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		const char *word = argv[i];
		bool good = false;

		if (!strncmp(word, "blocks=", 7)) {
			blocks_path = strdup(word + 7);
			good = blocks_path;
		} else if (!strncmp(word, "totals=", 7)) {
			good = map_totals(word + 7);
		} else if (!strncmp(word, "wait=", 5) && range_count < MAX_RANGES) {
			good = sscanf(word + 5, "%x-%x", &ranges[range_count].start, &ranges[range_count].end) == 2;
			range_count++;
		}
		if (!good) {
			fprintf(stderr, "count: cannot use %s\n", word);
			return 1;
		}
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
