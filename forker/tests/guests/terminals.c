/* Terminals. */
#include "guest.h"

#include <sys/ioctl.h>
#include <termios.h>

static int open_pair(char *name, size_t size)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	CHECK(ptsname_r(master, name, size) == 0);
	return master;
}

GUEST(terminals_settings_and_bytes)
{
	char name[64], text[64] = "";
	int master = open_pair(name, sizeof name), slave = open(name, O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	struct winsize size = { .ws_row = 31, .ws_col = 97 }, size_now;
	struct termios settings, now;
	CHECK(ioctl(master, TIOCSWINSZ, &size) == 0 && tcgetattr(slave, &settings) == 0);
	settings.c_lflag &= ~(ICANON | ECHO);
	settings.c_oflag &= ~OPOST;
	settings.c_cc[VMIN] = 3;
	settings.c_cc[VINTR] = 'q';
	CHECK(tcsetattr(slave, TCSANOW, &settings) == 0);
	CHECK(write(master, "typed", 5) == 5 && write(slave, "shown\n", 6) == 6);
	ready();
	wait_go();
	CHECK(ioctl(slave, TIOCGWINSZ, &size_now) == 0 && size_now.ws_row == 31 && size_now.ws_col == 97);
	CHECK(tcgetattr(slave, &now) == 0);
	CHECK(now.c_lflag == settings.c_lflag && now.c_oflag == settings.c_oflag);
	CHECK(now.c_iflag == settings.c_iflag && now.c_cflag == settings.c_cflag);
	CHECK(memcmp(now.c_cc, settings.c_cc, sizeof now.c_cc) == 0);
	CHECK(read(slave, text, 63) == 5 && memcmp(text, "typed", 5) == 0);
	CHECK(read(master, text, 63) == 6 && memcmp(text, "shown\n", 6) == 0);
	char name_now[64];
	CHECK(ptsname_r(master, name_now, sizeof name_now) == 0 && strcmp(name, name_now) == 0);
}

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number)
{
	(void)number;
	interrupts++;
}

GUEST(terminals_foreground_group)
{
	char name[64];
	int master = open_pair(name, sizeof name);
	volatile pid_t *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t leader = fork();
	if (leader == 0) {
		close(master);
		CHECK(setsid() == getpid());
		int terminal = open(name, O_RDWR);
		CHECK(terminal >= 0 && ioctl(terminal, TIOCSCTTY, 0) == 0);
		signal(SIGTTOU, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		pid_t job = fork();
		if (job == 0) {
			CHECK(setpgid(0, 0) == 0);
			signal(SIGINT, on_interrupt);
			CHECK(tcsetpgrp(terminal, getpid()) == 0);
			seen[0] = getpid();
			while (interrupts == 0)
				sleep_ms(1);
			seen[1] = 1;
			_exit(0);
		}
		wait_go();
		CHECK(tcgetpgrp(terminal) == job && tcgetsid(terminal) == getpid());
		int own = open("/dev/tty", O_RDWR);
		CHECK(own >= 0);
		reap(job);
		_exit(0);
	}
	while (seen[0] == 0)
		sleep_ms(1);
	ready();
	wait_go();
	CHECK(seen[1] == 0);
	/* Control-C reaches the job in the foreground. */
	CHECK(write(master, "\003", 1) == 1);
	reap(leader);
	CHECK(seen[1] == 1);
}
