/* Pid 1 of a test's box. Orders come as lines on descriptor 0: "seed" makes a seed, any other line is run by
 * a shell in a session of its own. Each is answered by the new process' number on descriptor 1. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void order(const char *line)
{
	pid_t child = fork();
	if (child < 0)
		_exit(1);
	if (child > 0) {
		char answer[32];
		int length = snprintf(answer, sizeof answer, "%d\n", child);
		(void)!write(1, answer, length);
		return;
	}
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (strcmp(line, "seed") == 0)
		for (;;)
			pause();
	setsid();
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	close_range(3, ~0u, 0);
	execl("/bin/sh", "sh", "-c", line, NULL);
	_exit(127);
}

int main(void)
{
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	int ended = signalfd(-1, &child, SFD_CLOEXEC);
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	/* Terminals' numbers are its own as well. */
	mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620");
	(void)!write(1, "1\n", 2);
	char line[4096];
	size_t length = 0;
	for (;;) {
		struct pollfd both[2] = { { 0, POLLIN, 0 }, { ended, POLLIN, 0 } };
		if (poll(both, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (both[1].revents) {
			struct signalfd_siginfo info;
			(void)!read(ended, &info, sizeof info);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
		if (!both[0].revents)
			continue;
		ssize_t got = read(0, line + length, sizeof line - 1 - length);
		if (got <= 0)
			return 0;
		length += got;
		line[length] = 0;
		char *end;
		while ((end = strchr(line, '\n'))) {
			*end = 0;
			order(line);
			length -= end + 1 - line;
			memmove(line, end + 1, length + 1);
		}
	}
}
