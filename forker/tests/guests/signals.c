/* Signals: what is to be done with them, what is held back, what waits. */
#include "guest.h"

static volatile sig_atomic_t hits, last_value, last_code, on_stack;
static char other_stack[65536];

static void on_signal(int number, siginfo_t *info, void *context)
{
	char here;
	(void)number;
	(void)context;
	hits++;
	last_value = info->si_value.sival_int;
	last_code = info->si_code;
	on_stack = &here >= other_stack && &here < other_stack + sizeof other_stack;
}

GUEST(signals_actions)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER };
	struct sigaction ignore = { .sa_handler = SIG_IGN }, now;
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGHUP);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(sigaction(SIGRTMIN + 3, &action, NULL) == 0);
	CHECK(sigaction(SIGUSR2, &ignore, NULL) == 0);
	ready();
	wait_go();
	CHECK(sigaction(SIGUSR1, NULL, &now) == 0);
	CHECK(now.sa_sigaction == on_signal && (now.sa_flags & ~0x04000000) == action.sa_flags);
	CHECK(sigismember(&now.sa_mask, SIGHUP) == 1 && sigismember(&now.sa_mask, SIGINT) == 0);
	CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
	CHECK(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
	raise(SIGUSR2);
	raise(SIGUSR1);
	raise(SIGRTMIN + 3);
	CHECK(hits == 2);
}

GUEST(signals_alternate_stack)
{
	stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof other_stack }, now;
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	CHECK(sigaltstack(&stack, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	ready();
	wait_go();
	CHECK(sigaltstack(NULL, &now) == 0);
	CHECK(now.ss_sp == other_stack && now.ss_size == sizeof other_stack && now.ss_flags == 0);
	raise(SIGUSR1);
	CHECK(hits == 1 && on_stack);
}

GUEST(signals_pending)
{
	sigset_t set, now;
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	int queued = SIGRTMIN + 1, got[3];
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, queued);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(sigaction(queued, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	for (int value = 1; value <= 3; value++)
		CHECK(sigqueue(getpid(), queued, (union sigval){ .sival_int = value * 11 }) == 0);
	/* One for the process, one for the thread. */
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0);
	ready();
	wait_go();
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
	CHECK(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, queued) == 1 && sigismember(&now, SIGHUP) == 0);
	CHECK(sigpending(&now) == 0);
	CHECK(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGUSR2) == 1);
	CHECK(sigismember(&now, queued) == 1 && sigismember(&now, SIGHUP) == 0);
	for (int at = 0; at < 3; at++) {
		siginfo_t info;
		sigset_t one;
		sigemptyset(&one);
		sigaddset(&one, queued);
		CHECK(sigwaitinfo(&one, &info) == queued && info.si_code == SI_QUEUE);
		CHECK(info.si_pid == getpid());
		got[at] = info.si_value.sival_int;
	}
	CHECK(got[0] == 11 && got[1] == 22 && got[2] == 33);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
	CHECK(hits == 1 && last_code == SI_USER);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	int number;
	CHECK(sigwait(&set, &number) == 0 && number == SIGUSR2);
}

/* The checkpoint comes while a handler runs. */
static volatile int in_handler;

static void wait_in_handler(int number)
{
	(void)number;
	in_handler = 1;
	ready();
	wait_go();
	sigset_t now;
	sigprocmask(SIG_BLOCK, NULL, &now);
	in_handler = sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGHUP) == 1 ? 2 : 3;
}

GUEST(signals_handler_running)
{
	struct sigaction action = { .sa_handler = wait_in_handler };
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGHUP);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	double before = 1.25;
	raise(SIGUSR1);
	sigset_t now;
	CHECK(in_handler == 2 && before == 1.25);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) == 0);
}

static volatile sig_atomic_t tells;

static void tell(int number)
{
	(void)number;
	tells++;
}

/* A child's death after the checkpoint arrives. */
GUEST(signals_of_children)
{
	struct sigaction action = { .sa_handler = tell, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	pid_t child = fork();
	if (child == 0) {
		wait_go();
		_exit(3);
	}
	ready();
	wait_go();
	while (tells == 0)
		sleep_ms(1);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
}
