/*
 * The kernel's own time: the three writes that bind a function to a driver, and nothing else, timed. The way back is
 * done after, untimed. Prints nanoseconds, one line a round.
 *
 * usage: loop ADDRESS DRIVER ROUNDS
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0) {
		fprintf(stderr, "write %s: %s\n", path, strerror(errno));
		exit(1);
	}
	close(fd);
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	char unbind[256], override[256];
	int i, rounds;

	if (argc != 4)
		return 2;
	snprintf(unbind, sizeof unbind, "/sys/bus/pci/devices/%s/driver/unbind", argv[1]);
	snprintf(override, sizeof override, "/sys/bus/pci/devices/%s/driver_override", argv[1]);
	rounds = atoi(argv[3]);
	for (i = 0; i < rounds; i++) {
		long long begin = now();
		put(unbind, argv[1]);
		put(override, argv[2]);
		put("/sys/bus/pci/drivers_probe", argv[1]);
		printf("%lld\n", now() - begin);
		put(unbind, argv[1]);
		put(override, "\n");
		put("/sys/bus/pci/drivers_probe", argv[1]);
	}
	return 0;
}
