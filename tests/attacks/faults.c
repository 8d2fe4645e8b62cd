// SPDX-License-Identifier: Apache-2.0
// An OpenCL that fails, lies, crashes or hangs at a chosen call. It stands before the ICD loader by LD_PRELOAD and
// passes every other call on. tests/attacks/faults.py builds it, sets its variables and reads what it counted:
//   FAULT_CALL   the function       FAULT_NTH   its call in a process, from 1       FAULT_LASTS=1   and all later calls
//   FAULT_KIND   error (FAULT_STATUS: the status), skip (says it is done, does nothing), flip (one bit of what
//                crosses), abort, crash, hang, kill (SIGKILL), stop (of the whole group, as by Ctrl-Z),
//                thread (a thread of the driver aborts a moment later)
//   FAULT_KERNEL only calls of clCreateKernel for kernels with this in their names count
//   FAULT_IN     command: only in the first process; children: only in those it starts; nothing: in all
//   FAULT_ONCE   a file that is made where it goes wrong: in no other process does it go wrong then
//   FAULT_WHILE  a file: nothing goes wrong until it is there
//   FAULT_COUNTS a file to which each process adds lines "depth pid function calls" when it ends
// Source of the prototypes: Khronos OpenCL Specification, "The OpenCL Runtime". OpenCL's headers are not needed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "icd_loader.h"

typedef void *H;  // a handle, or a pointer that is passed on
typedef unsigned N;
typedef size_t S;
typedef uint64_t F;

enum { MOST = 64 };
static struct { const char *name; long calls; } counted[MOST];
static const char *call, *kind, *counts_file, *once, *until, *kernel;
static long nth;
static int status, lasts, depth, is_here;

// Before any code of the process: its children see a greater depth.
__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("FAULT_DEPTH"), *place = getenv("FAULT_IN");
    char deeper[16];
    depth = text ? atoi(text) : 0;
    snprintf(deeper, sizeof deeper, "%d", depth + 1);
    setenv("FAULT_DEPTH", deeper, 1);
    call = getenv("FAULT_CALL");
    kind = getenv("FAULT_KIND");
    counts_file = getenv("FAULT_COUNTS");
    once = getenv("FAULT_ONCE");
    until = getenv("FAULT_WHILE");
    kernel = getenv("FAULT_KERNEL");
    nth = (text = getenv("FAULT_NTH")) ? atol(text) : 0;
    status = (text = getenv("FAULT_STATUS")) ? atoi(text) : -5;
    lasts = getenv("FAULT_LASTS") != NULL;
    is_here = !place || !*place || (strcmp(place, "command") == 0) == (depth == 0);
}

__attribute__((destructor)) static void end(void) {
    int file = counts_file ? open(counts_file, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file < 0) return;
    for (int i = 0; i < MOST && counted[i].name; i++)
        dprintf(file, "%d %d %s %ld\n", depth, (int)getpid(), counted[i].name, counted[i].calls);
    close(file);
}

static void *abort_later(void *unused) {
    (void)unused;
    usleep(1000);
    abort();
}

static void *real(const char *name) {
    void *function = loader_function(name);
    if (!function) {
        fprintf(stderr, "faults: no %s in the ICD loader\n", name);
        _exit(99);
    }
    return function;
}

// Counts a call; whether it is the chosen one, in a kind of fault that the wrapper has to make itself.
static int is_hit(const char *name) {
    long now = 0;
    for (int i = 0; i < MOST; i++) {
        if (!counted[i].name) counted[i].name = name;
        if (strcmp(counted[i].name, name) == 0) {
            now = __sync_add_and_fetch(&counted[i].calls, 1);
            break;
        }
    }
    if (!is_here || !nth || !call || strcmp(call, name) != 0 || (lasts ? now < nth : now != nth)) return 0;
    if (until && access(until, F_OK) != 0) return 0;
    if (once && open(once, O_WRONLY | O_CREAT | O_EXCL, 0644) < 0) return 0;
    if (strcmp(kind, "abort") == 0) abort();
    pthread_t thread;
    if (strcmp(kind, "thread") == 0 && pthread_create(&thread, NULL, abort_later, NULL) == 0) return 0;
    if (strcmp(kind, "crash") == 0) *(volatile int *)8 = 1;
    if (strcmp(kind, "kill") == 0) raise(SIGKILL);
    if (strcmp(kind, "stop") == 0) kill(0, SIGSTOP);
    while (strcmp(kind, "hang") == 0) pause();
    return 1;
}

static int is(const char *wanted) { return strcmp(kind, wanted) == 0; }

// In the place of a command: a marker, so that there is an event to wait for.
static int marker(H queue, N count, H waits, H event) {
    return ((int (*)(H, N, H, H))real("clEnqueueMarkerWithWaitList"))(queue, count, waits, event);
}

// A function that returns a status; one that returns an object and gives its status by the last parameter, `error`.
#define STATUS(name, types, values)                              \
    int name types {                                             \
        if (is_hit(#name) && is("error")) return status;         \
        return ((int(*) types)real(#name))values;                \
    }
#define OBJECT(name, types, values)                              \
    H name types {                                               \
        if (is_hit(#name) && is("error")) {                      \
            if (error) *error = status;                          \
            return NULL;                                         \
        }                                                        \
        return ((H(*) types)real(#name))values;                  \
    }

STATUS(clGetPlatformIDs, (N n, H p, N *c), (n, p, c))
STATUS(clGetPlatformInfo, (H p, N w, S s, H v, S *r), (p, w, s, v, r))
STATUS(clGetDeviceIDs, (H p, F t, N n, H d, N *c), (p, t, n, d, c))
STATUS(clGetDeviceInfo, (H d, N w, S s, H v, S *r), (d, w, s, v, r))
STATUS(clGetContextInfo, (H c, N w, S s, H v, S *r), (c, w, s, v, r))
STATUS(clGetCommandQueueInfo, (H q, N w, S s, H v, S *r), (q, w, s, v, r))
STATUS(clGetMemObjectInfo, (H m, N w, S s, H v, S *r), (m, w, s, v, r))
STATUS(clGetProgramInfo, (H p, N w, S s, H v, S *r), (p, w, s, v, r))
STATUS(clGetProgramBuildInfo, (H p, H d, N w, S s, H v, S *r), (p, d, w, s, v, r))
STATUS(clGetKernelInfo, (H k, N w, S s, H v, S *r), (k, w, s, v, r))
STATUS(clGetKernelArgInfo, (H k, N i, N w, S s, H v, S *r), (k, i, w, s, v, r))
STATUS(clGetKernelWorkGroupInfo, (H k, H d, N w, S s, H v, S *r), (k, d, w, s, v, r))
STATUS(clGetEventInfo, (H e, N w, S s, H v, S *r), (e, w, s, v, r))
STATUS(clGetEventProfilingInfo, (H e, N w, S s, H v, S *r), (e, w, s, v, r))
OBJECT(clCreateContext, (H p, N n, H d, H f, H u, int *error), (p, n, d, f, u, error))
OBJECT(clCreateCommandQueue, (H c, H d, F f, int *error), (c, d, f, error))
OBJECT(clCreateCommandQueueWithProperties, (H c, H d, H p, int *error), (c, d, p, error))
OBJECT(clCreateBuffer, (H c, F f, S s, H h, int *error), (c, f, s, h, error))
OBJECT(clCreateSubBuffer, (H b, F f, N t, H i, int *error), (b, f, t, i, error))
OBJECT(clCreateProgramWithSource, (H c, N n, H t, H l, int *error), (c, n, t, l, error))
OBJECT(clCreateProgramWithBinary, (H c, N n, H d, H l, H b, H t, int *error), (c, n, d, l, b, t, error))
#define is_hit(name) ((!kernel || strstr(n, kernel)) && is_hit(name))
OBJECT(clCreateKernel, (H p, const char *n, int *error), (p, n, error))
#undef is_hit
STATUS(clBuildProgram, (H p, N n, H d, const char *o, H f, H u), (p, n, d, o, f, u))
STATUS(clCreateKernelsInProgram, (H p, N n, H k, N *c), (p, n, k, c))
STATUS(clSetKernelArg, (H k, N i, S s, const void *v), (k, i, s, v))
STATUS(clEnqueueCopyBuffer, (H q, H a, H b, S f, S t, S s, N n, H w, H e), (q, a, b, f, t, s, n, w, e))
STATUS(clEnqueueFillBuffer, (H q, H b, H p, S z, S o, S s, N n, H w, H e), (q, b, p, z, o, s, n, w, e))
STATUS(clEnqueueUnmapMemObject, (H q, H b, H p, N n, H w, H e), (q, b, p, n, w, e))
STATUS(clEnqueueMarkerWithWaitList, (H q, N n, H w, H e), (q, n, w, e))
STATUS(clEnqueueBarrierWithWaitList, (H q, N n, H w, H e), (q, n, w, e))
STATUS(clWaitForEvents, (N n, H w), (n, w))
STATUS(clFlush, (H q), (q))
STATUS(clFinish, (H q), (q))
STATUS(clReleaseMemObject, (H m), (m))
STATUS(clReleaseKernel, (H k), (k))
STATUS(clReleaseProgram, (H p), (p))
STATUS(clReleaseCommandQueue, (H q), (q))
STATUS(clReleaseContext, (H c), (c))
STATUS(clReleaseEvent, (H e), (e))

int clEnqueueNDRangeKernel(H q, H k, N d, H o, H g, H l, N n, H w, H e) {
    if (is_hit(__func__)) return is("error") ? status : marker(q, n, w, e);
    return ((int (*)(H, H, N, H, H, H, N, H, H))real(__func__))(q, k, d, o, g, l, n, w, e);
}

int clEnqueueReadBuffer(H q, H b, N blocks, S o, S s, unsigned char *p, N n, H w, H e) {
    int hit = is_hit(__func__);
    if (hit && is("error")) return status;
    if (hit && is("skip")) return marker(q, n, w, e);
    int (*read)(H, H, N, S, S, H, N, H, H) = real(__func__);
    int got = read(q, b, hit ? 1 : blocks, o, s, p, n, w, e);
    if (hit && got == 0) p[s / 2] ^= 0x10;
    return got;
}

int clEnqueueWriteBuffer(H q, H b, N blocks, S o, S s, const unsigned char *p, N n, H w, H e) {
    int hit = is_hit(__func__);
    if (hit && is("error")) return status;
    if (hit && is("skip")) return marker(q, n, w, e);
    int (*write)(H, H, N, S, S, const void *, N, H, H) = real(__func__);
    unsigned char *changed = hit ? malloc(s) : NULL;
    if (!changed) return write(q, b, blocks, o, s, p, n, w, e);
    memcpy(changed, p, s);
    changed[s / 2] ^= 0x10;
    int got = write(q, b, 1, o, s, changed, n, w, e);
    free(changed);
    return got;
}

H clEnqueueMapBuffer(H q, H b, N blocks, F f, S o, S s, N n, H w, H e, int *error) {
    int hit = is_hit(__func__);
    if (hit && is("error")) {
        if (error) *error = status;
        return NULL;
    }
    H (*map)(H, H, N, F, S, S, N, H, H, int *) = real(__func__);
    unsigned char *p = map(q, b, hit ? 1 : blocks, f, o, s, n, w, e, error);
    if (hit && p && (f & 1)) p[s / 2] ^= 0x10;  // CL_MAP_READ
    return p;
}
