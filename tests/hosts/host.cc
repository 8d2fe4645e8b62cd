// SPDX-License-Identifier: Apache-2.0
// A C++ program on Debian's libtensorflow-lite that loads a delegate from a shared library:
//   host MODEL DELEGATE.so [KEY=VALUE ...]
// It runs the model on TFLite's reference kernels and on the delegate, loaded by TFLite's own loader,
// and compares the outputs byte by byte. HOST_SAVE=FOLDER writes what TFLite's benchmark_model needs for the same run:
// the inputs (`input0`, ...), the flags that name them (`flags`), and the reference kernels' outputs (`reference`).
// Exit code: 0 equal, 1 TFLite failed, 2 not all nodes are delegated, 3 other outputs.
#include <tensorflow/lite/delegates/external/external_delegate.h>
#include <tensorflow/lite/interpreter.h>
#include <tensorflow/lite/kernels/register_ref.h>
#include <tensorflow/lite/model.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

extern "C" const char* TfLiteVersion();  // of TFLite's C interface

namespace {

constexpr int kRuns = 20;

std::unique_ptr<tflite::Interpreter> MakeInterpreter(const tflite::FlatBufferModel& model,
                                                     TfLiteDelegate* delegate) {
  tflite::ops::builtin::BuiltinRefOpResolver ops;
  std::unique_ptr<tflite::Interpreter> made;
  tflite::InterpreterBuilder(model, ops)(&made, 1);
  if (!made || (delegate && made->ModifyGraphWithDelegate(delegate) != kTfLiteOk) ||
      made->AllocateTensors() != kTfLiteOk)
    return nullptr;
  unsigned state = 1;
  for (int index : made->inputs()) {
    TfLiteTensor* tensor = made->tensor(index);
    for (size_t i = 0; i < tensor->bytes; i++)
      tensor->data.raw[i] = static_cast<char>((state = state * 1103515245 + 12345) >> 16);
  }
  return made;
}

// The median of some runs in milliseconds; below 0 where a run fails.
double Run(tflite::Interpreter& interpreter) {
  std::vector<double> times;
  for (int i = 0; i < kRuns; i++) {
    const auto begun = std::chrono::steady_clock::now();
    if (interpreter.Invoke() != kTfLiteOk) return -1;
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begun;
    times.push_back(taken.count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

// A ':' in a tensor's name is written twice in a list of files.
std::string Escaped(const std::string& name) {
  std::string escaped;
  for (char letter : name) escaped += letter == ':' ? "::" : std::string(1, letter);
  return escaped;
}

void Save(const std::string& folder, const tflite::Interpreter& interpreter) {
  std::string names, shapes, files;
  for (size_t i = 0; i < interpreter.inputs().size(); i++) {
    const TfLiteTensor* input = interpreter.input_tensor(i);
    const std::string name = interpreter.GetInputName(i);
    const std::string file = folder + "/input" + std::to_string(i);
    std::ofstream(file, std::ios::binary).write(input->data.raw, input->bytes);
    names += (i ? "," : "") + name;
    files += (i ? "," : "") + Escaped(name) + ":" + file;
    for (int d = 0; d < input->dims->size; d++)
      shapes += (d ? "," : i ? ":" : "") + std::to_string(input->dims->data[d]);
  }
  std::ofstream(folder + "/flags") << "--input_layer=" << names << " --input_layer_shape=" << shapes
                                   << " --input_layer_value_files=" << files;
  std::ofstream outputs(folder + "/reference", std::ios::binary);
  for (size_t o = 0; o < interpreter.outputs().size(); o++) {
    const TfLiteTensor* output = interpreter.output_tensor(o);
    outputs.write(output->data.raw, output->bytes);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 1;
  auto model = tflite::FlatBufferModel::BuildFromFile(arguments[1]);
  if (!model) return 1;
  TfLiteExternalDelegateOptions options = TfLiteExternalDelegateOptionsDefault(arguments[2]);
  for (int i = 3; i < count; i++) {
    char* equals = std::strchr(arguments[i], '=');
    if (!equals) return 1;
    *equals = 0;
    options.insert(&options, arguments[i], equals + 1);
  }
  TfLiteDelegate* delegate = TfLiteExternalDelegateCreate(&options);
  int differ = 0, all = 0;
  {
    auto reference = MakeInterpreter(*model, nullptr);
    auto ours = MakeInterpreter(*model, delegate);
    if (!reference || !ours) return 1;
    if (ours->execution_plan().size() != 1) return 2;
    const double theirs = Run(*reference), taken = Run(*ours);
    if (theirs < 0 || taken < 0) return 1;
    for (size_t o = 0; o < ours->outputs().size(); o++) {
      const TfLiteTensor* expected = reference->output_tensor(o);
      const TfLiteTensor* found = ours->output_tensor(o);
      all += expected->bytes;
      for (size_t i = 0; i < expected->bytes; i++)
        differ += expected->data.raw[i] != found->data.raw[i];
    }
    if (const char* folder = std::getenv("HOST_SAVE")) Save(folder, *reference);
    std::printf("TFLite %s: reference %.3f ms, delegate %.3f ms, %d of %d bytes differ\n",
                TfLiteVersion(), theirs, taken, differ, all);
  }
  TfLiteExternalDelegateDelete(delegate);
  return differ || !all ? 3 : 0;
}
