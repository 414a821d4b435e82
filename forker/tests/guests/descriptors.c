/* Descriptors of files and of what the kernel keeps behind them. */
#include "guest.h"

#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>

GUEST(files_positions_and_flags)
{
	char text[16] = "";
	int file = open("file", O_RDWR | O_CREAT, 0666), append = open("file", O_WRONLY | O_APPEND | O_CLOEXEC);
	CHECK(file >= 0 && append >= 0 && write(file, "0123456789", 10) == 10);
	CHECK(lseek(file, 4, SEEK_SET) == 4);
	int copy = dup2(file, 77), again = open("file", O_RDONLY);
	CHECK(copy == 77 && again >= 0);
	ready();
	wait_go();
	CHECK(read(copy, text, 2) == 2 && memcmp(text, "45", 2) == 0);
	/* A duplicate moves along, another description does not. */
	CHECK(lseek(file, 0, SEEK_CUR) == 6 && lseek(again, 0, SEEK_CUR) == 0);
	CHECK(write(append, "ab", 2) == 2);
	CHECK(pread(again, text, 15, 0) == 12 && memcmp(text, "0123456789ab", 12) == 0);
	CHECK((fcntl(append, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_WRONLY | O_APPEND));
	CHECK(fcntl(append, F_GETFD) == FD_CLOEXEC && fcntl(file, F_GETFD) == 0);
}

GUEST(files_unlinked_and_renamed)
{
	char text[16] = "", link[4096];
	int gone = open("gone", O_RDWR | O_CREAT, 0666), moved = open("old name", O_RDWR | O_CREAT, 0666);
	CHECK(write(gone, "unlinked", 8) == 8 && write(moved, "renamed", 7) == 7);
	CHECK(unlink("gone") == 0 && rename("old name", "new name") == 0);
	put_file("old name", "another");
	ready();
	wait_go();
	CHECK(pread(gone, text, 8, 0) == 8 && memcmp(text, "unlinked", 8) == 0);
	CHECK(write(gone, "!", 1) == 1 && lseek(gone, 0, SEEK_END) == 9);
	CHECK(pread(moved, text, 7, 0) == 7 && memcmp(text, "renamed", 7) == 0);
	snprintf(text, sizeof text, "%d", moved);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", moved);
	ssize_t length = readlink(path, link, sizeof link - 1);
	CHECK(length > 9 && memcmp(link + length - 9, "/new name", 9) == 0);
}

GUEST(files_directory_position)
{
	char name[32];
	CHECK(mkdir("many", 0777) == 0);
	for (int at = 0; at < 50; at++) {
		snprintf(name, sizeof name, "many/%d", at);
		put_file(name, "");
	}
	DIR *directory = opendir("many");
	int raw = open("many", O_RDONLY | O_DIRECTORY), pathlike = open("many", O_PATH);
	CHECK(directory != NULL && raw >= 0 && pathlike >= 0);
	char buffer[512];
	long got = syscall(SYS_getdents64, raw, buffer, sizeof buffer);
	CHECK(got > 0);
	int seen = 0;
	for (long at = 0; at < got; at += *(unsigned short *)(buffer + at + 16))
		seen++;
	ready();
	wait_go();
	while ((got = syscall(SYS_getdents64, raw, buffer, sizeof buffer)) > 0)
		for (long at = 0; at < got; at += *(unsigned short *)(buffer + at + 16))
			seen++;
	CHECK(got == 0 && seen == 52);
	CHECK(faccessat(pathlike, "7", F_OK, 0) == 0);
	CHECK((fcntl(pathlike, F_GETFL) & O_PATH) != 0);
	closedir(directory);
}

/* Whether another process could lock the file. */
static int free_for_others(const char *path, int kind)
{
	pid_t child = fork();
	if (child == 0) {
		int file = open(path, O_RDWR);
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
		int free = kind == 0 ? flock(file, LOCK_EX | LOCK_NB) == 0
			   : kind == 1 ? fcntl(file, F_SETLK, &lock) == 0
				       : fcntl(file, F_OFD_SETLK, &lock) == 0;
		_exit(free);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

GUEST(files_locks)
{
	int file[3];
	const char *names[] = { "flock", "posix", "description" };
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 8, .l_len = 4 };
	for (int at = 0; at < 3; at++) {
		put_file(names[at], "some text in it");
		file[at] = open(names[at], O_RDWR);
		CHECK(file[at] >= 0);
	}
	CHECK(flock(file[0], LOCK_EX) == 0);
	CHECK(fcntl(file[1], F_SETLK, &lock) == 0);
	CHECK(fcntl(file[2], F_OFD_SETLK, &lock) == 0);
	ready();
	wait_go();
	for (int at = 0; at < 3; at++)
		CHECK(!free_for_others(names[at], at));
	CHECK(flock(file[0], LOCK_UN) == 0);
	lock.l_type = F_UNLCK;
	CHECK(fcntl(file[1], F_SETLK, &lock) == 0 && fcntl(file[2], F_OFD_SETLK, &lock) == 0);
	for (int at = 0; at < 3; at++)
		CHECK(free_for_others(names[at], at));
}

GUEST(pipes_with_content)
{
	int ends[2], packets[2], left, size;
	char text[32] = "";
	CHECK(pipe2(ends, O_NONBLOCK) == 0 && pipe2(packets, O_DIRECT) == 0);
	CHECK(fcntl(ends[0], F_SETPIPE_SZ, 16384) == 16384);
	CHECK(write(ends[1], "in the pipe", 11) == 11);
	CHECK(write(packets[1], "one", 3) == 3 && write(packets[1], "three", 5) == 5);
	ready();
	wait_go();
	CHECK(ioctl(ends[0], FIONREAD, &left) == 0 && left == 11);
	size = fcntl(ends[0], F_GETPIPE_SZ);
	CHECK(size == 16384);
	CHECK(read(ends[0], text, 31) == 11 && strcmp(text, "in the pipe") == 0);
	CHECK(read(ends[0], text, 31) < 0 && errno == EAGAIN);
	CHECK(write(ends[1], "more", 4) == 4 && read(ends[0], text, 31) == 4);
	CHECK(read(packets[0], text, 31) == 3 && read(packets[0], text, 31) == 5);
	CHECK(close(ends[1]) == 0 && read(ends[0], text, 31) == 0);
}

GUEST(pipes_named)
{
	char text[32] = "";
	CHECK(mkfifo("fifo", 0666) == 0);
	int both = open("fifo", O_RDWR | O_NONBLOCK), out = open("fifo", O_WRONLY | O_NONBLOCK);
	CHECK(both >= 0 && out >= 0 && write(out, "through a name", 14) == 14);
	ready();
	wait_go();
	CHECK(read(both, text, 31) == 14 && strcmp(text, "through a name") == 0);
	/* A newcomer meets the same pipe. */
	int newcomer = open("fifo", O_WRONLY | O_NONBLOCK);
	CHECK(newcomer >= 0 && write(newcomer, "x", 1) == 1 && read(both, text, 31) == 1);
}

GUEST(pipes_between_processes)
{
	int down[2], up[2];
	char text[8] = "";
	CHECK(pipe(down) == 0 && pipe(up) == 0);
	pid_t child = fork();
	if (child == 0) {
		char got[8];
		close(down[1]);
		close(up[0]);
		ssize_t length;
		while ((length = read(down[0], got, sizeof got)) > 0)
			CHECK(write(up[1], got, length) == length);
		_exit(length == 0 ? 0 : 1);
	}
	close(down[0]);
	close(up[1]);
	CHECK(write(down[1], "a", 1) == 1 && read(up[0], text, 8) == 1);
	ready();
	wait_go();
	CHECK(write(down[1], "bcd", 3) == 3 && read(up[0], text, 8) == 3 && memcmp(text, "bcd", 3) == 0);
	CHECK(close(down[1]) == 0 && read(up[0], text, 8) == 0);
	reap(child);
}

GUEST(descriptors_event)
{
	uint64_t value;
	int counter = eventfd(41, EFD_NONBLOCK), semaphore = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
	CHECK(counter >= 0 && semaphore >= 0);
	value = 1;
	CHECK(write(counter, &value, 8) == 8);
	ready();
	wait_go();
	CHECK(read(counter, &value, 8) == 8 && value == 42);
	CHECK(read(counter, &value, 8) < 0 && errno == EAGAIN);
	CHECK(read(semaphore, &value, 8) == 8 && value == 1);
	CHECK(read(semaphore, &value, 8) == 8 && read(semaphore, &value, 8) == 8);
	CHECK(read(semaphore, &value, 8) < 0 && errno == EAGAIN);
}

GUEST(descriptors_epoll)
{
	int set = epoll_create1(EPOLL_CLOEXEC), inner = epoll_create1(0);
	int one = eventfd(0, 0), edge = eventfd(0, 0), spent = eventfd(0, 0);
	uint64_t value = 1;
	struct epoll_event event, events[8];
	CHECK(set >= 0 && inner >= 0);
	event.events = EPOLLIN;
	event.data.u64 = 0x1122334455667788;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &event) == 0);
	event.events = EPOLLIN | EPOLLET;
	event.data.u64 = 2;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, edge, &event) == 0);
	event.events = EPOLLIN | EPOLLONESHOT;
	event.data.u64 = 3;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, spent, &event) == 0);
	event.events = EPOLLIN;
	event.data.u64 = 4;
	CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, set, &event) == 0);
	CHECK(write(spent, &value, 8) == 8);
	CHECK(epoll_wait(set, events, 8, 0) == 1 && events[0].data.u64 == 3);
	CHECK(epoll_wait(set, events, 8, 0) == 0);
	ready();
	wait_go();
	/* What was told once is not told again, before and after. */
	CHECK(epoll_wait(set, events, 8, 0) == 0);
	CHECK(write(one, &value, 8) == 8);
	CHECK(epoll_wait(inner, events, 8, 1000) == 1 && events[0].data.u64 == 4);
	CHECK(epoll_wait(set, events, 8, 1000) == 1 && events[0].data.u64 == 0x1122334455667788);
	CHECK(write(edge, &value, 8) == 8);
	CHECK(epoll_wait(set, events, 8, 1000) == 2);
	CHECK(epoll_wait(set, events, 8, 1000) == 1);
	event.events = EPOLLIN;
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, spent, &event) == 0);
	CHECK(epoll_wait(set, events, 8, 1000) == 2);
}

GUEST(descriptors_signal)
{
	sigset_t set;
	struct signalfd_siginfo info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	int file = signalfd(-1, &set, SFD_NONBLOCK);
	CHECK(file >= 0 && kill(getpid(), SIGUSR1) == 0);
	ready();
	wait_go();
	CHECK(read(file, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
	CHECK(read(file, &info, sizeof info) < 0 && errno == EAGAIN);
	CHECK(kill(getpid(), SIGUSR2) == 0);
	CHECK(read(file, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR2);
}

GUEST(descriptors_inotify)
{
	char buffer[4096] __attribute__((aligned(8)));
	CHECK(mkdir("watched", 0777) == 0);
	put_file("watched/file", "");
	int file = inotify_init1(IN_NONBLOCK);
	int first = inotify_add_watch(file, "watched", IN_CREATE | IN_DELETE);
	int second = inotify_add_watch(file, "watched/file", IN_MODIFY);
	CHECK(file >= 0 && first >= 0 && second >= 0);
	ready();
	wait_go();
	CHECK(read(file, buffer, sizeof buffer) < 0 && errno == EAGAIN);
	put_file("watched/new", "");
	struct inotify_event *event = (struct inotify_event *)buffer;
	CHECK(read(file, buffer, sizeof buffer) > 0);
	CHECK(event->wd == first && event->mask == IN_CREATE && strcmp(event->name, "new") == 0);
	int watched = open("watched/file", O_WRONLY);
	CHECK(write(watched, "x", 1) == 1);
	CHECK(read(file, buffer, sizeof buffer) > 0 && event->wd == second && event->mask == IN_MODIFY);
}

GUEST(descriptors_devices)
{
	char text[8];
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDONLY), full = open("/dev/full", O_WRONLY);
	int random = open("/dev/urandom", O_RDONLY);
	CHECK(null >= 0 && zero >= 0 && full >= 0 && random >= 0);
	ready();
	wait_go();
	CHECK(write(null, "x", 1) == 1 && read(null, text, 8) == 0);
	CHECK(read(zero, text, 8) == 8 && text[0] == 0 && text[7] == 0);
	CHECK(write(full, "x", 1) < 0 && errno == ENOSPC);
	CHECK(read(random, text, 8) == 8);
}

/* Processes made with CLONE_FILES see each other's descriptors; duplicates in others see positions. */
GUEST(descriptors_shared_description)
{
	int file = open("file", O_RDWR | O_CREAT, 0666);
	CHECK(write(file, "abcdef", 6) == 6 && lseek(file, 0, SEEK_SET) == 0);
	pid_t child = fork();
	if (child == 0) {
		char text[2];
		wait_go();
		CHECK(read(file, text, 2) == 2);
		_exit(0);
	}
	ready();
	wait_go();
	reap(child);
	CHECK(lseek(file, 0, SEEK_CUR) == 2);
}
