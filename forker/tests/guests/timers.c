/* Timers: what is left of them is kept. */
#include "guest.h"

#include <sys/time.h>
#include <sys/timerfd.h>

static volatile sig_atomic_t alarms, expired;

static void on_alarm(int number)
{
	(void)number;
	alarms++;
}

static void on_timer(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (info->si_code == SI_TIMER)
		expired = info->si_value.sival_int;
}

GUEST(timers_interval)
{
	struct itimerval timer = { .it_value = { 3000, 0 }, .it_interval = { 0, 250000 } }, now;
	struct itimerval virtual = { .it_value = { 5000, 0 } };
	signal(SIGALRM, on_alarm);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	CHECK(setitimer(ITIMER_VIRTUAL, &virtual, NULL) == 0);
	ready();
	wait_go();
	CHECK(getitimer(ITIMER_REAL, &now) == 0);
	CHECK(now.it_value.tv_sec >= 2800 && now.it_value.tv_sec <= 3000);
	CHECK(now.it_interval.tv_sec == 0 && now.it_interval.tv_usec == 250000);
	CHECK(getitimer(ITIMER_VIRTUAL, &now) == 0 && now.it_value.tv_sec >= 4900);
	timer.it_value.tv_sec = 0;
	timer.it_value.tv_usec = 1000;
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	while (alarms < 2)
		sleep_ms(1);
}

/* One that runs out after the checkpoint. */
GUEST(timers_alarm_comes)
{
	signal(SIGALRM, on_alarm);
	struct itimerval timer = { .it_value = { 0, 600000 } };
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	ready();
	wait_go();
	while (alarms == 0)
		sleep_ms(1);
	CHECK(alarms == 1);
}

GUEST(timers_posix)
{
	timer_t relative, absolute, unused, removed;
	struct sigaction action = { .sa_sigaction = on_timer, .sa_flags = SA_SIGINFO };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct sigevent silent = { .sigev_notify = SIGEV_NONE };
	struct itimerspec setting = { .it_value = { 3000, 0 }, .it_interval = { 7, 5 } }, now;
	CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	event.sigev_value.sival_int = 41;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &removed) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &relative) == 0);
	event.sigev_value.sival_int = 42;
	CHECK(timer_create(CLOCK_REALTIME, &event, &absolute) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &silent, &unused) == 0);
	CHECK(timer_delete(removed) == 0);
	CHECK(timer_settime(relative, 0, &setting, NULL) == 0);
	struct timespec clock;
	clock_gettime(CLOCK_REALTIME, &clock);
	setting.it_value.tv_sec = clock.tv_sec + 4000;
	CHECK(timer_settime(absolute, TIMER_ABSTIME, &setting, NULL) == 0);
	ready();
	wait_go();
	CHECK(timer_gettime(relative, &now) == 0);
	CHECK(now.it_value.tv_sec >= 2800 && now.it_value.tv_sec <= 3000);
	CHECK(now.it_interval.tv_sec == 7 && now.it_interval.tv_nsec == 5);
	CHECK(timer_gettime(absolute, &now) == 0);
	CHECK(now.it_value.tv_sec >= 3800 && now.it_value.tv_sec <= 4000);
	CHECK(timer_gettime(unused, &now) == 0 && now.it_value.tv_sec == 0);
	struct itimerspec soon = { .it_value = { 0, 1000000 } };
	CHECK(timer_settime(absolute, 0, &soon, NULL) == 0);
	while (expired == 0)
		sleep_ms(1);
	CHECK(expired == 42);
	CHECK(timer_delete(relative) == 0 && timer_delete(absolute) == 0 && timer_delete(unused) == 0);
}

GUEST(timers_descriptor)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), due = timerfd_create(CLOCK_REALTIME, 0);
	struct itimerspec setting = { .it_value = { 3000, 0 }, .it_interval = { 9, 8 } }, now;
	struct itimerspec soon = { .it_value = { 0, 1000000 } };
	uint64_t count;
	CHECK(timer >= 0 && due >= 0);
	CHECK(timerfd_settime(timer, 0, &setting, NULL) == 0);
	CHECK(timerfd_settime(due, 0, &soon, NULL) == 0);
	sleep_ms(20);
	ready();
	wait_go();
	CHECK(timerfd_gettime(timer, &now) == 0);
	CHECK(now.it_value.tv_sec >= 2800 && now.it_value.tv_sec <= 3000);
	CHECK(now.it_interval.tv_sec == 9 && now.it_interval.tv_nsec == 8);
	CHECK(read(timer, &count, 8) < 0 && errno == EAGAIN);
	/* It ran out before the checkpoint, and nobody has read it. */
	CHECK(read(due, &count, 8) == 8 && count == 1);
}
