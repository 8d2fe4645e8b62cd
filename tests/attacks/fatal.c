// SPDX-License-Identifier: Apache-2.0
// An OpenCL library that is broken as soon as the ICD loader opens it, or asks it for its platforms: FATAL says how.
//   abort, crash, hang   in its constructor; kill: SIGKILL, as from outside
//   late                 it aborts when it is asked for its platforms
//   error                it has no platforms and says so, as a library should
// Every kind writes to FATAL_TOLD the id of the process that opened it, a line each. tests/attacks/fatal.py builds it.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *kind) {
    const char *wanted = getenv("FATAL");
    return wanted && strcmp(wanted, kind) == 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *told = getenv("FATAL_TOLD");
    int file = told ? open(told, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file >= 0) {
        dprintf(file, "%d\n", (int)getpid());
        close(file);
    }
    if (is("abort")) {
        fprintf(stderr, "fatal.c: no chip\n");
        abort();
    }
    if (is("kill")) raise(SIGKILL);
    if (is("crash")) *(volatile int *)8 = 1;
    while (is("hang")) pause();
}

// Source of what a loader asks for: Khronos OpenCL Extension Specification, cl_khr_icd
static int icd_platforms(unsigned most, void *platforms, unsigned *count) {
    (void)most;
    (void)platforms;
    if (is("late")) abort();
    if (count) *count = 0;
    return -1001;  // CL_PLATFORM_NOT_FOUND_KHR
}

void *clGetExtensionFunctionAddress(const char *name) {
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)icd_platforms : NULL;
}

int clIcdGetPlatformIDsKHR(unsigned most, void *platforms, unsigned *count) {
    return icd_platforms(most, platforms, count);
}

// A loader opens no library without it.
int clGetPlatformInfo(void *platform, unsigned what, size_t size, void *value, size_t *needed) {
    (void)platform, (void)what, (void)size, (void)value, (void)needed;
    return -32;  // CL_INVALID_PLATFORM
}
