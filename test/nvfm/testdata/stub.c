// A stub of NVIDIA's libnvfm.so.1, with its eleven functions. A file is in the place of Fabric Manager: the environment
// variable NVFM_STUB names it. Without the variable, the one at the socket that fmConnect gets is asked: a line with each
// call, to which it answers a line with the code, and its state. nvfm.go says what the file and the state have. Structures
// are written by offset, as NVIDIA's library would, so that a wrong layout of the caller shows.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OK = 0, BADPARAM = -1, NOT_SUPPORTED = -3, UNINITIALIZED = -4, VERSION_MISMATCH = -6, IN_USE = -7, NOT_CONFIGURED = -8, NOT_VALID = -9 };

#define MOST 80 // more than the library has room for, so that the stub can list too many

static struct { unsigned id, active, count, gpus[32]; } partitions[MOST];
static struct { unsigned id; char uuid[80], bus[32]; } filled[32];
static unsigned many, fills, waiting, connect_version = 1, listed, gpus_listed, lies;
static char fault_call[32][32];
static int fault_code[32];
static unsigned faults, initialized, connected;
static char server[108]; // the socket of a Fabric Manager that runs; empty for a file

static const char *path(void)
{
	const char *name = getenv("NVFM_STUB");
	return name ? name : "/nonexistent";
}

// read_lines reads a state anew.
static void read_lines(FILE *f)
{
	char line[512], word[32];
	many = fills = waiting = faults = listed = gpus_listed = lies = 0;
	connect_version = 1;
	while (fgets(line, sizeof(line), f)) {
		char *rest = line;
		int used = 0;
		if (sscanf(rest, "%31s%n", word, &used) != 1)
			continue;
		rest += used;
		if (!strcmp(word, "partition") && many < MOST) {
			sscanf(rest, "%u %u%n", &partitions[many].id, &partitions[many].active, &used);
			rest += used;
			partitions[many].count = 0;
			while (partitions[many].count < 32 && sscanf(rest, "%u%n", &partitions[many].gpus[partitions[many].count], &used) == 1) {
				partitions[many].count++;
				rest += used;
			}
			many++;
		} else if (!strcmp(word, "gpu")) {
			sscanf(rest, "%u %79s %31s", &filled[fills].id, filled[fills].uuid, filled[fills].bus);
			fills++;
		} else if (!strcmp(word, "fault")) {
			sscanf(rest, "%31s %d", fault_call[faults], &fault_code[faults]);
			faults++;
		} else if (!strcmp(word, "waiting")) {
			waiting = 1;
		} else if (!strcmp(word, "lies")) {
			lies = 1;
		} else if (!strcmp(word, "connect")) {
			sscanf(rest, "%u", &connect_version);
		} else if (!strcmp(word, "listed")) {
			sscanf(rest, "%u", &listed);
		} else if (!strcmp(word, "gpusListed")) {
			sscanf(rest, "%u", &gpus_listed);
		}
	}
}

// read_state reads the file: each call sees what other processes did.
static int read_state(void)
{
	FILE *f = fopen(path(), "r");
	if (!f)
		return 0;
	read_lines(f);
	fclose(f);
	return 1;
}

// ask makes a call to the Fabric Manager at the socket.
static int ask(const char *call, const char *what)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int code = NOT_VALID, fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0)
		return NOT_VALID;
	memcpy(to.sun_path, server, sizeof(to.sun_path));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) || dprintf(fd, "%s %s\n", call, what) < 0) {
		close(fd);
		return NOT_VALID;
	}
	FILE *answer = fdopen(fd, "r");
	if (!answer)
		abort();
	if (fscanf(answer, "%d\n", &code) == 1)
		read_lines(answer);
	fclose(answer);
	return code;
}

// write_state replaces the lines of partitions, and of a Fabric Manager that waits.
static void write_state(void)
{
	char name[4096], line[512];
	snprintf(name, sizeof(name), "%s.new", path());
	FILE *from = fopen(path(), "r"), *to = fopen(name, "w");
	if (!from || !to)
		abort();
	while (fgets(line, sizeof(line), from))
		if (strncmp(line, "partition", 9) && strncmp(line, "waiting", 7))
			fputs(line, to);
	for (unsigned i = 0; i < many; i++) {
		fprintf(to, "partition %u %u", partitions[i].id, partitions[i].active);
		for (unsigned j = 0; j < partitions[i].count; j++)
			fprintf(to, " %u", partitions[i].gpus[j]);
		fputc('\n', to);
	}
	if (waiting)
		fputs("waiting\n", to);
	fclose(from);
	fclose(to);
	if (rename(name, path()))
		abort();
}

// begin logs a call, and returns its fault. It hangs if the fault is 1.
static int begin(const char *call, const char *what)
{
	char name[4096];
	if (!getenv("NVFM_STUB"))
		return *server ? ask(call, what) : OK;
	snprintf(name, sizeof(name), "%s.log", path());
	FILE *log = fopen(name, "a");
	if (log) {
		fprintf(log, "%s%s%s\n", call, *what ? " " : "", what);
		fclose(log);
	}
	if (!read_state())
		return NOT_VALID;
	for (unsigned i = 0; i < faults; i++)
		if (!strcmp(fault_call[i], call)) {
			while (fault_code[i] == 1)
				pause();
			return fault_code[i];
		}
	return OK;
}

static int with_handle(void *handle, const char *call, const char *what)
{
	int code = begin(call, what);
	if (code)
		return code;
	if (!initialized)
		return UNINITIALIZED;
	return handle == &connected && connected ? OK : NOT_VALID;
}

static uint32_t word_at(const void *base, unsigned offset)
{
	uint32_t value;
	memcpy(&value, (const char *)base + offset, 4);
	return value;
}

static void put(void *base, unsigned offset, uint32_t value) { memcpy((char *)base + offset, &value, 4); }

int fmLibInit(void)
{
	int code = begin("init", "");
	initialized = code == OK;
	return code;
}

int fmLibShutdown(void)
{
	initialized = 0;
	return begin("shutdown", "");
}

int fmConnect(void *params, void **handle)
{
	char what[400];
	uint32_t version = word_at(params, 0);
	const char *address = (const char *)params + 4;
	snprintf(what, sizeof(what), "%08x %.255s %u %u", version, address, word_at(params, 260), word_at(params, 264));
	if (version == 0x02000110)
		snprintf(what + strlen(what), sizeof(what) - strlen(what), " %u", word_at(params, 268));
	if (!getenv("NVFM_STUB")) {
		if (!word_at(params, 264) || strlen(address) >= sizeof(server))
			return NOT_VALID;
		strcpy(server, address);
	}
	int code = begin("connect", what);
	if (code)
		return code;
	if (version != (connect_version == 1 ? 0x0100010c : 0x02000110))
		return VERSION_MISMATCH;
	connected = 1;
	*handle = &connected;
	return OK;
}

int fmDisconnect(void *handle)
{
	int code = with_handle(handle, "disconnect", "");
	connected = 0;
	return code;
}

int fmGetSupportedFabricPartitions(void *handle, void *list)
{
	int code = with_handle(handle, "partitions", "");
	if (code)
		return code;
	if (word_at(list, 0) != 0x0102030c)
		return VERSION_MISMATCH;
	if (waiting)
		return NOT_CONFIGURED;
	put(list, 4, listed ? listed : many);
	put(list, 8, 15);
	for (unsigned i = 0; i < many && i < 64; i++) {
		unsigned at = 12 + i * 2060;
		put(list, at, partitions[i].id);
		put(list, at + 4, partitions[i].active);
		put(list, at + 8, gpus_listed ? gpus_listed : partitions[i].count);
		for (unsigned j = 0; j < partitions[i].count && j < 16; j++) {
			unsigned gpu = at + 12 + j * 128;
			put(list, gpu, partitions[i].gpus[j]);
			for (unsigned k = 0; k < fills; k++)
				if (filled[k].id == partitions[i].gpus[j]) {
					memcpy((char *)list + gpu + 4, filled[k].uuid, 80);
					memcpy((char *)list + gpu + 84, filled[k].bus, 32);
				}
			put(list, gpu + 116, 18);
			put(list, gpu + 120, 18);
			put(list, gpu + 124, 25781);
		}
	}
	return OK;
}

static int find(unsigned id)
{
	for (unsigned i = 0; i < many; i++)
		if (partitions[i].id == id)
			return (int)i;
	return -1;
}

static int overlaps(unsigned a, unsigned b)
{
	for (unsigned i = 0; i < partitions[a].count; i++)
		for (unsigned j = 0; j < partitions[b].count; j++)
			if (partitions[a].gpus[i] == partitions[b].gpus[j])
				return 1;
	return 0;
}

int fmActivateFabricPartition(void *handle, uint32_t id)
{
	char what[16];
	snprintf(what, sizeof(what), "%u", id);
	int code = with_handle(handle, "activate", what);
	if (code || *server)
		return code;
	if (waiting)
		return NOT_CONFIGURED;
	int at = find(id);
	if (at < 0)
		return BADPARAM;
	for (unsigned i = 0; i < many; i++)
		if (partitions[i].active && overlaps(i, (unsigned)at))
			return IN_USE;
	if (!lies)
		partitions[at].active = 1;
	write_state();
	return OK;
}

int fmActivateFabricPartitionWithVFs(void *handle, uint32_t id, void *vfs, unsigned count)
{
	(void)handle, (void)id, (void)vfs, (void)count;
	return NOT_SUPPORTED;
}

int fmDeactivateFabricPartition(void *handle, uint32_t id)
{
	char what[16];
	snprintf(what, sizeof(what), "%u", id);
	int code = with_handle(handle, "deactivate", what);
	if (code || *server)
		return code;
	if (waiting)
		return NOT_CONFIGURED;
	int at = find(id);
	if (at < 0)
		return BADPARAM;
	if (!partitions[at].active)
		return UNINITIALIZED;
	if (!lies)
		partitions[at].active = 0;
	write_state();
	return OK;
}

int fmSetActivatedFabricPartitions(void *handle, void *list)
{
	char what[512] = "";
	uint32_t count = word_at(list, 4);
	for (uint32_t i = 0; i < count && i < 64; i++)
		snprintf(what + strlen(what), sizeof(what) - strlen(what), "%s%u", i ? "," : "", word_at(list, 8 + 4 * i));
	int code = with_handle(handle, "setActivated", what);
	if (code)
		return code;
	if (word_at(list, 0) != 0x01000108)
		return VERSION_MISMATCH;
	if (*server)
		return OK;
	if (count > 64)
		return BADPARAM;
	if (!waiting)
		return NOT_SUPPORTED;
	for (unsigned i = 0; i < many; i++)
		partitions[i].active = 0;
	for (uint32_t i = 0; i < count; i++) {
		int at = find(word_at(list, 8 + 4 * i));
		if (at < 0)
			return BADPARAM;
		partitions[at].active = 1;
	}
	waiting = 0;
	write_state();
	return OK;
}

// fmGetNvlinkFailedDevices lists one GPU and one NVSwitch.
int fmGetNvlinkFailedDevices(void *handle, void *list)
{
	int code = with_handle(handle, "failed", "");
	if (code)
		return code;
	if (word_at(list, 0) != 0x010028bc)
		return VERSION_MISMATCH;
	put(list, 4, gpus_listed ? gpus_listed : 1);
	put(list, 8, 1);
	const unsigned device = 80 + 32 + 4 + 64 * 4;
	memset((char *)list + 12, 'G', 80); // a field that no zero ends
	put(list, 12 + 112, 1);
	put(list, 12 + 116, 7);
	unsigned at = 12 + 16 * device;
	strcpy((char *)list + at + 80, "00000000:04:00.0");
	put(list, at + 112, listed ? listed : 2);
	put(list, at + 116, 40);
	put(list, at + 120, 41);
	return OK;
}

// fmGetUnsupportedFabricPartitions lists the last partition.
int fmGetUnsupportedFabricPartitions(void *handle, void *list)
{
	int code = with_handle(handle, "unsupported", "");
	if (code)
		return code;
	if (word_at(list, 0) != 0x01001208)
		return VERSION_MISMATCH;
	if (!many)
		return OK;
	put(list, 4, listed ? listed : 1);
	put(list, 8, partitions[many - 1].id);
	put(list, 12, gpus_listed ? gpus_listed : partitions[many - 1].count);
	for (unsigned i = 0; i < partitions[many - 1].count && i < 16; i++)
		put(list, 16 + 4 * i, partitions[many - 1].gpus[i]);
	return OK;
}
