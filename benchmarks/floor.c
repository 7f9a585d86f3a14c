/* The floor: read the files named on the command line with kept descriptors, parse every number in them, keep the
 * values as one binary record, once per period, on absolute deadlines. What a sampler in C costs.
 *
 *     floor PERIOD_MS OUTPUT FILE...
 *
 * It ends by itself when its parent does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 64, TEXT = 1 << 18, VALUES = 1 << 14 };
static char text[TEXT];
static uint64_t values[VALUES];

static size_t read_whole(int fd)
{
	size_t length = 0;
	ssize_t got;
	/* Iterated files hand out a page at a time: read until 0. */
	while (length < TEXT && (got = pread(fd, text + length, TEXT - length, length)) > 0)
		length += got;
	return length;
}

static size_t parse(size_t length, size_t count)
{
	for (size_t at = 0; at < length; at++) {
		unsigned digit = (unsigned char)text[at] - '0';
		if (digit > 9)
			continue;
		uint64_t number = 0;
		do {
			number = number * 10 + digit;
			digit = (unsigned char)text[++at] - '0';
		} while (digit <= 9);
		if (count < VALUES)
			values[count++] = number;
	}
	return count;
}

int main(int argc, char **argv)
{
	int fds[FILES], count = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc < 4)
		return 2;
	long period = atol(argv[1]) * 1000000;
	int output = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (int i = 3; i < argc && count < FILES; i++)
		if ((fds[count++] = open(argv[i], O_RDONLY)) < 0)
			return 3;
	struct timespec due;
	clock_gettime(CLOCK_MONOTONIC, &due);
	for (;;) {
		due.tv_nsec += period;
		while (due.tv_nsec >= 1000000000) {
			due.tv_nsec -= 1000000000;
			due.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, 0);
		size_t values_count = 0;
		for (int i = 0; i < count; i++)
			values_count = parse(read_whole(fds[i]), values_count);
		if (write(output, values, values_count * sizeof *values) < 0)
			return 4;
		lseek(output, 0, SEEK_SET);
	}
}
