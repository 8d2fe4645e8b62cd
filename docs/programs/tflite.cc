// SPDX-License-Identifier: Apache-2.0
// Runs model.tflite with the delegate through TFLite's C++ interface.
#include <cstdio>
#include <memory>
#include <tensorflow/lite/delegates/external/external_delegate.h>
#include <tensorflow/lite/interpreter.h>
#include <tensorflow/lite/kernels/register.h>
#include <tensorflow/lite/model.h>

int main() {
  auto model = tflite::FlatBufferModel::BuildFromFile("model.tflite");
  auto options = TfLiteExternalDelegateOptionsDefault("./libtflite_opencl_delegate.so");
  options.insert(&options, "tune", "off");
  tflite::Interpreter::TfLiteDelegatePtr delegate(TfLiteExternalDelegateCreate(&options),
                                                  TfLiteExternalDelegateDelete);
  if (!model || !delegate) return 1;  // what made it has said why
  tflite::ops::builtin::BuiltinOpResolver ops;
  std::unique_ptr<tflite::Interpreter> interpreter;
  bool ran = tflite::InterpreterBuilder(*model, ops)(&interpreter) == kTfLiteOk &&
             interpreter->ModifyGraphWithDelegate(std::move(delegate)) == kTfLiteOk &&
             interpreter->AllocateTensors() == kTfLiteOk &&
             interpreter->Invoke() == kTfLiteOk;
  std::printf("%s\n", ran ? "ran" : "failed");
  return ran ? 0 : 1;
}
