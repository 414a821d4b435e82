/* Where the kernel says that things are. */
#include "guest.h"

#include <sys/auxv.h>

/* The lines of maps, without the heap, which grows as the guest likes. */
static void layout(char *out, size_t size)
{
	static char maps[1 << 16];
	slurp("/proc/self/maps", maps, sizeof maps);
	out[0] = 0;
	for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n"))
		if (!strstr(line, "[heap]")) {
			strncat(out, line, size - strlen(out) - 1);
			strncat(out, "\n", size - strlen(out) - 1);
		}
}

GUEST(memory_layout)
{
	static char before[1 << 16], after[1 << 16];
	layout(before, sizeof before);
	ready();
	wait_go();
	layout(after, sizeof after);
	if (strcmp(before, after) != 0) {
		put_file("layout.before", before);
		put_file("layout.after", after);
	}
	CHECK(strcmp(before, after) == 0);
}

GUEST(memory_vdso)
{
	unsigned long vdso = getauxval(AT_SYSINFO_EHDR);
	char expected[32], maps[1 << 16];
	struct timespec first, second;
	CHECK(vdso != 0 && memcmp((void *)vdso, "\177ELF", 4) == 0);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &first) == 0);
	ready();
	wait_go();
	snprintf(expected, sizeof expected, "%lx-", vdso);
	slurp("/proc/self/maps", maps, sizeof maps);
	char *line = strstr(maps, expected);
	CHECK(line != NULL && strncmp(line + strcspn(line, "["), "[vdso]", 6) == 0);
	CHECK(memcmp((void *)vdso, "\177ELF", 4) == 0);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &second) == 0);
	CHECK(second.tv_sec > first.tv_sec ||
	      (second.tv_sec == first.tv_sec && second.tv_nsec >= first.tv_nsec));
	CHECK(time(NULL) > 1600000000);
}

GUEST(memory_brk)
{
	char *start = sbrk(0);
	CHECK(sbrk(10001) == start);
	memset(start, 'q', 10001);
	char *end = sbrk(0);
	ready();
	wait_go();
	CHECK(sbrk(0) == end);
	for (char *at = start; at < end; at++)
		CHECK(*at == 'q');
	CHECK(sbrk(1 << 20) == end);
	for (char *at = end; at < end + (1 << 20); at++)
		CHECK(*at == 0);
	CHECK(sbrk(-(1 << 20)) != (void *)-1);
	CHECK(sbrk(0) == end);
	char maps[1 << 16];
	slurp("/proc/self/maps", maps, sizeof maps);
	CHECK(strstr(maps, "[heap]") && strstr(maps, "[stack]"));
}

GUEST(memory_description)
{
	static char command[4096], environment[1 << 16], vector[4096], again[1 << 16];
	char exe[4096], exe_again[4096];
	size_t command_length = slurp("/proc/self/cmdline", command, sizeof command);
	size_t environment_length = slurp("/proc/self/environ", environment, sizeof environment);
	size_t vector_length = slurp("/proc/self/auxv", vector, sizeof vector);
	ssize_t exe_length = readlink("/proc/self/exe", exe, sizeof exe);
	CHECK(command_length > 0 && vector_length > 0 && exe_length > 0);
	ready();
	wait_go();
	CHECK(slurp("/proc/self/cmdline", again, sizeof again) == command_length);
	CHECK(memcmp(command, again, command_length) == 0);
	CHECK(slurp("/proc/self/environ", again, sizeof again) == environment_length);
	CHECK(memcmp(environment, again, environment_length) == 0);
	CHECK(slurp("/proc/self/auxv", again, sizeof again) == vector_length);
	CHECK(memcmp(vector, again, vector_length) == 0);
	CHECK(readlink("/proc/self/exe", exe_again, sizeof exe_again) == exe_length);
	CHECK(memcmp(exe, exe_again, exe_length) == 0);
}
