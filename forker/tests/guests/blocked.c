/* Calls that wait while the checkpoint is taken: they go on as if nothing had been. */
#include "guest.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Starts a child that waits for the file "go" and then does something. */
static pid_t later(void (*what)(int), int argument)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		wait_go();
		what(argument);
		_exit(0);
	}
	return child;
}

static void write_byte(int file)
{
	CHECK(write(file, "b", 1) == 1);
}

static void add_one(int file)
{
	uint64_t one = 1;
	CHECK(write(file, &one, 8) == 8);
}

/* Not interrupted and not too short; how long is told by the clock that goes on. */
GUEST(blocked_in_sleep)
{
	long start = now_ms();
	struct timespec time = { 0, 800000000 };
	ready();
	CHECK(nanosleep(&time, NULL) == 0);
	CHECK(now_ms() - start >= 800);
	wait_go();
}

GUEST(blocked_in_sleep_until)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 1;
	ready();
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	CHECK(now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
	wait_go();
}

GUEST(blocked_in_poll)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t child = later(write_byte, ends[1]);
	struct pollfd wanted = { .fd = ends[0], .events = POLLIN };
	ready();
	CHECK(poll(&wanted, 1, -1) == 1 && wanted.revents == POLLIN);
	reap(child);
}

GUEST(blocked_in_poll_with_timeout)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	struct pollfd wanted = { .fd = ends[0], .events = POLLIN };
	long start = now_ms();
	ready();
	CHECK(poll(&wanted, 1, 800) == 0);
	CHECK(now_ms() - start >= 800);
	wait_go();
}

GUEST(blocked_in_select)
{
	int ends[2];
	fd_set set;
	CHECK(pipe(ends) == 0);
	pid_t child = later(write_byte, ends[1]);
	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	struct timeval limit = { 3000, 0 };
	ready();
	CHECK(select(ends[0] + 1, &set, NULL, NULL, &limit) == 1 && FD_ISSET(ends[0], &set));
	CHECK(limit.tv_sec <= 3000);
	reap(child);
}

GUEST(blocked_in_epoll_wait)
{
	int set = epoll_create1(0), counter = eventfd(0, 0);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 5 }, got;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
	pid_t child = later(add_one, counter);
	ready();
	CHECK(epoll_wait(set, &got, 1, -1) == 1 && got.data.u64 == 5);
	reap(child);
}

GUEST(blocked_in_futex_with_timeout)
{
	static int word;
	struct timespec time = { 0, 800000000 };
	long start = now_ms();
	ready();
	CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0) < 0 && errno == ETIMEDOUT);
	CHECK(now_ms() - start >= 800);
	wait_go();
}

GUEST(blocked_in_futex)
{
	int *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0) {
		wait_go();
		__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
		_exit(0);
	}
	ready();
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0) {
		long answer = syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
		/* The rules of the kernel: woken, or the word had changed. Never interrupted. */
		CHECK(answer == 0 || errno == EAGAIN);
	}
	reap(child);
}

GUEST(blocked_in_pipe_read)
{
	int ends[2];
	char byte = 0;
	CHECK(pipe(ends) == 0);
	pid_t child = later(write_byte, ends[1]);
	ready();
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'b');
	reap(child);
}

static void drain(int file)
{
	char buffer[4096];
	size_t total = 0;
	while (total < 200000) {
		ssize_t got = read(file, buffer, sizeof buffer);
		CHECK(got > 0);
		for (ssize_t at = 0; at < got; at++)
			CHECK(buffer[at] == (char)((total + at) * 7));
		total += got;
	}
}

GUEST(blocked_in_pipe_write)
{
	int ends[2];
	static char much[200000];
	for (size_t at = 0; at < sizeof much; at++)
		much[at] = at * 7;
	CHECK(pipe(ends) == 0);
	pid_t child = later(drain, ends[0]);
	ready();
	/* Stopped in the middle, the kernel tells the part that went through: it is not written again. */
	for (size_t done = 0; done < sizeof much;) {
		ssize_t part = write(ends[1], much + done, sizeof much - done);
		CHECK(part > 0);
		done += part;
	}
	reap(child);
}

static void nothing(int unused)
{
	(void)unused;
}

GUEST(blocked_in_wait)
{
	pid_t child = later(nothing, 0);
	int status;
	ready();
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
}

static void connect_to(int unused)
{
	(void)unused;
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "listening" };
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(client, (void *)&address, sizeof address) == 0);
	CHECK(write(client, "b", 1) == 1);
}

GUEST(blocked_in_accept)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "listening" };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte;
	CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
	pid_t child = later(connect_to, 0);
	ready();
	int server = accept(listener, NULL, NULL);
	CHECK(server >= 0 && read(server, &byte, 1) == 1);
	reap(child);
}

GUEST(blocked_in_receive)
{
	int pair[2];
	char byte;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid_t child = later(write_byte, pair[1]);
	ready();
	CHECK(recv(pair[0], &byte, 1, 0) == 1 && byte == 'b');
	reap(child);
}

static void signal_parent(int number)
{
	CHECK(kill(getppid(), number) == 0);
}

GUEST(blocked_in_sigwait)
{
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	pid_t child = later(signal_parent, SIGUSR1);
	ready();
	/* May be interrupted by the rules of the kernel, for it never restarts by itself. */
	int got;
	while ((got = sigwaitinfo(&set, &info)) < 0 && errno == EINTR)
		;
	CHECK(got == SIGUSR1 && info.si_pid == child);
	reap(child);
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
	(void)number;
	handled++;
}

GUEST(blocked_in_sigsuspend)
{
	sigset_t all, mask, now;
	sigfillset(&all);
	sigemptyset(&mask);
	sigaddset(&mask, SIGHUP);
	signal(SIGUSR1, handle);
	CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	pid_t child = later(signal_parent, SIGUSR1);
	ready();
	CHECK(sigsuspend(&mask) < 0 && errno == EINTR && handled == 1);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
	CHECK(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGTERM) == 1);
	reap(child);
}

GUEST(blocked_in_pause)
{
	signal(SIGUSR1, handle);
	pid_t child = later(signal_parent, SIGUSR1);
	ready();
	CHECK(pause() < 0 && errno == EINTR && handled == 1);
	reap(child);
}

GUEST(blocked_in_flock)
{
	int own = open("locked", O_RDWR | O_CREAT, 0666);
	CHECK(own >= 0 && flock(own, LOCK_EX) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(own);
		int other = open("locked", O_RDWR);
		ready();
		CHECK(other >= 0 && flock(other, LOCK_EX) == 0);
		CHECK(may_go());
		_exit(0);
	}
	wait_go();
	CHECK(flock(own, LOCK_UN) == 0);
	reap(child);
}

/* A restart by the kernel is not seen by the program. */
GUEST(blocked_read_restarted_after_signal)
{
	int ends[2];
	char byte = 0;
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	CHECK(pipe(ends) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	pid_t child = fork();
	if (child == 0) {
		wait_go();
		CHECK(kill(getppid(), SIGUSR1) == 0);
		sleep_ms(20);
		CHECK(write(ends[1], "b", 1) == 1);
		_exit(0);
	}
	ready();
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'b');
	reap(child);
}
