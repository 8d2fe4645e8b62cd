// SPDX-License-Identifier: Apache-2.0
// TFLite's external delegate interface for programs that are not Python: finds the Python that
// runs in this process, or starts one, and asks delegate/host/external.py for a delegate. Knows neither
// TFLite's structures nor OpenCL.
//
// `tflite-opencl library` compiles it with -DPYTHON (the python that has the package) and
// -DLIBPYTHON (its shared library). No Python headers are needed: all that is called is in
// CPython's stable interface and looked up at run time, so one build serves every version.
// Interface: tflite/delegates/external/external_delegate.cc
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define EXPORTED __attribute__((visibility("default")))
#define ERROR_BYTES 2048
#define PATH_BYTES 4096

// What crosses to Python and back; delegate/host/tflite/plugin.py mirrors it.
typedef struct {
  const char* const* keys;
  const char* const* values;
  uint64_t count;
  void* delegate;           // answer: a TfLiteDelegate, or NULL
  void (*destroy)(void*);   // answer: takes the delegate
  char error[ERROR_BYTES];  // answer, where the delegate is NULL: UTF-8
} Request;

// CPython's functions, in the order of kNames.
typedef struct {
  int (*is_initialized)(void);
  int (*ensure)(void);
  void (*release)(int);
  int (*run)(const char*);
} Python;

static const char* const kNames[] = {"Py_IsInitialized", "PyGILState_Ensure", "PyGILState_Release",
                                     "PyRun_SimpleString"};

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static Python python;           // complete, once python.run is there
static void (*destroy)(void*);  // one function, for the delegates of all requests

// TFLite's own loader gives no function to report to, and until 2.14 at least it calls Prepare of
// a delegate that was not made. Such a caller gets one that refuses. Begins as a TfLiteDelegate.
typedef struct {
  void* data;  // the text
  int (*prepare)(void*, void*);
  void* buffers[3];
  int64_t flags;
  void* builder;
} Refusing;

static int refuse(void* context, void* delegate) {
  (void)context;
  fprintf(stderr, "ERROR: %s\n", (const char*)((Refusing*)delegate)->data);
  return 2;  // kTfLiteDelegateError: the graph stays as it was
}

static void* refusing(const char* text) {
  Refusing* made = calloc(1, sizeof *made);
  if (made) {
    made->data = strdup(text);
    made->prepare = refuse;
  }
  return made;
}

// Write why, and return 0.
static int fail(char* error, const char* format, const char* what) {
  snprintf(error, ERROR_BYTES, format, what ? what : "no reason is known");
  return 0;
}

static int look_up(void* handle, Python* found, char* error) {
  void* functions[4];
  for (int i = 0; i < 4; i++) {
    functions[i] = dlsym(handle, kNames[i]);
    if (!functions[i]) return fail(error, "Python has no function %s", kNames[i]);
  }
  memcpy(found, functions, sizeof *found);
  return 1;
}

// Ask a python which shared library it is in.
static int ask_for_library(const char* executable, char* path, char* error) {
  char command[2 * PATH_BYTES];
  if (strchr(executable, '\'')) return fail(error, "a quote in the path %s", executable);
  snprintf(
      command, sizeof command,
      "'%s' -c 'import os, sysconfig; name = sysconfig.get_config_var(\"INSTSONAME\") or \"\"; "
      "path = os.path.join(sysconfig.get_config_var(\"LIBDIR\") or \"\", name); "
      "print(path if os.path.exists(path) else name)'",
      executable);
  path[0] = 0;
  FILE* answer = popen(command, "r");
  if (answer) {
    if (!fgets(path, PATH_BYTES, answer)) path[0] = 0;
    pclose(answer);
  }
  path[strcspn(path, "\n")] = 0;
  return strstr(path, ".so") ? 1 : fail(error, "%s has no shared libpython", executable);
}

static int is_libpython(struct dl_phdr_info* info, size_t size, void* found) {
  (void)size;
  const char* name = strrchr(info->dlpi_name, '/');
  if (!name || strncmp(name, "/libpython3.", strlen("/libpython3."))) return 0;
  *(const char**)found = info->dlpi_name;
  return 1;
}

static const char* file_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// From Python 3.14 on. The configuration begins as one that no environment variable changes.
static int start_by_config(void* handle, const char* executable, char* error) {
  void* (*make)(void) = dlsym(handle, "PyInitConfig_Create");
  void (*drop)(void*) = dlsym(handle, "PyInitConfig_Free");
  int (*set)(void*, const char*, const char*) = dlsym(handle, "PyInitConfig_SetStr");
  int (*start)(void*) = dlsym(handle, "Py_InitializeFromInitConfig");
  int (*tell)(void*, const char**) = dlsym(handle, "PyInitConfig_GetError");
  const char* text = "no memory";
  void* config = make && drop && set && start && tell ? make() : NULL;
  if (!config) return fail(error, "Python does not start: %s", text);
  // Both: a name is looked for in PATH, and a virtual environment is found beside the executable.
  int is_started = !set(config, "program_name", executable) &&
                   !set(config, "executable", executable) && !start(config);
  if (!is_started) {
    tell(config, &text);
    fail(error, "Python does not start: %s", text);
  }
  drop(config);
  return is_started;
}

// Until Python 3.13, whose PyConfig has another layout in each version.
static int start_by_name(void* handle, const char* executable, char* error) {
  void (*set_name)(const wchar_t*) = dlsym(handle, "Py_SetProgramName");
  void (*start)(int) = dlsym(handle, "Py_InitializeEx");
  int* ignores_environment = dlsym(handle, "Py_IgnoreEnvironmentFlag");
  if (!set_name || !start) return fail(error, "%s", "this Python cannot be embedded");
  size_t length = strlen(executable);
  wchar_t* name = calloc(length + 1, sizeof *name);  // Python keeps it
  if (!name) return fail(error, "%s", "no memory");
  if (mbstowcs(name, executable, length) == (size_t)-1)
    for (size_t i = 0; i < length; i++) name[i] = (unsigned char)executable[i];
  set_name(name);
  // A PYTHONHOME that is meant for another Python would end the host's process.
  if (ignores_environment) *ignores_environment = 1;
  start(0);  // without signal handlers
  return 1;
}

static int start_python(void* handle, const char* executable, char* error) {
  int is_new = dlsym(handle, "PyInitConfig_Create") != NULL;
  if (!(is_new ? start_by_config : start_by_name)(handle, executable, error)) return 0;
  // The thread that started Python holds its lock, and every other thread would wait for it.
  void* (*let_go)(void) = dlsym(handle, "PyEval_SaveThread");
  if (let_go) let_go();
  return 1;
}

// Which python, and which library it is in: the environment's word, else the build's.
static int choose_python(char* executable, char* library, char* error) {
  const char* wanted = getenv("TFLITE_OPENCL_PYTHON");
  int is_wanted = wanted && *wanted;
  snprintf(executable, PATH_BYTES, "%s", is_wanted ? wanted : PYTHON);
  if (access(executable, X_OK))
    return fail(error,
                is_wanted ? "TFLITE_OPENCL_PYTHON is %s, which is no program"
                          : "there is no %s any more: make the library again with "
                            "`tflite-opencl library`, or set TFLITE_OPENCL_PYTHON",
                executable);
  if (is_wanted) return ask_for_library(executable, library, error);
  snprintf(library, PATH_BYTES, "%s", LIBPYTHON);
  return 1;
}

// Fill `python`. Runs under the lock `starting`, and never waits for Python's own lock.
static int find_python(char* error) {
  char executable[PATH_BYTES], library[PATH_BYTES];
  Python found;
  if (python.run) return 1;
  int (*running)(void) = dlsym(RTLD_DEFAULT, kNames[0]);
  if (running && running()) {  // the host is Python itself
    if (!look_up(RTLD_DEFAULT, &found, error)) return 0;
    python = found;
    return 1;
  }
  const char* loaded = NULL;
  dl_iterate_phdr(is_libpython, &loaded);
  if (!choose_python(executable, library, error)) return 0;
  if (loaded && strcmp(file_name(loaded), file_name(library)))
    return fail(error, "the process has another Python already: %s", loaded);
  // Global: the modules of numpy and pyopencl are not linked to libpython, and look for it there.
  void* handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (!handle) return fail(error, "%s (Debian: a package such as libpython3.13)", dlerror());
  if (!look_up(handle, &found, error)) return 0;
  if (!found.is_initialized() && !start_python(handle, executable, error)) return 0;
  python = found;
  return 1;
}

static void ask_python(Request* request) {
  char code[1024];
  // In a scope of its own: __main__ may be somebody's program.
  snprintf(code, sizeof code,
           "exec('''\n"
           "import sys\n"
           "try:\n"
           "    from delegate.host.external import create\n"
           "    create(%llu)\n"
           "except BaseException as error:\n"
           "    import ctypes\n"
           "    text = f'{type(error).__name__}: {error} (the Python is {sys.executable})'\n"
           "    text = text.encode(errors='replace')[:%d] + bytes(1)\n"
           "    ctypes.memmove(%llu, text, len(text))\n"
           "''', {})\n",
           (unsigned long long)(uintptr_t)request, ERROR_BYTES - 1,
           (unsigned long long)(uintptr_t)request->error);
  int state = python.ensure();
  if (python.run(code) && !request->error[0]) fail(request->error, "%s", "Python failed");
  python.release(state);
}

EXPORTED void* tflite_plugin_create_delegate(const char* const* keys, const char* const* values,
                                             size_t count, void (*report)(const char*)) {
  Request* request = calloc(1, sizeof *request);
  if (!request) return NULL;
  request->keys = keys;
  request->values = values;
  request->count = (uint32_t)count;  // TFLite's Python binding passes an int
  pthread_mutex_lock(&starting);
  int is_ready = find_python(request->error);
  pthread_mutex_unlock(&starting);
  if (is_ready) ask_python(request);
  void* delegate = request->delegate;
  if (delegate) {
    destroy = request->destroy;
  } else {
    char text[ERROR_BYTES + 32];
    fail(text, "OpenCL delegate: %s", request->error[0] ? request->error : NULL);
    if (report)
      report(text);
    else
      delegate = refusing(text);
  }
  free(request);
  return delegate;
}

EXPORTED void tflite_plugin_destroy_delegate(void* delegate) {
  if (!delegate) return;
  if (((Refusing*)delegate)->prepare == refuse) {
    free(((Refusing*)delegate)->data);
    free(delegate);
  } else if (destroy && python.is_initialized()) {
    destroy(delegate);  // takes Python's lock itself
  }
}
