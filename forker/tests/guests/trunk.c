/* Threads, trees and calls in progress. */
#include "guest.h"

#include <emmintrin.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>

GUEST(counting)
{
	static volatile unsigned long counter;
	int file = open("counter", O_RDWR | O_CREAT, 0666);
	int ends[2];
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], "kept", 4) == 4);
	ready();
	/* At least once: the file may hold what the original wrote later. */
	do {
		counter++;
		CHECK(pwrite(file, (void *)&counter, 8, 0) == 8);
	} while (!may_go());
	unsigned long seen;
	CHECK(pread(file, &seen, 8, 0) == 8);
	CHECK(seen == counter);
	char text[4];
	CHECK(read(ends[0], text, 4) == 4 && memcmp(text, "kept", 4) == 0);
}

enum { THREADS = 50 };
static struct {
	pid_t tid;
	char name[16];
	void *self;
} seen[THREADS];
static pthread_barrier_t barrier;
static volatile int turn;

static void *one_of_many(void *argument)
{
	long number = (long)argument;
	snprintf(seen[number].name, 16, "thread-%ld", number);
	prctl(PR_SET_NAME, seen[number].name);
	seen[number].tid = syscall(SYS_gettid);
	seen[number].self = (void *)pthread_self();
	__m128i vector = _mm_set1_epi32(number + 1);
	pthread_barrier_wait(&barrier);
	while (!turn) {
		/* Vector registers live across the checkpoint. */
		__asm__ volatile("pause" : "+x"(vector));
		if (number % 2)
			usleep(1000);
	}
	char name[16];
	prctl(PR_GET_NAME, name);
	CHECK(strcmp(name, seen[number].name) == 0);
	CHECK(seen[number].tid == syscall(SYS_gettid));
	CHECK(seen[number].self == (void *)pthread_self());
	CHECK(_mm_cvtsi128_si32(_mm_shuffle_epi32(vector, 3)) == number + 1);
	return argument;
}

GUEST(fifty_threads)
{
	pthread_t threads[THREADS];
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (long at = 0; at < THREADS; at++)
		CHECK(pthread_create(&threads[at], &small, one_of_many, (void *)at) == 0);
	pthread_barrier_wait(&barrier);
	ready();
	wait_go();
	turn = 1;
	for (long at = 0; at < THREADS; at++) {
		void *result;
		CHECK(pthread_join(threads[at], &result) == 0 && result == (void *)at);
	}
}

static volatile int deliveries;
static void deliver(int signal)
{
	(void)signal;
	deliveries++;
}

GUEST(signal_state)
{
	struct sigaction action = { .sa_handler = deliver, .sa_flags = SA_RESTART | SA_ONSTACK };
	sigaddset(&action.sa_mask, SIGUSR2);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(sigaction(SIGRTMIN + 3, &action, NULL) == 0);
	signal(SIGPIPE, SIG_IGN);
	static char stack[32768];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack }, now;
	CHECK(sigaltstack(&alternate, NULL) == 0);
	sigset_t blocked, before;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigaddset(&blocked, SIGRTMIN + 3);
	CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
	union sigval value = { .sival_int = 77 };
	CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
	CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
	raise(SIGUSR1);
	ready();
	wait_go();
	struct sigaction found;
	CHECK(sigaction(SIGUSR1, NULL, &found) == 0);
	CHECK(found.sa_handler == deliver);
	CHECK((found.sa_flags & (SA_RESTART | SA_ONSTACK | SA_NODEFER)) == (SA_RESTART | SA_ONSTACK));
	CHECK(sigismember(&found.sa_mask, SIGUSR2));
	CHECK(sigaction(SIGPIPE, NULL, &found) == 0 && found.sa_handler == SIG_IGN);
	CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && now.ss_size == sizeof stack);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	CHECK(sigismember(&before, SIGUSR1) && !sigismember(&before, SIGUSR2));
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigset_t queued;
	sigemptyset(&queued);
	sigaddset(&queued, SIGRTMIN + 3);
	CHECK(sigtimedwait(&queued, &info, &none) == SIGRTMIN + 3 && info.si_value.sival_int == 77);
	CHECK(deliveries == 0);
	CHECK(sigprocmask(SIG_UNBLOCK, &blocked, NULL) == 0);
	CHECK(deliveries == 2);
}

GUEST(timers_running)
{
	signal(SIGALRM, deliver);
	signal(SIGUSR1, deliver);
	struct itimerval interval = { { 0, 0 }, { 1, 500000 } }, rest;
	CHECK(setitimer(ITIMER_REAL, &interval, NULL) == 0);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	timer_t timer, other;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &other) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	CHECK(timer_delete(other) == 0);
	struct itimerspec long_time = { { 0, 0 }, { 1000, 0 } }, left;
	CHECK(timer_settime(timer, 0, &long_time, NULL) == 0);
	ready();
	CHECK(timer_gettime(timer, &left) == 0);
	CHECK(left.it_value.tv_sec > 100 && left.it_value.tv_sec <= 1000);
	wait_go();
	CHECK(timer_gettime(timer, &left) == 0);
	CHECK(left.it_value.tv_sec > 100 && left.it_value.tv_sec <= 1000);
	CHECK(getitimer(ITIMER_REAL, &rest) == 0);
	while (deliveries == 0)
		sleep_ms(5);
	CHECK(deliveries == 1);
}

/* A tree of three generations with sessions, groups, an orphan and a zombie. */
GUEST(family)
{
	int orders[2];
	CHECK(pipe(orders) == 0);
	pid_t zombie = fork();
	if (zombie == 0)
		_exit(42);
	pid_t killed = fork();
	if (killed == 0) {
		raise(SIGKILL);
		_exit(0);
	}
	pid_t child = fork();
	if (child == 0) {
		pid_t before = getppid();
		setsid();
		pid_t grandchild = fork();
		char byte;
		if (grandchild == 0) {
			setpgid(0, 0);
			pid_t parent = getppid(), session = getsid(0);
			CHECK(read(orders[0], &byte, 1) == 1);
			CHECK(getppid() == parent && getsid(0) == session && session == parent);
			CHECK(getpgrp() == getpid());
			_exit(7);
		}
		pid_t self = getpid();
		CHECK(read(orders[0], &byte, 1) == 1);
		CHECK(getsid(0) == self && getpgrp() == self && getppid() == before);
		int status;
		CHECK(waitpid(grandchild, &status, 0) == grandchild && WEXITSTATUS(status) == 7);
		_exit(0);
	}
	/* An orphan in a session whose leader is gone. */
	pid_t leader = fork();
	int told[2];
	CHECK(pipe(told) == 0);
	if (leader == 0) {
		setsid();
		pid_t orphan = fork();
		if (orphan == 0) {
			pid_t session = getsid(0);
			while (getppid() != 1)
				sleep_ms(1);
			CHECK(write(orders[1], "", 0) == 0);
			char byte;
			CHECK(read(orders[0], &byte, 1) == 1);
			CHECK(getsid(0) == session && getppid() == 1);
			put_file("orphan", "ok");
			_exit(0);
		}
		_exit(0);
	}
	CHECK(waitpid(leader, NULL, 0) == leader);
	siginfo_t info;
	CHECK(waitid(P_PID, zombie, &info, WEXITED | WNOWAIT) == 0);
	CHECK(waitid(P_PID, killed, &info, WEXITED | WNOWAIT) == 0);
	sleep_ms(20);
	ready();
	wait_go();
	CHECK(write(orders[1], "abc", 3) == 3);
	int status;
	CHECK(waitpid(zombie, &status, 0) == zombie);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	CHECK(waitpid(killed, &status, 0) == killed);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	reap(child);
	while (access("orphan", F_OK))
		sleep_ms(2);
}

/* Credentials, limits and settings. */
GUEST(settings)
{
	char here[256], home[256];
	CHECK(getcwd(home, sizeof home));
	umask(027);
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0);
	CHECK(prctl(PR_SET_TIMERSLACK, 123456) == 0);
	struct { int resource; unsigned long soft, hard; } limit = { 7, 100, 200 };
	unsigned long values[2] = { limit.soft, limit.hard };
	CHECK(syscall(SYS_prlimit64, 0, limit.resource, values, NULL) == 0);
	gid_t groups[3] = { 5, 6, 7 };
	CHECK(syscall(SYS_setgroups, 3, groups) == 0);
	CHECK(setresgid(1, 2, 3) == 0);
	CHECK(setresuid(11, 0, 13) == 0);
	prctl(PR_SET_DUMPABLE, 1);
	ready();
	wait_go();
	CHECK(getcwd(here, sizeof here) && strcmp(here, home) == 0);
	CHECK(umask(0) == 027);
	int reaper = 0, death = 0;
	CHECK(prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper == 1);
	CHECK(prctl(PR_GET_PDEATHSIG, &death) == 0);
	CHECK(prctl(PR_GET_TIMERSLACK) == 123456);
	CHECK(prctl(PR_GET_DUMPABLE) == 1);
	CHECK(syscall(SYS_prlimit64, 0, 7, NULL, values) == 0 && values[0] == 100 && values[1] == 200);
	CHECK(getgroups(3, groups) == 3 && groups[0] == 5 && groups[2] == 7);
	uid_t ids[3];
	CHECK(getresuid(&ids[0], &ids[1], &ids[2]) == 0 && ids[0] == 11 && ids[1] == 0 && ids[2] == 13);
	CHECK(getresgid(&ids[0], &ids[1], &ids[2]) == 0 && ids[0] == 1 && ids[1] == 2 && ids[2] == 3);
}

/* Calls in progress: each blocks in the call until its other thread acts, which waits for "go". */
static int ends[2];

static void *act_pipe(void *unused)
{
	(void)unused;
	wait_go();
	CHECK(write(ends[1], "x", 1) == 1);
	return NULL;
}

static void with_other(void *(*act)(void *), void (*block)(void))
{
	pthread_t other;
	CHECK(pipe(ends) == 0);
	CHECK(pthread_create(&other, NULL, act, NULL) == 0);
	ready();
	block();
	CHECK(may_go());
	CHECK(pthread_join(other, NULL) == 0);
}

static void block_read(void)
{
	char byte;
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
}

GUEST(in_read)
{
	with_other(act_pipe, block_read);
}

static void block_poll(void)
{
	struct pollfd one = { ends[0], POLLIN, 0 };
	CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
}

GUEST(in_poll)
{
	with_other(act_pipe, block_poll);
}

static void block_poll_limit(void)
{
	struct pollfd one = { ends[0], POLLIN, 0 };
	CHECK(poll(&one, 1, 600000) == 1 && one.revents == POLLIN);
}

GUEST(in_poll_with_limit)
{
	with_other(act_pipe, block_poll_limit);
}

static void block_select(void)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	struct timeval limit = { 600, 0 };
	CHECK(select(ends[0] + 1, &set, NULL, NULL, &limit) == 1);
}

GUEST(in_select)
{
	with_other(act_pipe, block_select);
}

static void block_epoll(void)
{
	int set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 99 };
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	event.data.u64 = 0;
	CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 99);
}

GUEST(in_epoll_wait)
{
	with_other(act_pipe, block_epoll);
}

static int word;
static void *act_futex(void *unused)
{
	(void)unused;
	wait_go();
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return NULL;
}

static void block_futex_limit(void)
{
	struct timespec limit = { 600, 0 };
	while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
		long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0);
		CHECK(result == 0 || errno == EAGAIN);
	}
}

GUEST(in_futex_with_limit)
{
	with_other(act_futex, block_futex_limit);
}

static void block_futex(void)
{
	while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
		long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
		CHECK(result == 0 || errno == EAGAIN);
	}
}

GUEST(in_futex)
{
	with_other(act_futex, block_futex);
}

GUEST(in_wait4)
{
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		wait_go();
		_exit(9);
	}
	ready();
	int status;
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
}

GUEST(in_nanosleep)
{
	struct timespec time = { 2, 0 }, rest = { 0, 0 };
	ready();
	CHECK(nanosleep(&time, &rest) == 0);
	wait_go();
}

GUEST(in_clock_nanosleep_absolute)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 2;
	ready();
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	CHECK(now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
	wait_go();
}

static void *act_signal(void *target)
{
	wait_go();
	CHECK(pthread_kill(*(pthread_t *)target, SIGUSR1) == 0);
	return NULL;
}

/* A call that a handler interrupts still answers EINTR. */
GUEST(in_pause)
{
	pthread_t self = pthread_self(), other;
	struct sigaction action = { .sa_handler = deliver };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&other, NULL, act_signal, &self) == 0);
	ready();
	errno = 0;
	CHECK(pause() == -1 && errno == EINTR && deliveries == 1);
	CHECK(may_go());
	CHECK(pthread_join(other, NULL) == 0);
}

GUEST(in_sigsuspend)
{
	pthread_t self = pthread_self(), other;
	struct sigaction action = { .sa_handler = deliver };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	sigset_t blocked, open;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	CHECK(pthread_create(&other, NULL, act_signal, &self) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &blocked, &open) == 0);
	ready();
	CHECK(sigsuspend(&open) == -1 && errno == EINTR && deliveries == 1);
	sigset_t now;
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
	CHECK(pthread_join(other, NULL) == 0);
}

GUEST(in_accept)
{
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr name = { .sa_family = AF_UNIX, .sa_data = "\0accepting" };
	CHECK(bind(listener, &name, sizeof name) == 0 && listen(listener, 1) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(listener);
		wait_go();
		int one = socket(AF_UNIX, SOCK_STREAM, 0);
		CHECK(connect(one, &name, sizeof name) == 0);
		CHECK(write(one, "hello", 5) == 5);
		_exit(0);
	}
	ready();
	int one = accept(listener, NULL, NULL);
	CHECK(one >= 0);
	char text[5];
	CHECK(read(one, text, 5) == 5 && memcmp(text, "hello", 5) == 0);
	reap(child);
}

/* A stopped process stays stopped until it is continued. */
GUEST(stopped_child)
{
	static volatile int *counter;
	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0)
		for (;;) {
			if (*counter < 0)
				_exit(0);
			++*counter;
			usleep(100);
		}
	while (*counter == 0)
		usleep(100);
	int status;
	CHECK(kill(child, SIGSTOP) == 0);
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	ready();
	wait_go();
	int before = *counter;
	sleep_ms(50);
	CHECK(*counter == before);
	*counter = -1;
	CHECK(kill(child, SIGCONT) == 0);
	reap(child);
}

static void *short_life(void *unused)
{
	return unused;
}

/* Forks, makes threads and ends all the time. */
GUEST(storm)
{
	enum { BRANCHES = 4 };
	pid_t branches[BRANCHES];
	for (int at = 0; at < BRANCHES; at++) {
		branches[at] = fork();
		if (branches[at])
			continue;
		while (!may_go()) {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				pthread_t thread;
				CHECK(pthread_create(&thread, NULL, short_life, NULL) == 0);
				if (at % 2)
					CHECK(pthread_join(thread, NULL) == 0);
				_exit(at);
			}
			int status;
			CHECK(waitpid(child, &status, 0) == child);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == at);
		}
		_exit(0);
	}
	ready();
	for (int at = 0; at < BRANCHES; at++)
		reap(branches[at]);
}
