// SPDX-License-Identifier: Apache-2.0
// A program on TFLite's C interface that loads a delegate from a shared library, as tests see it:
//   host TFLITE.so MODEL DELEGATE.so HOW [KEY=VALUE ...]
// It runs the model on the CPU and on the delegate, and compares the outputs byte by byte. TFLite is
// loaded at run time, so that one build serves every version. HOW:
//   once      on the main thread          threads  each run on a thread of its own
//   two       two delegates on two threads, then the first after the second is gone
//   reopened  dlclose and dlopen of the delegate's library between two runs
//   exits     exit() while another thread runs; `kept` destroys nothing
// Exit code: 0 equal, 1 TFLite failed, 2 no delegate, 3 other outputs, 9 a library is missing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 20, MOST_OPTIONS = 16, MOST_OUTPUTS = 8 };

static struct {
  const char* (*Version)(void);
  void* (*ModelCreateFromFile)(const char*);
  void* (*InterpreterOptionsCreate)(void);
  void (*InterpreterOptionsAddDelegate)(void*, void*);
  void* (*InterpreterCreate)(void*, void*);
  void (*InterpreterDelete)(void*);
  int (*InterpreterAllocateTensors)(void*);
  int (*InterpreterInvoke)(void*);
  int (*InterpreterGetInputTensorCount)(void*);
  int (*InterpreterGetOutputTensorCount)(void*);
  void* (*InterpreterGetInputTensor)(void*, int);
  const void* (*InterpreterGetOutputTensor)(void*, int);
  size_t (*TensorByteSize)(const void*);
  char* (*TensorData)(const void*);
} tflite;
static const char* const names[] = {"Version",
                                    "ModelCreateFromFile",
                                    "InterpreterOptionsCreate",
                                    "InterpreterOptionsAddDelegate",
                                    "InterpreterCreate",
                                    "InterpreterDelete",
                                    "InterpreterAllocateTensors",
                                    "InterpreterInvoke",
                                    "InterpreterGetInputTensorCount",
                                    "InterpreterGetOutputTensorCount",
                                    "InterpreterGetInputTensor",
                                    "InterpreterGetOutputTensor",
                                    "TensorByteSize",
                                    "TensorData"};

static void* (*create)(const char**, const char**, size_t, void (*)(const char*));
static void (*destroy)(void*);
static const char *keys[MOST_OPTIONS], *values[MOST_OPTIONS];
static size_t options_count;
static const char* plugin_path;
static void* model;

static void say(const char* text) { fprintf(stderr, "reported: %s\n", text); }

static void* opened(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(9);
  }
  return handle;
}

static void* open_plugin(void) {
  void* plugin = opened(plugin_path);
  *(void**)&create = dlsym(plugin, "tflite_plugin_create_delegate");
  *(void**)&destroy = dlsym(plugin, "tflite_plugin_destroy_delegate");
  return plugin;
}

static void* make_delegate(void) {
  void* delegate = create(keys, values, options_count, say);
  if (!delegate) exit(2);
  return delegate;
}

static void* make_interpreter(void* delegate) {
  void* options = tflite.InterpreterOptionsCreate();
  if (delegate) tflite.InterpreterOptionsAddDelegate(options, delegate);
  void* made = tflite.InterpreterCreate(model, options);
  if (!made || tflite.InterpreterAllocateTensors(made)) {
    fprintf(stderr, "no interpreter\n");
    exit(1);
  }
  unsigned state = 1;
  for (int i = 0; i < tflite.InterpreterGetInputTensorCount(made); i++) {
    void* input = tflite.InterpreterGetInputTensor(made, i);
    for (size_t at = 0; at < tflite.TensorByteSize(input); at++)
      tflite.TensorData(input)[at] = (char)((state = state * 1103515245 + 12345) >> 16);
  }
  return made;
}

static void* run(void* interpreter) {
  if (tflite.InterpreterInvoke(interpreter)) {
    fprintf(stderr, "a run failed\n");
    exit(1);
  }
  return NULL;
}

static void* run_often(void* interpreter) {
  for (int i = 0; i < RUNS; i++) run(interpreter);
  return NULL;
}

static void* run_forever(void* interpreter) {
  for (;;) run(interpreter);
  return NULL;
}

static void run_on_threads(void* interpreter) {
  for (int i = 0; i < RUNS; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, interpreter);
    pthread_join(thread, NULL);
  }
}

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

// Print how many bytes of the outputs differ from the CPU's, and exit if any does.
static void compare(void* ours, void* cpu, const char* what) {
  size_t differ = 0, all = 0;
  for (int i = 0; i < tflite.InterpreterGetOutputTensorCount(cpu); i++) {
    const void* output = tflite.InterpreterGetOutputTensor(cpu, i);
    const char* expected = tflite.TensorData(output);
    const char* found = tflite.TensorData(tflite.InterpreterGetOutputTensor(ours, i));
    for (size_t at = 0; at < tflite.TensorByteSize(output); at++, all++)
      differ += expected[at] != found[at];
  }
  printf("%s: %zu of %zu bytes differ\n", what, differ, all);
  if (differ || !all) exit(3);
}

static void run_two(void* first, void* cpu) {
  void* delegate = make_delegate();
  void* second = make_interpreter(delegate);
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, run_often, first);
  pthread_create(&threads[1], NULL, run_often, second);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  compare(second, cpu, "second");
  tflite.InterpreterDelete(second);
  destroy(delegate);
  run(first);
}

static double median_of_runs(void* interpreter) {
  double times[RUNS];
  for (int i = 0; i < RUNS; i++) {
    double begun = milliseconds();
    run(interpreter);
    double taken = milliseconds() - begun;
    int at = i;
    for (; at > 0 && times[at - 1] > taken; at--) times[at] = times[at - 1];
    times[at] = taken;
  }
  return times[RUNS / 2];
}

int main(int count, char** arguments) {
  if (count < 5) return 9;
  void* library = opened(arguments[1]);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[64];
    snprintf(name, sizeof name, "TfLite%s", names[i]);
    ((void**)&tflite)[i] = dlsym(library, name);
    if (!((void**)&tflite)[i]) return 9;
  }
  plugin_path = arguments[3];
  const char* how = arguments[4];
  for (int i = 5; i < count && options_count < MOST_OPTIONS; i++) {
    char* equals = strchr(arguments[i], '=');
    if (!equals) return 9;
    *equals = 0;
    keys[options_count] = arguments[i];
    values[options_count++] = equals + 1;
  }
  printf("TFLite %s\n", tflite.Version());
  model = tflite.ModelCreateFromFile(arguments[2]);
  void* cpu = make_interpreter(NULL);
  run(cpu);

  void* plugin = open_plugin();
  double begun = milliseconds();
  void* delegate = make_delegate();
  printf("created in %.0f ms\n", milliseconds() - begun);
  void* ours = make_interpreter(delegate);
  printf("CPU %.3f ms, delegate %.3f ms\n", median_of_runs(cpu), median_of_runs(ours));
  if (!strcmp(how, "threads")) run_on_threads(ours);
  if (!strcmp(how, "two")) run_two(ours, cpu);
  compare(ours, cpu, "delegate");
  fflush(stdout);
  if (!strcmp(how, "exits")) {
    pthread_t thread;
    pthread_create(&thread, NULL, run_forever, ours);
    usleep(100000);
    exit(0);
  }
  if (!strcmp(how, "kept")) return 0;
  tflite.InterpreterDelete(ours);
  destroy(delegate);
  if (!strcmp(how, "reopened")) {
    dlclose(plugin);
    open_plugin();
    delegate = make_delegate();
    ours = make_interpreter(delegate);
    run(ours);
    compare(ours, cpu, "reopened");
    tflite.InterpreterDelete(ours);
    destroy(delegate);
  }
  return 0;
}
