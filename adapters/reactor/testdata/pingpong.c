/* An echo server on one epoll instance, the least that a loop in C does: it prints its port, serves
   until its standard input ends, and closes a connection when the peer does. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), one = 1;
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) || watch(epoll, listener) || watch(epoll, 0))
		return 1;
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		struct epoll_event events[64];
		int n = epoll_wait(epoll, events, 64, -1);
		for (int i = 0; i < n; i++) {
			char buffer[4096];
			int fd = events[i].data.fd;
			if (fd == 0)
				return 0;
			if (fd == listener) {
				fd = accept4(listener, 0, 0, SOCK_NONBLOCK);
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
				watch(epoll, fd);
				continue;
			}
			ssize_t got = recv(fd, buffer, sizeof buffer, 0);
			if (got <= 0 || send(fd, buffer, got, MSG_NOSIGNAL) != got)
				close(fd);
		}
	}
}
