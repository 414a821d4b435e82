/* Sockets inside the box. */
#include "guest.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

GUEST(sockets_unix_pair)
{
	int pair[2], packets[2];
	char text[64] = "";
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, packets) == 0);
	CHECK(write(pair[0], "to one", 6) == 6 && write(pair[1], "to zero", 7) == 7);
	CHECK(write(packets[0], "ab", 2) == 2 && write(packets[0], "cde", 3) == 3);
	ready();
	wait_go();
	CHECK(read(pair[1], text, 63) == 6 && memcmp(text, "to one", 6) == 0);
	CHECK(read(pair[0], text, 63) == 7 && memcmp(text, "to zero", 7) == 0);
	CHECK(read(packets[1], text, 63) == 2 && read(packets[1], text, 63) == 3);
	CHECK(read(packets[1], text, 63) < 0 && errno == EAGAIN);
	CHECK(write(pair[0], "x", 1) == 1 && read(pair[1], text, 63) == 1);
	CHECK(close(pair[0]) == 0 && read(pair[1], text, 63) == 0);
}

GUEST(sockets_unix_listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	struct sockaddr_un hidden = { .sun_family = AF_UNIX, .sun_path = "\0hidden name" };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
	CHECK(bind(second, (void *)&hidden, sizeof hidden) == 0 && listen(second, 5) == 0);
	ready();
	wait_go();
	int client = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(client, (void *)&address, sizeof address) == 0);
	CHECK(connect(other, (void *)&hidden, sizeof hidden) == 0);
	int server = accept(listener, NULL, NULL);
	char byte;
	CHECK(server >= 0 && accept(second, NULL, NULL) >= 0);
	CHECK(write(client, "y", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'y');
}

GUEST(sockets_unix_datagram)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "datagrams" };
	int receiver = socket(AF_UNIX, SOCK_DGRAM, 0), sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	char text[64];
	CHECK(bind(receiver, (void *)&address, sizeof address) == 0);
	CHECK(connect(sender, (void *)&address, sizeof address) == 0);
	CHECK(send(sender, "first", 5, 0) == 5 && send(sender, "second!", 7, 0) == 7);
	ready();
	wait_go();
	CHECK(recv(receiver, text, 64, 0) == 5 && memcmp(text, "first", 5) == 0);
	CHECK(recv(receiver, text, 64, 0) == 7);
	CHECK(recv(receiver, text, 64, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(send(sender, "third", 5, 0) == 5 && recv(receiver, text, 64, 0) == 5);
}

GUEST(sockets_unix_passed_descriptor)
{
	int pair[2], pipes[2];
	char byte = 'd', control[CMSG_SPACE(sizeof(int))] = "";
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(pipes) == 0);
	CHECK(write(pipes[1], "inside", 6) == 6);
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &pipes[0], sizeof(int));
	CHECK(sendmsg(pair[0], &message, 0) == 1);
	/* The only descriptor of the reading end is under way. */
	CHECK(close(pipes[0]) == 0);
	ready();
	wait_go();
	memset(control, 0, sizeof control);
	message.msg_controllen = sizeof control;
	byte = 0;
	CHECK(recvmsg(pair[1], &message, 0) == 1 && byte == 'd');
	header = CMSG_FIRSTHDR(&message);
	CHECK(header != NULL && header->cmsg_type == SCM_RIGHTS);
	int passed;
	char text[16];
	memcpy(&passed, CMSG_DATA(header), sizeof(int));
	CHECK(read(passed, text, 16) == 6 && memcmp(text, "inside", 6) == 0);
}

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static int listen_somewhere(struct sockaddr_in *address)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	socklen_t length = sizeof *address;
	*address = loopback(0);
	CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
	CHECK(bind(listener, (void *)address, length) == 0 && listen(listener, 16) == 0);
	CHECK(getsockname(listener, (void *)address, &length) == 0);
	return listener;
}

GUEST(sockets_tcp_listening)
{
	struct sockaddr_in address, now;
	socklen_t length = sizeof now;
	int listener = listen_somewhere(&address);
	ready();
	wait_go();
	CHECK(getsockname(listener, (void *)&now, &length) == 0 && now.sin_port == address.sin_port);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(client, (void *)&address, sizeof address) == 0);
	int server = accept(listener, NULL, NULL);
	char byte;
	CHECK(server >= 0 && write(server, "t", 1) == 1 && read(client, &byte, 1) == 1 && byte == 't');
}

GUEST(sockets_tcp_listening_options)
{
	struct sockaddr_in address;
	int listener = listen_somewhere(&address), on = 0;
	socklen_t length = sizeof on;
	ready();
	wait_go();
	CHECK(getsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, &length) == 0 && on == 1);
}

GUEST(sockets_tcp_connection)
{
	struct sockaddr_in address, name, name_now;
	socklen_t length = sizeof name;
	int listener = listen_somewhere(&address), client = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	CHECK(connect(client, (void *)&address, sizeof address) == 0);
	int server = accept(listener, NULL, NULL);
	CHECK(server >= 0 && setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	CHECK(getsockname(client, (void *)&name, &length) == 0);
	static char large[100000], got[100000];
	pattern_fill(large, sizeof large, 3);
	CHECK(write(client, large, sizeof large) == sizeof large);
	CHECK(write(server, "answer", 6) == 6);
	close(listener);
	ready();
	wait_go();
	length = sizeof name_now;
	CHECK(getsockname(client, (void *)&name_now, &length) == 0 && name.sin_port == name_now.sin_port);
	length = sizeof on;
	on = 0;
	CHECK(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, &length) == 0 && on != 0);
	CHECK(read(client, got, sizeof got) == 6 && memcmp(got, "answer", 6) == 0);
	CHECK(recv(server, got, sizeof got, MSG_WAITALL) == sizeof got && pattern_holds(got, sizeof got, 3));
	CHECK(write(server, "still", 5) == 5 && read(client, got, sizeof got) == 5);
	CHECK(shutdown(client, SHUT_WR) == 0 && read(server, got, 1) == 0);
	CHECK(write(server, "half", 4) == 4 && read(client, got, sizeof got) == 4);
}

GUEST(sockets_udp)
{
	struct sockaddr_in address = loopback(0), from;
	socklen_t length = sizeof address;
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
	char text[64];
	CHECK(bind(receiver, (void *)&address, sizeof address) == 0);
	CHECK(getsockname(receiver, (void *)&address, &length) == 0);
	CHECK(connect(sender, (void *)&address, sizeof address) == 0);
	ready();
	wait_go();
	CHECK(send(sender, "dgram", 5, 0) == 5);
	length = sizeof from;
	CHECK(recvfrom(receiver, text, 64, 0, (void *)&from, &length) == 5);
	CHECK(sendto(receiver, "back", 4, 0, (void *)&from, length) == 4 && recv(sender, text, 64, 0) == 4);
}
