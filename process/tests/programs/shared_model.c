/* A tree of processes that share memory copy-on-write, and each of which changes its part at random.
 *
 * Each process knows for each page of a window whether it is mapped, its protection and the number
 * that its contents are made of, and compares all pages in each round. Usage: shared_model SEED
 * PROCESSES. Output: "ok PROCESS ROUND" and "DIFFERS ...". */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 1024, PAGE = 4096, READ_WRITE = PROT_READ | PROT_WRITE };

static char *const window = (char *)0x200000000000;
static struct {
    uint32_t number; /* 0: zeros */
    uint8_t mapped, protection;
} pages[PAGES];
static uint64_t chance;
static int self;

static uint32_t below(uint32_t limit)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (uint32_t)(chance % limit);
}

static void say(const char *format, ...)
{
    char line[200];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (write(1, line, (size_t)length) != length)
        _exit(9);
}

static void check(int holds, const char *what)
{
    if (holds)
        return;
    say("DIFFERS: process %d cannot %s: %m\n", self, what);
    _exit(8);
}

static uint64_t word(uint32_t number, int at)
{
    if (number == 0)
        return 0;
    return (number * 0x9e3779b97f4a7c15ull) ^ ((uint64_t)(at + 1) * 0xff51afd7ed558ccdull);
}

static void put(int page, uint32_t number)
{
    uint64_t *words = (uint64_t *)(window + (size_t)page * PAGE);
    for (int at = 0; at < PAGE / 8; at++)
        words[at] = word(number, at);
    pages[page].number = number;
}

static void protect(int from, int count, int protection)
{
    check(mprotect(window + (size_t)from * PAGE, (size_t)count * PAGE, protection) == 0, "protect");
    for (int page = from; page < from + count; page++)
        pages[page].protection = (uint8_t)protection;
}

/* The pages from `from` on, `count` at most, that are mapped. */
static int mapped(int from, int count)
{
    int found = 0;
    while (found < count && from + found < PAGES && pages[from + found].mapped)
        found++;
    return found;
}

static int free_pages(int from, int count)
{
    int found = 0;
    while (found < count && from + found < PAGES && !pages[from + found].mapped)
        found++;
    return found;
}

static void map(int from, int count)
{
    char *at = window + (size_t)from * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    check(mmap(at, (size_t)count * PAGE, READ_WRITE, flags, -1, 0) == at, "map");
    for (int page = from; page < from + count; page++) {
        pages[page].mapped = 1;
        pages[page].protection = READ_WRITE;
        pages[page].number = 0;
    }
}

static void unmap(int from, int count)
{
    check(munmap(window + (size_t)from * PAGE, (size_t)count * PAGE) == 0, "unmap");
    memset(&pages[from], 0, sizeof pages[0] * (size_t)count);
}

/* Moves pages of one mapping, if they are. */
static void move(int from, int count, int to)
{
    char *old = window + (size_t)from * PAGE, *new = window + (size_t)to * PAGE;
    size_t bytes = (size_t)count * PAGE;
    if (mremap(old, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, new) != new)
        return;
    memcpy(&pages[to], &pages[from], sizeof pages[0] * (size_t)count);
    memset(&pages[from], 0, sizeof pages[0] * (size_t)count);
}

static void change(void)
{
    int from = (int)below(PAGES), most = 1 + (int)below(24);
    int count = mapped(from, most);
    switch (below(20)) {
    case 0:
        if (count > 0)
            unmap(from, count);
        break;
    case 1:
    case 2:
        count = free_pages(from, most);
        if (count > 0)
            map(from, count);
        break;
    case 3:
        if (count > 0) {
            const int kinds[] = {PROT_NONE, PROT_READ, READ_WRITE, READ_WRITE};
            protect(from, count, kinds[below(4)]);
        }
        break;
    case 4:
        if (count > 0) {
            char *at = window + (size_t)from * PAGE;
            check(madvise(at, (size_t)count * PAGE, MADV_DONTNEED) == 0, "drop");
            for (int page = from; page < from + count; page++)
                pages[page].number = 0;
        }
        break;
    case 5: {
        int to = (int)below(PAGES), room = free_pages(to, count);
        if (room > 0)
            move(from, room, to);
        break;
    }
    default:
        for (int page = from; page < from + count; page++) {
            if (pages[page].protection != READ_WRITE)
                protect(page, 1, READ_WRITE);
            put(page, below(8) == 0 ? 7 : (uint32_t)(chance >> 20) | 1);
        }
    }
}

static void compare(void)
{
    for (int page = 0; page < PAGES; page++) {
        if (!pages[page].mapped)
            continue;
        int protection = pages[page].protection;
        if (!(protection & PROT_READ))
            protect(page, 1, PROT_READ);
        const uint64_t *words = (const uint64_t *)(window + (size_t)page * PAGE);
        for (int at = 0; at < PAGE / 8; at++) {
            if (words[at] != word(pages[page].number, at)) {
                say("DIFFERS: process %d page %d word %d: %lx, not %lx\n", self, page, at, words[at],
                    word(pages[page].number, at));
                _exit(7);
            }
        }
        if (!(protection & PROT_READ))
            protect(page, 1, protection);
    }
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    uint64_t seed = strtoull(arguments[1], NULL, 10);
    int processes = atoi(arguments[2]), next = 1;
    chance = seed * 0x9e3779b97f4a7c15ull | 1;
    signal(SIGCHLD, SIG_IGN);
    map(0, PAGES * 3 / 4);
    for (int page = 0; page < PAGES * 3 / 4; page++)
        if (below(10) != 0)
            put(page, (uint32_t)(chance >> 20) | 1);
    /* Each process makes some of those that are left. */
    for (int left = processes - 1; left > 0;) {
        for (uint32_t changes = below(20); changes > 0; changes--)
            change();
        int of_child = 1 + (int)below((uint32_t)left);
        pid_t child = fork();
        check(child >= 0, "fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            self = next;
            chance += (uint64_t)self * 0x632be59bd9b4e019ull;
            left = of_child - 1;
            next++;
        } else {
            left -= of_child;
            next += of_child;
        }
    }
    for (int round = 0;; round++) {
        compare();
        say("ok %d %d\n", self, round);
        for (uint32_t changes = below(4); changes > 0; changes--)
            change();
        struct timespec time = {0, 20000000};
        nanosleep(&time, NULL);
    }
}
