/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What Linux' lib/ files take from headers that need a configured kernel. The files themselves,
 * and the headers that hold data structures, are the distribution's, unchanged.
 */
#ifndef OFFLOAD_GUEST_KERNEL_H
#define OFFLOAD_GUEST_KERNEL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
typedef u32 __u32;
typedef u32 __le32;
typedef u32 __be32;
typedef unsigned int gfp_t;
typedef int ssize_t;
typedef u32 dma_addr_t;
typedef int (*cmp_r_func_t)(const void *, const void *, const void *);
typedef int (*cmp_func_t)(const void *, const void *);
typedef void (*swap_r_func_t)(void *, void *, int, const void *);
typedef void (*swap_func_t)(void *, void *, int);

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_head {
	struct hlist_node *first;
};

struct hlist_node {
	struct hlist_node *next, **pprev;
};

struct callback_head {
	struct callback_head *next;
	void (*func)(struct callback_head *head);
};

#define rcu_head callback_head
#define __pure __attribute__((pure))
#define __weak __attribute__((weak))
#define __attribute_const__ __attribute__((const))
#define __always_inline inline __attribute__((always_inline))
#define __nonstring
#define __user
#define __force
#define __rcu
#define __must_check
#define __alias(symbol) __attribute__((alias(#symbol)))
#define __aligned(bytes) __attribute__((aligned(bytes)))
#define __cold
#define ____cacheline_aligned __attribute__((aligned(64)))
#define fallthrough __attribute__((fallthrough))
#define EXPORT_SYMBOL(symbol)
#define EXPORT_SYMBOL_GPL(symbol)
#define MODULE_LICENSE(text)
#define MODULE_AUTHOR(text)
#define MODULE_DESCRIPTION(text)
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define data_race(x) (x)
#define barrier() __asm__ volatile ("" ::: "memory")
#define smp_wmb() __asm__ volatile ("dmb" ::: "memory")
#define smp_mb() __asm__ volatile ("dmb" ::: "memory")
#define smp_store_release(p, value) do { smp_mb(); WRITE_ONCE(*(p), value); } while (0)
#define smp_load_acquire(p) ({ __typeof__(*(p)) __v = READ_ONCE(*(p)); smp_mb(); __v; })
#define rcu_assign_pointer(p, value) smp_store_release(&(p), value)
#define rcu_dereference_raw(p) READ_ONCE(p)
#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))
#define min(a, b) ({ __typeof__(a) __a = (a); __typeof__(b) __b = (b); __a < __b ? __a : __b; })
#define min3(a, b, c) min(min(a, b), c)
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define is_power_of_2(n) ((n) && !((n) & ((n) - 1)))
#define roundup_pow_of_two(n) (1u << (32 - __builtin_clz((n) - 1)))
#define rounddown_pow_of_two(n) (1u << (31 - __builtin_clz(n)))
#define IS_ENABLED(option) 0
#define BUILD_BUG_ON(condition)
#define BUG_ON(condition)
#define WARN_ON(condition) (condition)
#define WARN_ON_ONCE(condition) (condition)
#define cond_resched() do { } while (0)
#define __cpu_to_le32(x) (x)
#define __le32_to_cpu(x) (x)
#define cpu_to_le32(x) (x)
#define cpu_to_be32(x) __builtin_bswap32(x)
#define __cpu_to_be32(x) __builtin_bswap32(x)
#define __be32_to_cpu(x) __builtin_bswap32(x)
#define __LITTLE_ENDIAN 1234
#define POISON_POINTER_DELTA 0
#define EINVAL 22
#define ENOMEM 12
#define EFAULT 14
#define E2BIG 7
#define REPEAT_BYTE(byte) ((~0ul / 0xff) * (byte))
#define get_unaligned(p) ({ \
	struct { __typeof__(*(p)) v; } __attribute__((packed)) *__p = (void *)(p); \
	__p->v; \
})
#define read_word_at_a_time(p) (*(const unsigned long *)(p))
#define fls(word) ((word) ? 32 - __builtin_clz(word) : 0)
#define __visible
#define INT_MAX 0x7fffffff
#define PAGE_SIZE 4096
#define CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS 1

/* Of kfifo's DMA and user halves only that they compile; nothing calls them. */
struct scatterlist {
	dma_addr_t dma_address;
	unsigned int dma_length;
	const void *buffer;
};

struct page;
#define DMA_MAPPING_ERROR (~(dma_addr_t)0)
#define sg_dma_address(list) ((list)->dma_address)
#define sg_dma_len(list) ((list)->dma_length)
#define sg_set_buf(list, address, bytes) ((list)->buffer = (address))
unsigned long copy_from_user(void *to, const void *from, unsigned long bytes);
unsigned long copy_to_user(void *to, const void *from, unsigned long bytes);
void *kmalloc_array(size_t count, size_t bytes, gfp_t flags);
void kfree(const void *memory);

void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
size_t strlen(const char *text);

#endif
