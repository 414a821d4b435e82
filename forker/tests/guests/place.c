/* Where a process stands and what it is allowed. */
#include "guest.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

GUEST(place_working_directory)
{
	char before[4096], after[4096];
	CHECK(mkdir("below", 0777) == 0 && chdir("below") == 0);
	CHECK(getcwd(before, sizeof before) != NULL);
	put_file("here", "text");
	/* The file "go" is one directory up from here. */
	CHECK(symlink("../go", "go") == 0);
	CHECK(chdir("..") == 0);
	ready();
	CHECK(chdir("below") == 0);
	wait_go();
	CHECK(getcwd(after, sizeof after) != NULL);
	CHECK(strcmp(before, after) == 0 && access("here", F_OK) == 0);
	CHECK(chdir("..") == 0);
}

GUEST(place_limits)
{
	struct rlimit files = { 100, 200 }, core = { 0, 12345 }, stack, stack_before;
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_CORE, &core) == 0);
	CHECK(getrlimit(RLIMIT_STACK, &stack_before) == 0);
	ready();
	wait_go();
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur == 100 && files.rlim_max == 200);
	CHECK(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 0 && core.rlim_max == 12345);
	CHECK(getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur == stack_before.rlim_cur);
}

GUEST(place_names_and_scheduling)
{
	char name[32] = "", score[32];
	cpu_set_t processors;
	CPU_ZERO(&processors);
	CPU_SET(0, &processors);
	CHECK(prctl(PR_SET_NAME, "odd ) name") == 0);
	CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0);
	CHECK(sched_setaffinity(0, sizeof processors, &processors) == 0);
	CHECK(prctl(PR_SET_TIMERSLACK, 70000) == 0);
	put_file("/proc/self/oom_score_adj", "300");
	ready();
	wait_go();
	CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "odd ) name") == 0);
	errno = 0;
	CHECK(getpriority(PRIO_PROCESS, 0) == 5 && errno == 0);
	CPU_ZERO(&processors);
	CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) == 1);
	CHECK(prctl(PR_GET_TIMERSLACK) == 70000);
	slurp("/proc/self/oom_score_adj", score, sizeof score);
	CHECK(atoi(score) == 300);
}

GUEST(place_own_proc_files)
{
	char before[4096], after[4096];
	int status = open("/proc/self/status", O_RDONLY), directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	CHECK(status >= 0 && directory >= 0);
	ssize_t length = pread(status, before, sizeof before - 1, 0);
	CHECK(length > 0);
	before[length] = 0;
	ready();
	wait_go();
	length = pread(status, after, sizeof after - 1, 0);
	CHECK(length > 0);
	after[length] = 0;
	char *one = strstr(before, "\nPid:"), *two = strstr(after, "\nPid:");
	CHECK(one && two && strncmp(one, two, strcspn(one + 1, "\n")) == 0);
	CHECK(faccessat(directory, "0", F_OK, 0) == 0 || errno == ENOENT);
	close(directory);
}
