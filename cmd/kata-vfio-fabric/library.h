// The interface of NVIDIA's libnvfm, as much as kata-vfio uses. NVIDIA's headers are not free, so the layout is declared
// here: every field has 4 bytes or is an array of char, and no structure has padding. The sizes are asserted, because
// the library compares them with its own.

#ifndef KATA_VFIO_LIBRARY_H
#define KATA_VFIO_LIBRARY_H

#include <stdint.h>

#define MAX_PARTITIONS 64
#define MAX_GPUS 16
#define MAX_SWITCHES 12
#define MAX_PORTS 64
#define ADDRESS_BYTES 256
#define UUID_BYTES 80
#define BUS_ID_BYTES 32

// VERSION_OF is what the field version of a structure must have.
#define VERSION_OF(type, number) ((uint32_t)(sizeof(type) | ((uint32_t)(number) << 24)))

struct connect_v1 {
	uint32_t version;
	char address[ADDRESS_BYTES];
	uint32_t timeout_ms;
	uint32_t is_unix_socket;
};
_Static_assert(sizeof(struct connect_v1) == 268, "fmConnectParams_v1_t");

struct connect_v2 {
	uint32_t version;
	char address[ADDRESS_BYTES];
	uint32_t timeout_ms;
	uint32_t is_unix_socket;
	uint32_t address_type;
};
_Static_assert(sizeof(struct connect_v2) == 272, "fmConnectParams_v2_t");

struct gpu {
	uint32_t physical_id;
	char uuid[UUID_BYTES];
	char bus_id[BUS_ID_BYTES];
	uint32_t links;
	uint32_t most_links;
	uint32_t line_rate_mbps;
};
_Static_assert(sizeof(struct gpu) == 128, "fmFabricPartitionGpuInfo_t");

struct partition {
	uint32_t id;
	uint32_t is_active;
	uint32_t gpu_count;
	struct gpu gpus[MAX_GPUS];
};
_Static_assert(sizeof(struct partition) == 2060, "fmFabricPartitionInfo_t");

struct partitions {
	uint32_t version;
	uint32_t count;
	uint32_t most;
	struct partition list[MAX_PARTITIONS];
};
_Static_assert(sizeof(struct partitions) == 131852, "fmFabricPartitionList_v2_t");
_Static_assert(VERSION_OF(struct partitions, 1) == 0x0102030c, "version of fmFabricPartitionList_v2_t");

struct activated {
	uint32_t version;
	uint32_t count;
	uint32_t ids[MAX_PARTITIONS];
};
_Static_assert(sizeof(struct activated) == 264, "fmActivatedFabricPartitionList_t");

struct failed_device {
	char uuid[UUID_BYTES];
	char bus_id[BUS_ID_BYTES];
	uint32_t port_count;
	uint32_t ports[MAX_PORTS];
};

struct failed {
	uint32_t version;
	uint32_t gpu_count;
	uint32_t switch_count;
	struct failed_device gpus[MAX_GPUS];
	struct failed_device switches[MAX_SWITCHES];
};
_Static_assert(sizeof(struct failed) == 10428, "fmNvlinkFailedDevices_t");

struct unsupported_partition {
	uint32_t id;
	uint32_t gpu_count;
	uint32_t physical_ids[MAX_GPUS];
};

struct unsupported {
	uint32_t version;
	uint32_t count;
	struct unsupported_partition list[MAX_PARTITIONS];
};
_Static_assert(sizeof(struct unsupported) == 4616, "fmUnsupportedFabricPartitionList_t");

// The kinds of an address of struct connect_v2.
enum { ADDRESS_INET = 1, ADDRESS_UNIX = 2, ADDRESS_VSOCK = 3 };

// struct library has the functions of a loaded library.
struct library {
	int (*init)(void);
	int (*shutdown)(void);
	int (*connect)(void *params, void **handle);
	int (*disconnect)(void *handle);
	int (*partitions)(void *handle, struct partitions *);
	int (*activate)(void *handle, uint32_t id);
	int (*deactivate)(void *handle, uint32_t id);
	int (*set_activated)(void *handle, struct activated *);
	int (*failed)(void *handle, struct failed *);
	int (*unsupported)(void *handle, struct unsupported *);
};

// library_load opens the library and finds its functions. It returns NULL, or what is wrong.
const char *library_load(const char *path, struct library *l);

// library_connect connects with version 1 of the parameters, which every library has, and with version 2 where the
// library refuses that, or the address needs it.
int library_connect(const struct library *l, const char *address, uint32_t kind, uint32_t timeout_ms, void **handle);

// Go can't call a pointer to a function.
int library_init(const struct library *l);
int library_shutdown(const struct library *l);
int library_disconnect(const struct library *l, void *handle);
int library_partitions(const struct library *l, void *handle, struct partitions *p);
int library_activate(const struct library *l, void *handle, uint32_t id);
int library_deactivate(const struct library *l, void *handle, uint32_t id);
int library_set_activated(const struct library *l, void *handle, struct activated *a);
int library_failed(const struct library *l, void *handle, struct failed *f);
int library_unsupported(const struct library *l, void *handle, struct unsupported *u);

#endif
