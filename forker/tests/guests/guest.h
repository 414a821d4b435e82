/* What all guests share. A guest is a function: it sets something up, calls ready(), calls wait_go() (or blocks
 * in the call that it is about), and checks that everything is as it was. All guests are one program;
 * the first argument names the guest. Files are named relative to the working directory. */
#ifndef GUEST_H
#define GUEST_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void guest_function(void);

/* Registers a guest under its name. */
void guest_register(const char *name, guest_function *function);

#define GUEST(name)                                                                    \
	static void name(void);                                                        \
	__attribute__((constructor)) static void register_##name(void)                 \
	{                                                                              \
		guest_register(#name, name);                                           \
	}                                                                              \
	static void name(void)

/* Tells that everything is set up: creates the file "ready". */
void ready(void);
/* Whether the file "go" is there. */
int may_go(void);
/* Waits until it is. */
void wait_go(void);
/* Sleeps so many milliseconds, whatever interrupts it. */
void sleep_ms(long ms);
/* Milliseconds of CLOCK_MONOTONIC. */
long now_ms(void);
/* Adds a line to the file "verdict": "ok" or what failed. */
void verdict(const char *line);
/* Says what failed and ends the process. */
__attribute__((noreturn)) void fail(const char *file, int line, const char *what);

#define CHECK(condition)                                                               \
	do {                                                                           \
		if (!(condition))                                                      \
			fail(__FILE__, __LINE__, #condition);                          \
	} while (0)

/* Waits for a child and checks that it ended with status 0. */
void reap(pid_t child);
/* Fills memory with a pattern that depends on the address' position and the seed; and checks it. */
void pattern_fill(void *memory, size_t bytes, unsigned seed);
int pattern_holds(const void *memory, size_t bytes, unsigned seed);
/* The file's text, cut at the size of the buffer and ended by a zero; its length. */
size_t slurp(const char *path, char *buffer, size_t size);
/* Whether reading (or writing) the address ends in a signal. */
int faults_on_read(volatile char *address);
int faults_on_write(volatile char *address);
/* Creates a file with a text. */
void put_file(const char *path, const char *text);

#endif
