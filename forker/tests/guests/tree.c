/* Who is whose parent, who leads what, who is dead and not yet buried. */
#include "guest.h"

#include <grp.h>
#include <sys/prctl.h>

GUEST(tree_deep)
{
	/* A line of ten processes, each waiting for its child, the last one for the file. */
	pid_t parents[11];
	int depth = 0;
	parents[0] = getpid();
	pid_t child;
	while (depth < 10 && (child = fork()) == 0) {
		depth++;
		parents[depth] = getpid();
	}
	if (depth == 10) {
		ready();
		wait_go();
		CHECK(getpid() == parents[10] && getppid() == parents[9]);
		_exit(0);
	}
	CHECK(child > 0);
	reap(child);
	CHECK(getpid() == parents[depth]);
	if (depth > 0) {
		CHECK(getppid() == parents[depth - 1]);
		_exit(0);
	}
}

GUEST(tree_zombies)
{
	pid_t well = fork();
	if (well == 0)
		_exit(7);
	pid_t killed = fork();
	if (killed == 0) {
		raise(SIGKILL);
		_exit(0);
	}
	siginfo_t info;
	/* Dead, and left unburied. */
	CHECK(waitid(P_PID, well, &info, WEXITED | WNOWAIT) == 0);
	CHECK(waitid(P_PID, killed, &info, WEXITED | WNOWAIT) == 0);
	ready();
	wait_go();
	int status;
	CHECK(waitpid(well, &status, 0) == well && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(wait(&status) < 0 && errno == ECHILD);
}

GUEST(tree_sessions_and_groups)
{
	int reports[2];
	CHECK(pipe(reports) == 0);
	pid_t self = getpid(), leader = fork();
	CHECK(leader >= 0);
	if (leader == 0) {
		CHECK(setsid() == getpid());
		pid_t first = fork();
		if (first == 0) {
			CHECK(setpgid(0, 0) == 0);
			CHECK(write(reports[1], "1", 1) == 1);
			wait_go();
			CHECK(getpgrp() == getpid() && getsid(0) == getppid());
			_exit(0);
		}
		pid_t second = fork();
		if (second == 0) {
			char one;
			CHECK(read(reports[0], &one, 1) == 1);
			CHECK(setpgid(0, first) == 0);
			CHECK(write(reports[1], "2", 1) == 1);
			wait_go();
			CHECK(getpgrp() == first && getsid(0) == getppid());
			_exit(0);
		}
		wait_go();
		CHECK(getsid(0) == getpid() && getpgrp() == getpid() && getppid() == self);
		reap(first);
		reap(second);
		_exit(0);
	}
	char byte = 0;
	/* The second child's mark comes after the first one's was taken. */
	while (byte != '2') {
		CHECK(read(reports[0], &byte, 1) == 1);
		if (byte == '1') {
			CHECK(write(reports[1], "1", 1) == 1);
			sleep_ms(1);
		}
	}
	close(reports[0]);
	close(reports[1]);
	pid_t session = getsid(0), group = getpgrp();
	ready();
	wait_go();
	CHECK(getsid(0) == session && getpgrp() == group);
	CHECK(getsid(leader) == leader && getpgid(leader) == leader);
	reap(leader);
}

GUEST(tree_adopted_by_subreaper)
{
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid_t *orphan = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(orphan != MAP_FAILED);
	pid_t self = getpid(), between = fork();
	if (between == 0) {
		pid_t child = fork();
		if (child == 0) {
			while (getppid() != self)
				sleep_ms(1);
			orphan[1] = 1;
			wait_go();
			CHECK(getppid() == self);
			_exit(0);
		}
		*orphan = child;
		_exit(0);
	}
	reap(between);
	while (orphan[1] == 0)
		sleep_ms(1);
	ready();
	wait_go();
	int on = 0;
	CHECK(prctl(PR_GET_CHILD_SUBREAPER, &on) == 0 && on == 1);
	reap(*orphan);
}

GUEST(tree_death_signal)
{
	volatile int *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid_t self = getpid(), between = fork();
	if (between == 0) {
		pid_t child = fork();
		if (child == 0) {
			sigset_t set;
			sigemptyset(&set);
			sigaddset(&set, SIGUSR2);
			sigprocmask(SIG_BLOCK, &set, NULL);
			CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0);
			seen[0] = 1;
			int signal;
			CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR2);
			seen[1] = 1;
			_exit(0);
		}
		while (seen[0] == 0)
			sleep_ms(1);
		wait_go();
		_exit(0);
	}
	while (seen[0] == 0)
		sleep_ms(1);
	ready();
	wait_go();
	reap(between);
	int status;
	CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(seen[1] == 1 && getpid() == self);
}

GUEST(tree_stopped_child)
{
	volatile int *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0)
		for (;;) {
			(*count)++;
			sleep_ms(1);
		}
	while (*count == 0)
		sleep_ms(1);
	int status;
	CHECK(kill(child, SIGSTOP) == 0);
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	int before = *count;
	ready();
	wait_go();
	sleep_ms(20);
	CHECK(*count == before);
	CHECK(kill(child, SIGCONT) == 0);
	while (*count == before)
		sleep_ms(1);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

GUEST(tree_credentials)
{
	volatile int *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0) {
		gid_t groups[] = { 7, 1000, 70000 }, got[8];
		uid_t real, effective, saved;
		CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
		CHECK(setgroups(3, groups) == 0);
		CHECK(setresgid(11, 12, 13) == 0);
		CHECK(setresuid(1001, 1002, 1003) == 0);
		umask(037);
		char before[8192], after[8192];
		/* The guest's files belong to another user: wait for the parent's signal of "go". */
		sigset_t set;
		int signal;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigprocmask(SIG_BLOCK, &set, NULL);
		slurp("/proc/thread-self/status", before, sizeof before);
		*there = 1;
		sigwait(&set, &signal);
		slurp("/proc/thread-self/status", after, sizeof after);
		int bad = 0;
		bad |= getresuid(&real, &effective, &saved) || real != 1001 || effective != 1002 || saved != 1003;
		bad |= (getresgid(&real, &effective, &saved) || real != 11 || effective != 12 || saved != 13) << 1;
		bad |= (getgroups(8, got) != 3 || memcmp(got, groups, sizeof groups)) << 2;
		bad |= (umask(0) != 037) << 3;
		for (const char *const *word = (const char *const[]){ "CapInh:", "CapPrm:", "CapEff:", "CapBnd:",
								      "CapAmb:", "Uid:", "Gid:", "NoNewPrivs:",
								      NULL };
		     *word; word++) {
			const char *one = strstr(before, *word), *two = strstr(after, *word);
			size_t length = one ? strcspn(one, "\n") : 0;
			bad |= (!one || !two || strncmp(one, two, length)) << 4;
		}
		_exit(bad);
	}
	while (*there == 0)
		sleep_ms(1);
	ready();
	wait_go();
	CHECK(kill(child, SIGUSR1) == 0);
	reap(child);
}
