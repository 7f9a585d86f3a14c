/* Many training processes, as libkineto's thread in each: every period a `req` to each daemon, and the wait for its answer.
 *
 *     ipc_pollers COUNT PERIOD_MS SECONDS NUISANCES DIR...      a daemon listens at each DIR/dynolog
 *
 * Each process asks all daemons one after the other, the first of a round in turn, and so in the same moment of the same
 * machine. NUISANCES more of either kind send twenty times a second: one is gone before its answer, one never reads any.
 * Printed per daemon, in microseconds, first polls (they register) apart from the others:
 *
 *     DIR COUNT P50 P99 WORST LOST FIRST_P99 FIRST_WORST
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DAEMONS = 4, LOST = 1 << 30 };

static int rounds, count, daemons;
static int64_t period;
static struct sockaddr_un servers[DAEMONS];
static uint32_t *took; /* by daemon, process and round, in microseconds */

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void sleep_until(int64_t when)
{
	struct timespec due = {when / 1000000000, when % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, 0) == EINTR)
		;
}

static int bound(char *dir, int number, struct sockaddr_un *own)
{
	int sock = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct timeval patience = {2, 0};
	own->sun_family = AF_UNIX;
	snprintf(own->sun_path, sizeof own->sun_path, "%s/dynoconfigclient%d.%d", dir, getpid(), number);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (bind(sock, (struct sockaddr *)own, sizeof *own))
		exit(4);
	return sock;
}

static size_t request(char *data)
{
	int32_t body[] = {3, 2, 0, 0, getpid(), getppid()}; /* kinds, pids, job (64 bits), the pids */
	uint64_t size = sizeof body;
	memset(data, 0, 40);
	memcpy(data, &size, sizeof size);
	memcpy(data + 8, "req", 3);
	memcpy(data + 40, body, sizeof body);
	return 40 + sizeof body;
}

static uint32_t ask(int sock, struct sockaddr_un *server, char *data, size_t length)
{
	char reply[65536];
	int64_t begun = now();
	if (sendto(sock, data, length, 0, (struct sockaddr *)server, sizeof *server) < 0 ||
	    recv(sock, reply, sizeof reply, 0) < 40)
		return LOST;
	return (now() - begun) / 1000;
}

static void poll_them(int number, char **dirs, int64_t begin)
{
	int socks[DAEMONS];
	struct sockaddr_un own[DAEMONS];
	char data[128];
	size_t length = request(data);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < daemons; i++)
		socks[i] = bound(dirs[i], 0, &own[i]);
	for (int round = 0; round < rounds; round++) {
		sleep_until(begin + round * period + period * number / count);
		for (int i = 0; i < daemons; i++) {
			int which = (i + round) % daemons;
			took[(which * count + number) * rounds + round] = ask(socks[which], &servers[which], data, length);
		}
	}
	for (int i = 0; i < daemons; i++)
		unlink(own[i].sun_path);
	exit(0);
}

static void be_a_nuisance(int deaf, char **dirs)
{
	char data[128];
	size_t length = request(data);
	struct sockaddr_un own[DAEMONS];
	int socks[DAEMONS];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int turn = 0;; turn++) {
		for (int i = 0; i < daemons; i++) {
			if (!deaf || !turn)
				socks[i] = bound(dirs[i], turn, &own[i]);
			sendto(socks[i], data, length, MSG_DONTWAIT, (struct sockaddr *)&servers[i], sizeof servers[i]);
			if (!deaf) {
				close(socks[i]);
				unlink(own[i].sun_path);
			}
		}
		usleep(50000);
	}
}

static int by_size(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	return (a > b) - (a < b);
}

static void report(char *dir, uint32_t *all)
{
	uint32_t *first = malloc(count * 4), *rest = malloc((size_t)count * rounds * 4);
	size_t firsts = 0, rests = 0, lost = 0;
	for (int i = 0; i < count * rounds; i++) {
		if (all[i] == LOST)
			lost++;
		else if (i % rounds)
			rest[rests++] = all[i];
		else
			first[firsts++] = all[i];
	}
	qsort(first, firsts, 4, by_size);
	qsort(rest, rests, 4, by_size);
	if (!firsts || !rests)
		exit(5);
	printf("%s %zu %u %u %u %zu %u %u\n", dir, rests, rest[rests / 2], rest[rests * 99 / 100], rest[rests - 1], lost,
	       first[firsts * 99 / 100], first[firsts - 1]);
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc < 6 || argc > 5 + DAEMONS)
		return 2;
	count = atoi(argv[1]);
	period = atoll(argv[2]) * 1000000;
	rounds = atoll(argv[3]) * 1000000000 / period;
	daemons = argc - 5;
	for (int i = 0; i < daemons; i++) {
		servers[i].sun_family = AF_UNIX;
		snprintf(servers[i].sun_path, sizeof servers[i].sun_path, "%s/dynolog", argv[5 + i]);
	}
	took = mmap(0, (size_t)daemons * count * rounds * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int64_t begin = now() + 1000000000;
	int nuisances = atoi(argv[4]) * 2;
	pid_t others[64];
	for (int i = 0; i < nuisances && i < 64; i++)
		if (!(others[i] = fork()))
			be_a_nuisance(i % 2, argv + 5);
	for (int number = 0; number < count; number++)
		if (!fork())
			poll_them(number, argv + 5, begin);
	for (int number = 0; number < count; number++)
		wait(0);
	for (int i = 0; i < nuisances && i < 64; i++)
		kill(others[i], SIGKILL);
	for (int i = 0; i < daemons; i++)
		report(argv[5 + i], took + (size_t)i * count * rounds);
	return 0;
}
