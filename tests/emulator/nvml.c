/* NVML of the machine that `driver.c` makes up: sensors, and clocks that may be locked. */
#include "driver.h"

#include <string.h>

enum { NOT_SUPPORTED = 3, NO_PERMISSION = 4, UNKNOWN_BUS = 6, CLOCK_SM = 1 };

/* The file that holds the clock in MHz at which the card is locked. */
static FILE *clock_of(const char *gpu, const char *mode) {
    return beside(*gpu == '1' ? "clock1" : "clock", mode);
}

/* At which it is locked, or idles. */
static unsigned clock_now(const char *gpu) {
    unsigned locked = 0;
    FILE *file = clock_of(gpu, "r");
    if (!file) return 345;
    int found = fscanf(file, "%u", &locked);
    fclose(file);
    return found == 1 ? locked : 345;
}

int nvmlInit_v2(void) { return fault("lost") ? UNKNOWN : SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return flags ? UNKNOWN : nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int status) { return status == NO_PERMISSION ? "Insufficient Permissions" : "?"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
    char known[16];
    for (int number = 0; number < 2; number++) {
        snprintf(known, sizeof known, BUS, number);
        if (!strcmp(bus, known)) return *out = number ? "1" : "0", SUCCESS;
    }
    return UNKNOWN_BUS;
}

int nvmlDeviceGetClockInfo(void *gpu, unsigned kind, unsigned *out) {
    *out = kind == CLOCK_SM ? clock_now(gpu) : 3201;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *gpu, unsigned kind, unsigned *out) {
    (void)gpu;
    return *out = 1980, kind == CLOCK_SM ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(void *gpu, unsigned sensor, unsigned *out) {
    (void)gpu;
    return *out = 41, sensor ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out) {
    (void)gpu;
    return *out = 120500, SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(void *gpu, unsigned low, unsigned high) {
    (void)low;
    if (fault("clocks")) return NO_PERMISSION;
    FILE *file = clock_of(gpu, "w");
    fprintf(file, "%u", high);
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceResetGpuLockedClocks(void *gpu) {
    fclose(clock_of(gpu, "w"));
    return SUCCESS;
}
