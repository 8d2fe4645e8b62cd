// Builds the kernels that fault.h lists, runs them, and prints the elements that differ.
//   make && ./fault [WORD of a platform's or device's name]
// Exit code 0: all are right; 1: the fault shows; 2: no device, or a file is missing.
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fault.h"

enum { RIGHT = 100 };  // not 0, with which a driver may end the process

static const char *doing = "starting";
static pid_t child;
static volatile sig_atomic_t is_late;

static void late(int number) { is_late = number, kill(child, SIGKILL); }

static void stop(int code, const char *what, long number) {
  printf("%s: %s %ld\n", doing, what, number);
  exit(code);
}

static void check(cl_int error) {
  if (error != CL_SUCCESS) stop(1, "OpenCL error", error);
}

static char *content(const char *path, size_t *size) {
  FILE *file = fopen(doing = path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) stop(2, "cannot be opened", 0);
  *size = (size_t)ftell(file), rewind(file);
  char *bytes = calloc(*size + 1, 1);
  if (!bytes || fread(bytes, 1, *size, file) != *size) stop(2, "cannot be read", 0);
  fclose(file);
  return bytes;
}

static cl_device_id device_of(const char *word) {
  cl_platform_id platforms[16];
  cl_device_id devices[16];
  cl_uint count = 0, found = 0;
  char name[256], platform[256], version[256], driver[256];
  if (clGetPlatformIDs(16, platforms, &count)) stop(2, "no platform", 0);
  for (cl_uint p = 0; p < count && p < 16; p++) {
    clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof platform, platform, NULL);
    clGetPlatformInfo(platforms[p], CL_PLATFORM_VERSION, sizeof version, version, NULL);
    if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &found)) continue;
    for (cl_uint d = 0; d < found && d < 16; d++) {
      clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof name, name, NULL);
      clGetDeviceInfo(devices[d], CL_DRIVER_VERSION, sizeof driver, driver, NULL);
      if (!strstr(platform, word) && !strstr(version, word) && !strstr(name, word)) continue;
      printf("%s on %s (%s), driver %s\n", name, platform, version, driver);
      return devices[d];
    }
  }
  return stop(2, "no such device", 0), NULL;
}

static double value(char kind, size_t size, const char *at) {
  union { float f; double d; int64_t i; } v = {.i = 0};
  memcpy(&v, at, size);
  if (kind == 'f') return size == 4 ? (double)v.f : v.d;
  if (kind == 'i' && size < 8 && v.i >> (8 * size - 1)) v.i -= (int64_t)1 << 8 * size;
  return (double)v.i;
}

static size_t compared(const char *arena, size_t number) {
  const Output *output = &outputs[number];
  size_t size, wrong = 0, each = output->size;
  char *expected = content(output->expected, &size);
  char *bounds = output->bound ? content(output->bound, &size) : NULL;
  for (size_t i = 0; i < output->count; i++) {
    const char *a = arena + output->offset + i * each, *b = expected + i * each;
    double got = value(output->kind, each, a), right = value(output->kind, each, b);
    double bound = bounds ? value('f', 8, bounds + i * 8) : 0;
    int is_near = got == right || fabs(got - right) <= bound || (isnan(got) && isnan(right));
    if (output->kind == 'f' ? is_near : !memcmp(a, b, each)) continue;
    if (wrong++ < 16)
      printf("output %zu, element %zu: got %.9g, expected %.9g\n", number, i, got, right);
  }
  printf("output %zu: %zu of %zu elements differ\n", number, wrong, output->count);
  return wrong;
}

static int run(const char *word) {
  cl_int error;
  cl_device_id device = device_of(word);
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
  check(error);
  char *host[BUFFERS];
  cl_mem memory[BUFFERS];
  size_t size, wrong = 0;
  for (int i = 0; i < BUFFERS; i++) host[i] = calloc(SIZES[i], 1);
  for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
    char *bytes = content(loads[i].file, &size), *to = host[loads[i].buffer] + loads[i].offset;
    for (size_t b = 0; b < size; b++) to[b] = (char)(bytes[b] ^ loads[i].flip);
  }
  for (int i = 0; i < BUFFERS; i++) {
    memory[i] = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, SIZES[i], host[i], &error);
    check(error);
  }
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const Call *call = &calls[i];
    const char *source = content(call->file, &size);
    printf("building %s\n", call->file);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    check(error);
    if ((error = clBuildProgram(program, 1, &device, OPTIONS, NULL, NULL))) {
      static char log[1 << 16];
      clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
      stop(1, log, error);
    }
    cl_kernel kernel = clCreateKernel(program, doing = call->kernel, &error);
    check(error);
    const cl_int *block = (const cl_int *)host[PARAMS] + call->first - 2;
    check(clSetKernelArg(kernel, 0, sizeof(cl_mem), &memory[ARENA]));
    check(clSetKernelArg(kernel, 1, sizeof(cl_mem), &memory[CONSTANTS]));
    if (call->fields) check(clSetKernelArg(kernel, 2, 4 * (2 + call->fields), block));
    else check(clSetKernelArg(kernel, 2, sizeof(cl_mem), &memory[PARAMS]));
    if (!call->fields) check(clSetKernelArg(kernel, 3, sizeof(cl_int), &call->first));
    printf("running %s\n", call->kernel);
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &call->items, &call->group, 0, NULL, NULL));
    check(clFinish(queue));
  }
  check(clEnqueueReadBuffer(queue, memory[ARENA], CL_TRUE, 0, SIZES[ARENA], host[ARENA], 0, NULL, NULL));
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) wrong += compared(host[ARENA], i);
  return wrong ? 1 : RIGHT;
}

int main(int argc, char **argv) {
  int status = 0;
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  // A driver may end the process that calls it, or never return.
  if (!(child = fork())) return run(argc > 1 ? argv[1] : "");
  signal(SIGALRM, late);
  alarm(LIMIT_SECONDS);
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status)) return WEXITSTATUS(status) % RIGHT;
  printf(is_late ? "HANG: killed after %d s\n" : "ABORT: ended by signal %d\n",
         is_late ? LIMIT_SECONDS : WTERMSIG(status));
  return 1;
}
