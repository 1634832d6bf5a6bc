/* A stand-in for NVIDIA's management library: eight GPUs that can be seen and one that cannot.
 *
 * Every GPU has 18 links: 4 to its neighbour (number ^ 1), 12 to a switch that no PCI list shows,
 * one that is down, and one that does not reach memory. The first GPU has a link to its CPU. */
#include <string.h>

typedef struct { unsigned number; } Device;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, identity, subsystem;
    char bus_id[32];
} PciInfo;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { unsigned u32; unsigned long long u64; double f64; } value;
} FieldValue;

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4 };
enum { GPUS = 9, LINKS = 18 };

static Device devices[GPUS] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}};

static void place(PciInfo *info, unsigned bus) {
    memset(info, 0, sizeof *info);
    info->bus = bus;
}

static unsigned bus_of(unsigned gpu) { return 0x16 + gpu / 2 * 0x20 + gpu % 2; }

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == OK ? "fine" : "refused"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = GPUS;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= GPUS) return INVALID;
    *device = &devices[index];
    return index == GPUS - 1 ? NO_PERMISSION : OK;
}

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
    place(info, bus_of(device->number));
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    *major = 9;
    *minor = device->number == 7 ? 3 : 0;
    return OK;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active) {
    (void)device;
    if (link >= LINKS) return INVALID;
    *active = link != 16;
    return OK;
}

int nvmlDeviceGetNvLinkCapability(Device *device, unsigned link, unsigned which, unsigned *has) {
    (void)device;
    *has = which == 0 && link != 17;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, PciInfo *info) {
    place(info, link < 4 ? bus_of(device->number ^ 1) : 0xc3);
    return OK;
}

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    for (int i = 0; i < count; i++) {
        FieldValue *value = &values[i];
        value->type = 1;
        value->result = device->number == 0 ? OK : NOT_SUPPORTED;
        switch (value->field) {
        case 170: value->value.u32 = 10; break;
        case 171: value->value.u32 = 1; break;
        case 172: value->value.u32 = 44712; break;
        default: value->result = NOT_SUPPORTED;
        }
    }
    return OK;
}
