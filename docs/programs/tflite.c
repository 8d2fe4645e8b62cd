// SPDX-License-Identifier: Apache-2.0
// Runs model.tflite with the delegate through TFLite's C interface.
#include <dlfcn.h>
#include <stdio.h>
#include <tensorflow/lite/c/c_api.h>

static void say(const char* text) { fprintf(stderr, "%s\n", text); }

int main(void) {
  void* library = dlopen("./libtflite_opencl_delegate.so", RTLD_NOW);
  TfLiteDelegate* (*create)(const char**, const char**, size_t, void (*)(const char*)) =
      library ? dlsym(library, "tflite_plugin_create_delegate") : NULL;
  if (!create) {
    say(dlerror());
    return 1;
  }
  const char *keys[] = {"tune"}, *values[] = {"off"};
  TfLiteDelegate* delegate = create(keys, values, 1, say);  // NULL after it has said why
  TfLiteModel* model = TfLiteModelCreateFromFile("model.tflite");
  if (!delegate || !model) return 1;
  TfLiteInterpreterOptions* options = TfLiteInterpreterOptionsCreate();
  TfLiteInterpreterOptionsAddDelegate(options, delegate);
  TfLiteInterpreter* interpreter = TfLiteInterpreterCreate(model, options);
  int status = !interpreter || TfLiteInterpreterAllocateTensors(interpreter) ||
               TfLiteInterpreterInvoke(interpreter);
  printf("%s\n", status ? "failed" : "ran");
  return status;
}
