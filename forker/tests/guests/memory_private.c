/* Private memory of all kinds. */
#include "guest.h"

#define PAGE 4096ul
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

static char *map(size_t bytes, int protection, int flags)
{
	char *memory = mmap(NULL, bytes, protection, flags, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static int in_data = 1;
static int in_bss[3000];
static const char text[] = "constant";

GUEST(memory_private)
{
	char *heap = malloc(3 << 20);
	char *plain = map(64 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS);
	char *closed = map(8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS);
	char *fixed = map(8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS);
	char *code = map(PAGE, PROT_READ | PROT_WRITE, ANONYMOUS);
	char *huge = map(6 << 20, PROT_READ | PROT_WRITE, ANONYMOUS);
	pattern_fill(heap, 3 << 20, 1);
	pattern_fill(plain, 16 * PAGE, 2);
	pattern_fill(closed, 8 * PAGE, 3);
	pattern_fill(fixed, 8 * PAGE, 4);
	pattern_fill(huge, 6 << 20, 5);
	/* mov eax, 42; ret */
	memcpy(code, "\xb8\x2a\0\0\0\xc3", 6);
	CHECK(mprotect(closed, 8 * PAGE, PROT_NONE) == 0);
	CHECK(mprotect(fixed, 8 * PAGE, PROT_READ) == 0);
	CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
	in_data = 77;
	in_bss[2999] = 78;
	ready();
	wait_go();
	CHECK(pattern_holds(heap, 3 << 20, 1));
	CHECK(pattern_holds(plain, 16 * PAGE, 2));
	for (size_t at = 16 * PAGE; at < 64 * PAGE; at++)
		CHECK(plain[at] == 0);
	CHECK(faults_on_read(closed) && faults_on_write(closed));
	CHECK(mprotect(closed, 8 * PAGE, PROT_READ) == 0);
	CHECK(pattern_holds(closed, 8 * PAGE, 3));
	CHECK(faults_on_write(fixed));
	CHECK(pattern_holds(fixed, 8 * PAGE, 4));
	CHECK(pattern_holds(huge, 6 << 20, 5));
	CHECK(((int (*)(void))code)() == 42);
	CHECK(in_data == 77 && in_bss[2999] == 78 && in_bss[0] == 0 && text[0] == 'c');
	/* What allocators rely on: given back, it is zero; grown, it is more of the same. */
	CHECK(madvise(plain, 16 * PAGE, MADV_DONTNEED) == 0 && plain[5] == 0);
	CHECK(madvise(huge, 6 << 20, MADV_FREE) == 0);
	char *grown = mremap(heap - 16, 4096 * ((3 << 20) / 4096 + 1), 8 << 20, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED);
	CHECK(pattern_holds(grown + 16, 3 << 20, 1));
	grown[(8 << 20) - 1] = 1;
}

static int depth(int left)
{
	volatile char frame[4096];
	frame[0] = left;
	return left ? depth(left - 1) + frame[0] - frame[0] + 1 : 0;
}

GUEST(memory_guards)
{
	char *stack = map(16 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS);
	pattern_fill(stack, 16 * PAGE, 1);
	int guarded = madvise(stack + 4 * PAGE, 2 * PAGE, MADV_GUARD_INSTALL) == 0;
	char *below = map(64 * PAGE, PROT_NONE, ANONYMOUS | MAP_NORESERVE);
	char *down = mmap(below + 48 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE,
			  ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	CHECK(down != MAP_FAILED);
	munmap(below, 48 * PAGE);
	pattern_fill(down, 8 * PAGE, 2);
	depth(20);
	ready();
	wait_go();
	if (guarded) {
		CHECK(faults_on_read(stack + 4 * PAGE) && faults_on_write(stack + 6 * PAGE - 1));
		CHECK(pattern_holds(stack, 4 * PAGE, 1));
		CHECK(!faults_on_write(stack + 6 * PAGE));
	}
	CHECK(faults_on_read(below + 60 * PAGE));
	CHECK(pattern_holds(down, 8 * PAGE, 2));
	down[-1] = 5;
	CHECK(down[-1] == 5);
	/* The stack of the process grows as before. */
	CHECK(depth(1000) == 1000);
}

GUEST(memory_sparse)
{
	size_t terabyte = 1ul << 40;
	char *sparse = map(terabyte, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_NORESERVE);
	char *reserved = map(terabyte, PROT_NONE, ANONYMOUS | MAP_NORESERVE);
	for (size_t at = 0; at < terabyte; at += terabyte / 16)
		pattern_fill(sparse + at, PAGE, at >> 30);
	ready();
	wait_go();
	for (size_t at = 0; at < terabyte; at += terabyte / 16) {
		CHECK(pattern_holds(sparse + at, PAGE, at >> 30));
		CHECK(sparse[at + PAGE] == 0);
	}
	CHECK(faults_on_read(reserved + terabyte / 2));
	CHECK(mprotect(reserved + terabyte / 2, PAGE, PROT_READ | PROT_WRITE) == 0);
	reserved[terabyte / 2] = 1;
}

/* The words of VmFlags for the mapping that begins at the address, each followed by a blank. */
static void flags_of(const char *address, char *flags, size_t size)
{
	static char smaps[1 << 20];
	char start[32];
	slurp("/proc/self/smaps", smaps, sizeof smaps);
	snprintf(start, sizeof start, "%lx-", (unsigned long)address);
	char *at = strstr(smaps, start);
	CHECK(at != NULL);
	at = strstr(at, "VmFlags:");
	CHECK(at != NULL);
	at += 9;
	snprintf(flags, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static int has_flag(const char *address, const char *flag)
{
	char flags[256];
	flags_of(address, flags, sizeof flags);
	return strstr(flags, flag) != NULL;
}

GUEST(memory_advice)
{
	static const struct {
		int advice;
		const char *flag;
	} kinds[] = {
		{ MADV_DONTFORK, "dc" }, { MADV_WIPEONFORK, "wf" }, { MADV_DONTDUMP, "dd" },
		{ MADV_HUGEPAGE, "hg" }, { MADV_NOHUGEPAGE, "nh" }, { MADV_MERGEABLE, "mg" },
		{ MADV_SEQUENTIAL, "sr" }, { MADV_RANDOM, "rr" },
	};
	enum { COUNT = sizeof kinds / sizeof *kinds };
	char *memory[COUNT];
	int given[COUNT];
	/* Unmapped pages between them keep the kernel from joining them. */
	char *area = map(COUNT * 8 * PAGE, PROT_NONE, ANONYMOUS);
	for (int at = 0; at < COUNT; at++) {
		memory[at] = area + at * 8 * PAGE;
		CHECK(mprotect(memory[at], 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
		pattern_fill(memory[at], 4 * PAGE, at);
		given[at] = madvise(memory[at], 4 * PAGE, kinds[at].advice) == 0;
	}
	CHECK(given[0] && given[1]);
	ready();
	wait_go();
	for (int at = 0; at < COUNT; at++) {
		CHECK(pattern_holds(memory[at], 4 * PAGE, at));
		if (given[at])
			CHECK(has_flag(memory[at], kinds[at].flag));
	}
	CHECK(!has_flag(memory[0], "wf"));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(faults_on_read(memory[0]));
		CHECK(memory[1][0] == 0 && memory[1][4 * PAGE - 1] == 0);
		CHECK(pattern_holds(memory[2], 4 * PAGE, 2));
		_exit(0);
	}
	reap(child);
}

GUEST(memory_locked)
{
	char *area = map(48 * PAGE, PROT_NONE, ANONYMOUS);
	char *now = area + 8 * PAGE, *later = area + 24 * PAGE;
	CHECK(mprotect(now, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(mprotect(later, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	pattern_fill(now, 2 * PAGE, 1);
	pattern_fill(later, 2 * PAGE, 2);
	CHECK(mlock(now, 4 * PAGE) == 0);
	CHECK(syscall(SYS_mlock2, later, 4 * PAGE, 1 /* MLOCK_ONFAULT */) == 0);
	CHECK(!has_flag(area, "lo"));
	CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
	ready();
	wait_go();
	CHECK(has_flag(now, "lo") && !has_flag(now, "lf"));
	CHECK(has_flag(later, "lo") && has_flag(later, "lf"));
	CHECK(!has_flag(area, "lo"));
	CHECK(pattern_holds(now, 2 * PAGE, 1) && pattern_holds(later, 2 * PAGE, 2));
	char *future = map(20 * PAGE, PROT_READ, ANONYMOUS);
	CHECK(has_flag(future, "lo") && has_flag(future, "lf"));
}

GUEST(memory_droppable)
{
	char *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
	/* Older kernels have none. */
	int there = memory != MAP_FAILED;
	if (there)
		memset(memory, 1, 4 * PAGE);
	ready();
	wait_go();
	if (there) {
		CHECK(has_flag(memory, "dp"));
		/* In the original it is as it was, restored it is empty; never anything between. */
		CHECK(memory[0] == memory[4 * PAGE - 1] && (memory[0] == 0 || memory[0] == 1));
		memory[0] = 1;
	}
}

GUEST(memory_file_private)
{
	char line[PAGE];
	int file = open("private", O_RDWR | O_CREAT, 0666);
	CHECK(file >= 0);
	for (int page = 0; page < 8; page++) {
		memset(line, 'a' + page, PAGE);
		CHECK(write(file, line, PAGE) == (ssize_t)PAGE);
	}
	char *copy = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	char *tail = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 6 * PAGE);
	CHECK(copy != MAP_FAILED && tail != MAP_FAILED);
	close(file);
	memset(copy + 2 * PAGE, 'X', PAGE);
	memset(copy + 3 * PAGE, 0, PAGE);
	tail[PAGE] = 'Y';
	int gone = open("unlinked", O_RDWR | O_CREAT, 0666);
	CHECK(gone >= 0 && write(gone, line, PAGE) == (ssize_t)PAGE);
	char *unlinked = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, gone, 0);
	CHECK(unlinked != MAP_FAILED);
	close(gone);
	CHECK(unlink("unlinked") == 0);
	CHECK(mprotect(copy, 4 * PAGE, PROT_READ) == 0);
	ready();
	wait_go();
	CHECK(copy[0] == 'a' && copy[2 * PAGE] == 'X' && copy[3 * PAGE] == 0 && copy[8 * PAGE - 1] == 'h');
	CHECK(tail[0] == 'g' && tail[PAGE] == 'Y' && tail[PAGE + 1] == 'h');
	CHECK(unlinked[0] == 'h');
	/* A dropped copy shows the file again. */
	CHECK(madvise(tail, 2 * PAGE, MADV_DONTNEED) == 0 && tail[PAGE] == 'h');
	CHECK(faults_on_write(copy) && !faults_on_write(copy + 4 * PAGE));
	char maps[1 << 16];
	slurp("/proc/self/maps", maps, sizeof maps);
	CHECK(strstr(maps, "/private\n") != NULL);
}

GUEST(memory_file_shared)
{
	int file = open("shared", O_RDWR | O_CREAT, 0666);
	CHECK(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	char *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *second = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, PAGE);
	CHECK(memory != MAP_FAILED && second != MAP_FAILED);
	close(file);
	memory[PAGE] = 'b';
	ready();
	wait_go();
	CHECK(memory[PAGE] == 'b' && second[0] == 'b');
	memory[PAGE] = 'c';
	CHECK(second[0] == 'c');
	char buffer[2 * PAGE];
	file = open("shared", O_RDONLY);
	CHECK(pread(file, buffer, 2 * PAGE, 0) == 2 * (ssize_t)PAGE && buffer[PAGE] == 'c');
}
