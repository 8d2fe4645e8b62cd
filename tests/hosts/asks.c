// SPDX-License-Identifier: Apache-2.0
// A program without TFLite that asks a library for a delegate, as TFLite would:
//   asks DELEGATE.so HOW [KEY=VALUE ...]
// HOW: `reported` gives a function that errors are told to. `silent` gives none, as TFLite's own
// loader, and calls the Prepare function of what comes back. `twice` closes the library between two
// requests. Prints "made" for a delegate, or what was told.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST_OPTIONS = 16 };

typedef struct {  // the beginning of a TfLiteDelegate
  void* data;
  int (*prepare)(void*, void*);
} Delegate;

static const char *keys[MOST_OPTIONS], *values[MOST_OPTIONS];
static size_t options_count;

static void say(const char* text) { printf("%s\n", text); }

static int ask(const char* path, int is_silent) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return 9;
  Delegate* (*create)(const char**, const char**, size_t, void (*)(const char*));
  void (*destroy)(void*);
  *(void**)&create = dlsym(library, "tflite_plugin_create_delegate");
  *(void**)&destroy = dlsym(library, "tflite_plugin_destroy_delegate");
  if (!create || !destroy) return 9;
  Delegate* delegate = create(keys, values, options_count, is_silent ? NULL : say);
  if (delegate && is_silent) printf("prepare: %d\n", delegate->prepare(NULL, delegate));
  if (delegate && !is_silent) printf("made\n");
  destroy(delegate);
  dlclose(library);
  return 0;
}

int main(int count, char** arguments) {
  if (count < 3) return 9;
  for (int i = 3; i < count && options_count < MOST_OPTIONS; i++) {
    char* equals = strchr(arguments[i], '=');
    if (!equals) return 9;
    *equals = 0;
    keys[options_count] = arguments[i];
    values[options_count++] = equals + 1;
  }
  int status = ask(arguments[1], !strcmp(arguments[2], "silent"));
  if (!status && !strcmp(arguments[2], "twice")) status = ask(arguments[1], 0);
  return status;
}
