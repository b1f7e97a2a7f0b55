// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the kernel's lib/ and its tests take from the rest of the kernel, for a program that is one test and
 * nothing else: memory, random numbers from a seed, locks that are always free, a log that nobody reads. What needs
 * the kernel's structures is in kernel.c.
 *
 * Compiled without the kernel's headers: registers and memory are what its calls are made of.
 */
#include "fakes.h"

enum { PAGE = 4096, MIN_CLASS = 6, CLASSES = 22, GFP_ZERO = 0x100, GFP_WAITS = 0x400, OFFSETS = 4096 };

u8 heap[HEAP_BYTES] KEPT __attribute__((aligned(HEAP_ALIGN)));
KEPT static u8 class_of_page[HEAP_BYTES / PAGE];	/* of all blocks in it */
static u8 *heap_next;
static struct freed { struct freed *next; } *freed[CLASSES];
static u32 random_state;
static u64 time_ns;

u32 warnings;
u32 absences;

/* --- the heap: blocks of a power of two, 64 bytes at least, aligned to their size as the kernel's are --- */

void fakes_begin(u32 seed)
{
	heap_next = heap;
	for (u32 i = 0; i < CLASSES; i++)
		freed[i] = NULL;
	random_state = seed | 1;
	time_ns = 0;
	warnings = 0;
	absences = 0;
}

/* A call of what is neither in lib/ nor here: the test does not run alone. */
void absent(void)
{
	absences++;
}

/* Blocks of a class, from pages that were never used. */
static void refill(u32 class)
{
	u32 bytes = class < 12 ? PAGE : 1u << class;
	u8 *first = (u8 *)(((u32)heap_next + bytes - 1) & -bytes);

	if (first - heap > HEAP_BYTES - (ptrdiff_t)bytes)
		return;
	heap_next = first + bytes;
	class_of_page[(first - heap) / PAGE] = class;
	for (u8 *block = heap_next - (1u << class); block >= first; block -= 1u << class) {
		((struct freed *)block)->next = freed[class];
		freed[class] = (void *)block;
	}
}

void *allocate(u32 bytes, u32 flags)
{
	u32 class = bytes <= 1 << MIN_CLASS ? MIN_CLASS : 32 - __builtin_clz(bytes - 1);
	u8 *block;

	if (!bytes)
		return ZERO_SIZE;
	if (class >= CLASSES)
		return NULL;
	if (!freed[class])
		refill(class);
	/* Whoever may wait waits for what is behind a grace period. */
	if (!freed[class] && flags & GFP_WAITS)
		rcu_barrier();
	block = (void *)freed[class];
	if (!block)
		return NULL;
	freed[class] = freed[class]->next;
	if (flags & GFP_ZERO)
		memset(block, 0, bytes);
	return block;
}

static u32 class_of(const void *block)
{
	return class_of_page[((const u8 *)block - heap) / PAGE];
}

void release(const void *block)
{
	struct freed *one = (struct freed *)block;
	u32 class;

	if (block <= ZERO_SIZE)
		return;
	class = class_of(block);
	one->next = freed[class];
	freed[class] = one;
}

void *__kmalloc_noprof(u32 bytes, u32 flags) { return allocate(bytes, flags); }
void *__kmalloc_cache_noprof(void *cache, u32 flags, u32 bytes) { return allocate(bytes, flags); }
void *__kmalloc_cache_node_noprof(void *cache, u32 flags, int node, u32 bytes) { return allocate(bytes, flags); }
void *__kmalloc_node_noprof(u32 bytes, u32 flags, int node) { return allocate(bytes, flags); }
void *__kmalloc_large_noprof(u32 bytes, u32 flags) { return allocate(bytes, flags); }
void *__kvmalloc_node_noprof(u32 bytes, u32 flags, int node) { return allocate(bytes, flags); }
void *__kmalloc_node_track_caller_noprof(u32 bytes, u32 flags, int node) { return allocate(bytes, flags); }
void *vmalloc_noprof(u32 bytes) { return allocate(bytes, 0); }
void *vzalloc_noprof(u32 bytes) { return allocate(bytes, GFP_ZERO); }
void *__vmalloc_noprof(u32 bytes, u32 flags) { return allocate(bytes, flags); }
void kfree(const void *block) { release(block); }
void kvfree(const void *block) { release(block); }
void vfree(const void *block) { release(block); }
u32 ksize(const void *block) { return block > ZERO_SIZE ? 1u << class_of(block) : 0; }

void *kmemdup_noprof(const void *from, u32 bytes, u32 flags)
{
	void *to = allocate(bytes, flags);

	return to ? memcpy(to, from, bytes) : NULL;
}

void *kmemdup_array(const void *from, u32 count, u32 bytes, u32 flags)
{
	return kmemdup_noprof(from, count * bytes, flags);
}

char *kstrdup(const char *text, u32 flags)
{
	return text ? kmemdup_noprof(text, strlen(text) + 1, flags) : NULL;
}

const char *kstrdup_const(const char *text, u32 flags) { return kstrdup(text, flags); }
void kfree_const(const void *block) { release(block); }

void *krealloc_noprof(const void *old, u32 bytes, u32 flags)
{
	u32 had = ksize(old);
	void *new;

	if (bytes && bytes <= had)
		return (void *)old;
	new = allocate(bytes, flags);
	if (new && bytes)
		memcpy(new, old, had);
	if (new)
		release(old);
	return new;
}

void *kvrealloc_noprof(const void *old, u32 bytes, u32 flags) { return krealloc_noprof(old, bytes, flags); }

/* --- caches of objects --- */

struct kmem_cache {
	u32 bytes;
	void (*construct)(void *object);
};

/* struct kmem_cache_args: alignment first; the constructor is its sixth word. */
struct kmem_cache *__kmem_cache_create_args(const char *name, u32 bytes, const u32 *arguments, u32 flags)
{
	struct kmem_cache *cache = allocate(sizeof(*cache), 0);

	/* As blocks are aligned to their size. */
	cache->bytes = bytes > arguments[0] ? bytes : arguments[0];
	cache->construct = (void (*)(void *))arguments[5];
	return cache;
}

void *kmem_cache_alloc_noprof(struct kmem_cache *cache, u32 flags)
{
	void *object = allocate(cache->bytes, flags);

	if (object && cache->construct)
		cache->construct(object);
	return object;
}

void *kmem_cache_alloc_lru_noprof(struct kmem_cache *cache, void *lru, u32 flags)
{
	return kmem_cache_alloc_noprof(cache, flags);
}

int kmem_cache_alloc_bulk_noprof(struct kmem_cache *cache, u32 flags, u32 count, void **objects)
{
	for (u32 i = 0; i < count; i++)
		objects[i] = kmem_cache_alloc_noprof(cache, flags);
	return count;
}

void kmem_cache_free(struct kmem_cache *cache, void *object) { release(object); }
void kmem_cache_destroy(struct kmem_cache *cache) { release(cache); }

void kmem_cache_free_bulk(struct kmem_cache *cache, u32 count, void **objects)
{
	for (u32 i = 0; i < count; i++)
		release(objects[i]);
}

/* --- callbacks behind a grace period, which ends where settle() is called --- */

struct rcu_head {
	struct rcu_head *next;
	void (*function)(struct rcu_head *head);
};

static struct rcu_head *waiting;

void call_rcu(struct rcu_head *head, void (*function)(struct rcu_head *))
{
	head->next = waiting;
	head->function = function;
	waiting = head;
}

void rcu_barrier(void)
{
	while (waiting) {
		struct rcu_head *head = waiting;

		waiting = head->next;
		/* A small number is where the head is in what is to be freed. */
		if ((u32)head->function < OFFSETS)
			release((u8 *)head - (u32)head->function);
		else
			head->function(head);
	}
}

void synchronize_rcu(void) { rcu_barrier(); }

/* --- random numbers, time --- */

u32 get_random_u32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	random_state ^= random_state << 5;
	return random_state;
}

u8 get_random_u8(void) { return get_random_u32(); }
u16 get_random_u16(void) { return get_random_u32(); }
u64 get_random_u64(void) { return (u64)get_random_u32() << 32 | get_random_u32(); }
u32 __get_random_u32_below(u32 ceiling) { return (u64)get_random_u32() * ceiling >> 32; }

void get_random_bytes(void *to, u32 bytes)
{
	for (u8 *at = to; bytes--; at++)
		*at = get_random_u32();
}

u64 ktime_get(void) { return time_ns += 1000; }
unsigned long jiffies, loops_per_jiffy = 1000000, lpj_fine;

void pass_time(u32 ms)
{
	time_ns += (u64)ms * 1000000;
	jiffies += ms / 10 + 1;
}

/* --- locks, tasks, the log --- */

void mutex_lock(void *lock) { }
void mutex_unlock(void *lock) { }
void __mutex_init(void *lock, const char *name, void *key) { }
void down_write(void *lock) { }
void up_write(void *lock) { }
void __init_rwsem(void *lock, const char *name, void *key) { }
void __local_bh_enable_ip(u32 address, u32 count) { }
int __cond_resched(void) { return 0; }
void schedule(void) { }
int wake_up_process(void *task) { return 0; }
void add_taint(u32 flag, int lockdep) { }
void __aeabi_unwind_cpp_pr0(void) { }
void __aeabi_unwind_cpp_pr1(void) { }

/* Of caches and the parameters of modules only that they are there. */
u32 kmalloc_caches[256];
u32 param_ops_int[8], param_ops_uint[8], param_ops_bool[8], param_ops_ulong[8], param_ops_charp[8];
