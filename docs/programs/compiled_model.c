// SPDX-License-Identifier: Apache-2.0
// Runs model.tflite with the delegate through LiteRT's CompiledModel.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// litert/c of LiteRT 2.2 and 2.3, whose packages have no headers. Each function returns 0, or an error.
typedef void* Handle;
typedef struct { int tag; struct { int64_t type; const char* text; } value; } Option;
typedef struct { int32_t parts[18]; } Type;  // of a tensor: LiteRtRankedTensorType
int LiteRtCreateEnvironment(int count, const Option*, Handle* environment);
int LiteRtCreateModelFromFile(Handle environment, const char* path, Handle* model);
int LiteRtCreateOptions(Handle* options);
int LiteRtSetOptionsHardwareAccelerators(Handle options, int set);
int LiteRtCreateCompiledModel(Handle environment, Handle model, Handle options, Handle* compiled);
int LiteRtCompiledModelIsFullyAccelerated(Handle compiled, bool* answer);
int LiteRtGetModelSignature(Handle model, size_t, Handle* signature);
int LiteRtGetSignatureInputTensorByIndex(Handle signature, size_t, Handle* tensor);
int LiteRtGetSignatureOutputTensorByIndex(Handle signature, size_t, Handle* tensor);
int LiteRtGetRankedTensorType(Handle tensor, Type*);
int LiteRtGetCompiledModelInputBufferRequirements(Handle compiled, size_t signature, size_t, Handle*);
int LiteRtGetCompiledModelOutputBufferRequirements(Handle compiled, size_t signature, size_t, Handle*);
int LiteRtCreateManagedTensorBufferFromRequirements(Handle environment, const Type*, Handle, Handle* buffer);
int LiteRtGetTensorBufferPackedSize(Handle buffer, size_t* bytes);
int LiteRtLockTensorBuffer(Handle buffer, void** memory, int mode);
int LiteRtUnlockTensorBuffer(Handle buffer);
int LiteRtRunCompiledModel(Handle, size_t signature, size_t, Handle* inputs, size_t, Handle* outputs);
void LiteRtDestroyTensorBuffer(Handle);
void LiteRtDestroyCompiledModel(Handle);
void LiteRtDestroyOptions(Handle);
void LiteRtDestroyModel(Handle);
void LiteRtDestroyEnvironment(Handle);

int main(void) {
  const Option folder = {22, {8, "."}};  // kLiteRtEnvOptionTagRuntimeLibraryDir, kLiteRtAnyTypeString
  Handle environment, model, options, compiled, signature, ends[2], needs[2], buffers[2];
  Type types[2];
  void* memory;
  size_t bytes;
  bool is_whole;
  if (LiteRtCreateEnvironment(1, &folder, &environment) ||
      LiteRtCreateModelFromFile(environment, "model.tflite", &model) || LiteRtCreateOptions(&options) ||
      LiteRtSetOptionsHardwareAccelerators(options, 1 | 2) ||  // CPU and GPU
      LiteRtCreateCompiledModel(environment, model, options, &compiled) ||
      LiteRtCompiledModelIsFullyAccelerated(compiled, &is_whole))
    return 1;  // what failed has said why
  if (LiteRtGetModelSignature(model, 0, &signature) ||
      LiteRtGetSignatureInputTensorByIndex(signature, 0, &ends[0]) ||
      LiteRtGetSignatureOutputTensorByIndex(signature, 0, &ends[1]) ||
      LiteRtGetCompiledModelInputBufferRequirements(compiled, 0, 0, &needs[0]) ||
      LiteRtGetCompiledModelOutputBufferRequirements(compiled, 0, 0, &needs[1]))
    return 1;
  for (int i = 0; i < 2; i++)
    if (LiteRtGetRankedTensorType(ends[i], &types[i]) ||
        LiteRtCreateManagedTensorBufferFromRequirements(environment, &types[i], needs[i], &buffers[i]))
      return 1;
  if (LiteRtGetTensorBufferPackedSize(buffers[0], &bytes) ||
      LiteRtLockTensorBuffer(buffers[0], &memory, 1))  // to write
    return 1;
  memset(memory, 100, bytes);
  if (LiteRtUnlockTensorBuffer(buffers[0]) ||
      LiteRtRunCompiledModel(compiled, 0, 1, &buffers[0], 1, &buffers[1]) ||
      LiteRtGetTensorBufferPackedSize(buffers[1], &bytes) ||
      LiteRtLockTensorBuffer(buffers[1], &memory, 0))  // to read
    return 1;
  for (size_t i = 0; i < bytes; i++) printf("%d ", ((uint8_t*)memory)[i]);
  printf("%s\n", is_whole ? "on the GPU" : "with the CPU's help");
  LiteRtUnlockTensorBuffer(buffers[1]);
  for (int i = 0; i < 2; i++) LiteRtDestroyTensorBuffer(buffers[i]);
  LiteRtDestroyCompiledModel(compiled);
  LiteRtDestroyOptions(options);
  LiteRtDestroyModel(model);
  LiteRtDestroyEnvironment(environment);
  return 0;
}
