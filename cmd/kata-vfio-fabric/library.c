//go:build cgo

#include "library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

// The code of a library that has another version of a structure.
enum { VERSION_MISMATCH = -6 };

// find sets a function's pointer, and reports whether the library has the function.
static int find(void *from, const char *name, void *function)
{
	void *found = dlsym(from, name);
	memcpy(function, &found, sizeof(found));
	return found != NULL;
}

const char *library_load(const char *path, struct library *l)
{
	memset(l, 0, sizeof(*l));
	void *from = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (from == NULL)
		return dlerror();
	if (!find(from, "fmLibInit", &l->init) || !find(from, "fmLibShutdown", &l->shutdown) ||
	    !find(from, "fmConnect", &l->connect) || !find(from, "fmDisconnect", &l->disconnect) ||
	    !find(from, "fmGetSupportedFabricPartitions", &l->partitions) ||
	    !find(from, "fmActivateFabricPartition", &l->activate) ||
	    !find(from, "fmDeactivateFabricPartition", &l->deactivate) ||
	    !find(from, "fmSetActivatedFabricPartitions", &l->set_activated) ||
	    !find(from, "fmGetNvlinkFailedDevices", &l->failed) ||
	    !find(from, "fmGetUnsupportedFabricPartitions", &l->unsupported))
		return dlerror();
	return NULL;
}

int library_connect(const struct library *l, const char *address, uint32_t kind, uint32_t timeout_ms, void **handle)
{
	if (kind != ADDRESS_VSOCK) {
		struct connect_v1 v1 = {.version = VERSION_OF(struct connect_v1, 1), .timeout_ms = timeout_ms, .is_unix_socket = kind == ADDRESS_UNIX};
		strncpy(v1.address, address, ADDRESS_BYTES - 1);
		int code = l->connect(&v1, handle);
		if (code != VERSION_MISMATCH)
			return code;
	}
	struct connect_v2 v2 = {.version = VERSION_OF(struct connect_v2, 2), .timeout_ms = timeout_ms, .is_unix_socket = kind == ADDRESS_UNIX, .address_type = kind};
	strncpy(v2.address, address, ADDRESS_BYTES - 1);
	return l->connect(&v2, handle);
}

int library_init(const struct library *l) { return l->init(); }

int library_shutdown(const struct library *l) { return l->shutdown(); }

int library_disconnect(const struct library *l, void *handle) { return l->disconnect(handle); }

int library_partitions(const struct library *l, void *handle, struct partitions *p)
{
	p->version = VERSION_OF(struct partitions, 1);
	return l->partitions(handle, p);
}

int library_activate(const struct library *l, void *handle, uint32_t id) { return l->activate(handle, id); }

int library_deactivate(const struct library *l, void *handle, uint32_t id) { return l->deactivate(handle, id); }

int library_set_activated(const struct library *l, void *handle, struct activated *a)
{
	a->version = VERSION_OF(struct activated, 1);
	return l->set_activated(handle, a);
}

int library_failed(const struct library *l, void *handle, struct failed *f)
{
	f->version = VERSION_OF(struct failed, 1);
	return l->failed(handle, f);
}

int library_unsupported(const struct library *l, void *handle, struct unsupported *u)
{
	u->version = VERSION_OF(struct unsupported, 1);
	return l->unsupported(handle, u);
}
