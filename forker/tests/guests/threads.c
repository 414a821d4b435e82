/* Threads and what each has of its own. */
#include "guest.h"

#include <sys/prctl.h>

enum { THREADS = 50 };

static pthread_barrier_t at_work, all_done;
static __thread long own;
static long sums[THREADS];
static pid_t ids[THREADS];

static void *count(void *argument)
{
	long index = (long)argument;
	char name[16];
	own = index * 1000;
	ids[index] = gettid();
	snprintf(name, sizeof name, "thread %ld", index);
	prctl(PR_SET_NAME, name);
	pthread_barrier_wait(&at_work);
	while (!may_go()) {
		own++;
		sums[index]++;
		sleep_ms(1 + index % 3);
	}
	char now[16] = "";
	prctl(PR_GET_NAME, now);
	CHECK(strcmp(name, now) == 0);
	CHECK(own == index * 1000 + sums[index]);
	CHECK(gettid() == ids[index]);
	pthread_barrier_wait(&all_done);
	return argument;
}

GUEST(threads_fifty)
{
	pthread_t threads[THREADS];
	pthread_barrier_init(&at_work, NULL, THREADS + 1);
	pthread_barrier_init(&all_done, NULL, THREADS);
	for (long at = 0; at < THREADS; at++)
		CHECK(pthread_create(&threads[at], NULL, count, (void *)at) == 0);
	pthread_barrier_wait(&at_work);
	ready();
	wait_go();
	for (long at = 0; at < THREADS; at++) {
		void *result;
		CHECK(pthread_join(threads[at], &result) == 0 && result == (void *)at);
	}
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn;

static void *take_turns(void *argument)
{
	int own_turn = (int)(long)argument;
	for (int round = 0; round < 3; round++) {
		pthread_mutex_lock(&mutex);
		while (turn % 2 != own_turn)
			pthread_cond_wait(&condition, &mutex);
		turn++;
		pthread_cond_broadcast(&condition);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

/* Threads wait on a mutex and on a condition variable: no wake-up may be lost. */
GUEST(threads_waiting_on_each_other)
{
	pthread_t one, two;
	pthread_mutex_lock(&mutex);
	CHECK(pthread_create(&one, NULL, take_turns, (void *)0) == 0);
	CHECK(pthread_create(&two, NULL, take_turns, (void *)1) == 0);
	ready();
	wait_go();
	CHECK(turn == 0);
	pthread_mutex_unlock(&mutex);
	CHECK(pthread_join(one, NULL) == 0 && pthread_join(two, NULL) == 0);
	CHECK(turn == 6);
}

static pthread_mutex_t *robust;

static void *die_with_it(void *argument)
{
	(void)argument;
	CHECK(pthread_mutex_lock(robust) == 0);
	ready();
	wait_go();
	/* Ends while it holds the mutex. */
	return NULL;
}

GUEST(threads_robust_mutex)
{
	robust = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_mutex_init(robust, &attributes) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, die_with_it, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pthread_mutex_lock(robust) == EOWNERDEAD);
	CHECK(pthread_mutex_consistent(robust) == 0);
	CHECK(pthread_mutex_unlock(robust) == 0);
}

#ifndef RSEQ_SIG
#define RSEQ_SIG 0x53053053
#endif

GUEST(threads_rseq)
{
	/* glibc registers an area of its own: a second one is refused, unless it was lost. */
	static char area[1024] __attribute__((aligned(1024)));
	long before = syscall(SYS_rseq, area, 32, 0, RSEQ_SIG);
	int error_before = errno;
	ready();
	wait_go();
	if (before < 0) {
		long after = syscall(SYS_rseq, area, 32, 0, RSEQ_SIG);
		CHECK(after < 0 && errno == error_before);
	} else {
		/* Registered here, and so it still is. */
		CHECK(syscall(SYS_rseq, area, 32, 1, RSEQ_SIG) == 0);
	}
}

/* The main thread has ended, the others go on. */
static void *outlive(void *argument)
{
	(void)argument;
	char path[64], stat[512];
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", getpid(), getpid());
	do {
		sleep_ms(1);
		slurp(path, stat, sizeof stat);
	} while (strstr(stat, ") Z ") == NULL);
	ready();
	wait_go();
	slurp(path, stat, sizeof stat);
	CHECK(strstr(stat, ") Z ") != NULL);
	verdict("ok\n");
	exit(0);
}

GUEST(threads_without_leader)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, outlive, NULL) == 0);
	pthread_exit(NULL);
}
