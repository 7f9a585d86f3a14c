/* The least a server can do that speaks libkineto's protocol: take a datagram with its sender's credentials, answer with
 * an empty configuration. What an answer costs in C.
 *
 *     ipc_echo DIR        listens at DIR/dynolog
 *
 * It ends by itself when its parent does.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	char data[65536], reply[40] = {0}, control[CMSG_SPACE(sizeof(struct ucred))];
	struct sockaddr_un name = {.sun_family = AF_UNIX}, from;
	int one = 1, sock = socket(AF_UNIX, SOCK_DGRAM, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc != 2 || sock < 0)
		return 2;
	memcpy(reply + 8, "req", 3);
	setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
	snprintf(name.sun_path, sizeof name.sun_path, "%s/dynolog", argv[1]);
	if (bind(sock, (struct sockaddr *)&name, sizeof name))
		return 3;
	for (;;) {
		struct iovec into = {data, sizeof data};
		struct msghdr message = {&from, sizeof from, &into, 1, control, sizeof control, 0};
		if (recvmsg(sock, &message, 0) < 40)
			continue;
		sendto(sock, reply, sizeof reply, MSG_DONTWAIT, (struct sockaddr *)&from, message.msg_namelen);
	}
}
