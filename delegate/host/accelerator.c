// SPDX-License-Identifier: Apache-2.0
// The accelerator of LiteRT's CompiledModel, which loads the library as libLiteRtGpuAccelerator.so
// from its environment's runtime_path and looks LiteRtAcceleratorImpl up. The delegate is that of
// plugin.c.
//
// The structures begin with their size and version. The layouts of version 1 hold from
// ai-edge-litert 2.2.0 on; those before carry no version that tells them apart.
// Interface: litert/c/internal/litert_accelerator_def.h, litert_runtime_context.h
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))
#define VERSION 1
#define GPU 2            // kLiteRtHwAcceleratorGpu
#define WRONG_VERSION 8  // kLiteRtStatusErrorWrongVersion

typedef struct {
  uint16_t size, major, minor, reserved;
} Header;

typedef struct {
  Header header;
  void* others[17];
  int (*wrap_delegate)(void* delegate, void (*destroy)(void*), void** wrapper);
} Runtime;

typedef struct {
  Header header;
  int (*get_name)(void*, const char**);
  int (*get_version)(void*, int*);
  int (*get_hardware)(void*, int*);
  int (*is_compiler)(void*, _Bool*);
  int (*create)(const Runtime*, void*, const void*, void*, void**);
  void* metrics[2];
  void* buffer_handlers[17];  // none: tensors are the host's memory
} Accelerator;

_Static_assert(offsetof(Runtime, wrap_delegate) == 144, "another layout");
_Static_assert(sizeof(Accelerator) == 200, "another layout");

// plugin.c
void* tflite_plugin_create_delegate(const char* const*, const char* const*, size_t,
                                    void (*)(const char*));
void tflite_plugin_destroy_delegate(void*);

static int name(void* accelerator, const char** text) {
  (void)accelerator;
  *text = "tflite-opencl";
  return 0;
}

static int version(void* accelerator, int* parts) {
  (void)accelerator;
  parts[0] = VERSION;
  parts[1] = parts[2] = 0;
  return 0;
}

static int hardware(void* accelerator, int* set) {
  (void)accelerator;
  *set = GPU;
  return 0;
}

// Whether it is asked only where its hardware is wanted.
static int is_compiler(void* accelerator, _Bool* answer) {
  (void)accelerator;
  *answer = 1;
  return 0;
}

static void report(const char* text) { fprintf(stderr, "ERROR: %s\n", text); }

// Without a wrapper LiteRT gives the nodes to its CPU, or tells its user that the CPU is needed. An
// error would be the end of the CompiledModel, without a reason.
static int create(const Runtime* runtime, void* environment, const void* accelerator, void* options,
                  void** wrapper) {
  (void)environment, (void)accelerator, (void)options;
  *wrapper = NULL;
  const Header* header = &runtime->header;
  if (header->major != VERSION || header->size < sizeof *runtime) {
    fprintf(stderr, "ERROR: OpenCL delegate: LiteRT's interface %d.%d of %d bytes is not known\n",
            header->major, header->minor, header->size);
    return 0;
  }
  const char* key = "compiled_model";
  const char* value = getenv("TFLITE_OPENCL_OPTIONS");  // CompiledModel has no room for them
  if (!value) value = "";
  void* delegate = tflite_plugin_create_delegate(&key, &value, 1, report);
  if (!delegate) return 0;
  int status = runtime->wrap_delegate(delegate, tflite_plugin_destroy_delegate, wrapper);
  if (status) tflite_plugin_destroy_delegate(delegate);
  return status;
}

EXPORTED const Accelerator LiteRtAcceleratorImpl = {
    .header = {.size = sizeof(Accelerator), .major = VERSION},
    .get_name = name,
    .get_version = version,
    .get_hardware = hardware,
    .is_compiler = is_compiler,
    .create = create,
};

// Called where LiteRT does not take the structure above.
EXPORTED int LiteRtRegisterGpuAccelerator(void* environment) {
  (void)environment;
  report(
      "OpenCL delegate: this LiteRT takes no accelerator of version 1, as ai-edge-litert does "
      "from 2.2.0 on");
  return WRONG_VERSION;
}
