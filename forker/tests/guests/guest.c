#include "guest.h"

#include <net/if.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static struct {
	const char *name;
	guest_function *function;
} guests[256];
static int guest_count;

void guest_register(const char *name, guest_function *function)
{
	guests[guest_count].name = name;
	guests[guest_count].function = function;
	guest_count++;
}

/* Each verdict is a line: two trees may run from one image, and a parent may say "ok" after a child
 * failed, which changes nothing. */
void verdict(const char *text)
{
	int file = open("verdict", O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (file < 0)
		return;
	(void)!write(file, text, strlen(text));
	close(file);
}

void fail(const char *file, int line, const char *what)
{
	char text[512];
	int error = errno;
	const char *base = strrchr(file, '/');
	snprintf(text, sizeof text, "FAILED %s:%d: %s (errno %d, %s)\n", base ? base + 1 : file, line, what,
		 error, strerror(error));
	verdict(text);
	_exit(1);
}

void ready(void)
{
	int file = open("ready", O_WRONLY | O_CREAT, 0666);
	CHECK(file >= 0);
	close(file);
}

int may_go(void)
{
	return access("go", F_OK) == 0;
}

void sleep_ms(long ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

void wait_go(void)
{
	while (!may_go())
		sleep_ms(2);
}

long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void reap(pid_t child)
{
	int status;
	pid_t got;
	while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR)
		;
	CHECK(got == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void pattern_fill(void *memory, size_t bytes, unsigned seed)
{
	uint32_t *words = memory;
	for (size_t at = 0; at < bytes / 4; at++)
		words[at] = (uint32_t)(at * 2654435761u) ^ (seed * 40503u + 1);
}

int pattern_holds(const void *memory, size_t bytes, unsigned seed)
{
	const uint32_t *words = memory;
	for (size_t at = 0; at < bytes / 4; at++)
		if (words[at] != ((uint32_t)(at * 2654435761u) ^ (seed * 40503u + 1)))
			return 0;
	return 1;
}

size_t slurp(const char *path, char *buffer, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(file >= 0);
	size_t length = 0;
	ssize_t got;
	while (length < size - 1 && (got = read(file, buffer + length, size - 1 - length)) > 0)
		length += got;
	close(file);
	buffer[length] = 0;
	return length;
}

void put_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	CHECK(file >= 0);
	CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
	close(file);
}

static sigjmp_buf back;

static void jump_back(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static int faults(volatile char *address, int writing)
{
	struct sigaction action = { .sa_handler = jump_back }, old_segv, old_bus;
	volatile int fault = 0;
	sigaction(SIGSEGV, &action, &old_segv);
	sigaction(SIGBUS, &action, &old_bus);
	if (sigsetjmp(back, 1))
		fault = 1;
	else if (writing)
		*address = 1;
	else
		(void)*address;
	sigaction(SIGSEGV, &old_segv, NULL);
	sigaction(SIGBUS, &old_bus, NULL);
	return fault;
}

int faults_on_read(volatile char *address)
{
	return faults(address, 0);
}

int faults_on_write(volatile char *address)
{
	return faults(address, 1);
}

/* A new network namespace has its loopback down. */
static int loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (ioctl(file, SIOCGIFFLAGS, &request) < 0)
		return 1;
	request.ifr_flags |= IFF_UP | IFF_RUNNING;
	return ioctl(file, SIOCSIFFLAGS, &request) < 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--loopback") == 0)
		return loopback_up();
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (int at = 0; at < guest_count; at++)
			puts(guests[at].name);
		return 0;
	}
	for (int at = 0; argc == 2 && at < guest_count; at++)
		if (strcmp(argv[1], guests[at].name) == 0) {
			guests[at].function();
			verdict("ok\n");
			return 0;
		}
	fprintf(stderr, "usage: guests NAME | --list | --loopback\n");
	return 2;
}
