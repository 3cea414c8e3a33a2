/* Plays NVIDIA's management library for the real nvidia-ml-py: two GPUs, whose state is small files in the folder
   $FAKE_NVML, so that several processes share it. A file "denied" there refuses every setting, "lost" every call.
   -DOLD leaves out what drivers before Volta's lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
static const char *UUIDS[] = {"GPU-aaaa-0", "GPU-bbbb-1"};
static char path_buffer[4096];

static const char *path(const char *name, long gpu) {
    const char *folder = getenv("FAKE_NVML");
    if (gpu < 0) snprintf(path_buffer, sizeof path_buffer, "%s/%s", folder ? folder : "", name);
    else snprintf(path_buffer, sizeof path_buffer, "%s/%s%ld", folder ? folder : "", name, gpu);
    return path_buffer;
}
static int is(const char *name) { return access(path(name, -1), F_OK) == 0; }
static long get(const char *name, long gpu) {
    long value = 0;
    FILE *file = fopen(path(name, gpu), "r");
    if (file) { if (fscanf(file, "%ld", &value) != 1) value = 0; fclose(file); }
    return value;
}
static void set(const char *name, long gpu, long value) {
    FILE *file = fopen(path(name, gpu), "w");
    if (file) { fprintf(file, "%ld\n", value); fclose(file); }
}
static long number(void *device) { return (long)device - 1; }

int nvmlInitWithFlags(unsigned flags) { return getenv("FAKE_NVML") ? OK : UNINITIALIZED; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (long gpu = 0; gpu < 2; gpu++)
        if (!strcmp(uuid, UUIDS[gpu])) { *device = (void *)(gpu + 1); return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "%s", UUIDS[number(device)]);
    return OK;
}
int nvmlDeviceGetName(void *device, char *text, unsigned length) { snprintf(text, length, "Fake GPU"); return OK; }
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *mw) { *mw = get("cap", number(device)); return OK; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *low, unsigned *high) {
    *low = 100000; *high = 400000;
    return OK;
}
int nvmlDeviceSetPowerManagementLimit(void *device, unsigned mw) {
    if (is("denied")) return NO_PERMISSION;
    if (mw < 100000 || mw > 400000) return INVALID;
    set("cap", number(device), mw);
    return OK;
}
static int list(unsigned size, const unsigned *values, unsigned *count, unsigned *into) {
    if (*count < size) { *count = size; return TOO_SMALL; }
    memcpy(into, values, size * sizeof *values);
    return OK;
}
int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *mhz) {
    const unsigned clocks[] = {2619, 1593};
    return list(2, clocks, count, mhz);
}
int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    unsigned clocks[81]; /* 1500, 1485, ... 300 */
    if (memory_mhz != 2619) return INVALID;
    for (unsigned i = 0; i < 81; i++) clocks[i] = 1500 - 15 * i;
    return list(81, clocks, count, mhz);
}
#ifndef OLD
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    if (is("lost")) return LOST;
    if (access(path("uncounted", number(device)), F_OK) == 0) return NOT_SUPPORTED;
    *mj = get("energy", number(device)) + 1000 * (number(device) + 1); /* a joule or two for every reading */
    set("energy", number(device), *mj);
    return OK;
}
int nvmlDeviceSetGpuLockedClocks(void *device, unsigned low, unsigned high) {
    if (is("denied")) return NO_PERMISSION;
    set("clock", number(device), high);
    return OK;
}
int nvmlDeviceResetGpuLockedClocks(void *device) {
    if (is("denied")) return NO_PERMISSION;
    set("clock", number(device), 0);
    return OK;
}
#endif
