// Answers requests with a SavedModel through TensorFlow's C++ loader, the one that TF Serving uses.
//
//   loader EXPORT_DIR SIGNATURE REQUEST RESPONSE [OP_LIBRARY ...]
//
// REQUEST and RESPONSE are files of tensors, see cpp_loader.py, which compiles and runs this. On
// standard output it tells what that took, a line "name value" each: seconds to load and from there
// to the first answer, megabytes held then and most ever held.

#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include "tensorflow/core/public/session_options.h"

namespace {

int Fail(const std::string& what) {
  std::cerr << what << std::endl;
  return 1;
}

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Of this process, in megabytes: VmRSS is what it holds, VmHWM the most that it has held.
double Held(const std::string& what) {
  std::ifstream status("/proc/self/status");
  std::string word;
  long long kilobytes = 0;
  while (status >> word) {
    if (word == what + ":" && status >> kilobytes) return kilobytes / 1024.0;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return Fail("usage: loader EXPORT_DIR SIGNATURE REQUEST RESPONSE [LIBRARY ...]");
  for (int i = 5; i < argc; ++i) {
    void* handle = nullptr;
    const auto status = tensorflow::Env::Default()->LoadDynamicLibrary(argv[i], &handle);
    if (!status.ok()) return Fail(std::string(argv[i]) + ": " + std::string(status.message()));
  }
  const auto begun = Clock::now();
  tensorflow::SavedModelBundle bundle;
  // The tag is spelled out: the constant for it isn't exported by the libraries of the package.
  auto status = tensorflow::LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(),
                                           argv[1], {"serve"}, &bundle);
  if (!status.ok()) return Fail("loading: " + std::string(status.message()));
  const double loading = SecondsSince(begun);
  const auto& signatures = bundle.meta_graph_def.signature_def();
  const auto found = signatures.find(argv[2]);
  if (found == signatures.end()) return Fail(std::string("no signature ") + argv[2]);

  // Each tensor as a line "name size", then so many bytes of a serialized TensorProto.
  std::ifstream request(argv[3], std::ios::binary);
  std::vector<std::pair<std::string, tensorflow::Tensor>> inputs;
  std::string name;
  long long size = 0;
  while (request >> name >> size) {
    request.get();  // the line's end
    std::string bytes(size, '\0');
    request.read(&bytes[0], size);
    tensorflow::TensorProto proto;
    tensorflow::Tensor tensor;
    if (!proto.ParseFromString(bytes) || !tensor.FromProto(proto)) return Fail("not a tensor: " + name);
    const auto input = found->second.inputs().find(name);
    if (input == found->second.inputs().end()) return Fail("no input " + name);
    inputs.emplace_back(input->second.name(), tensor);
  }
  std::vector<std::string> names, fetches;
  for (const auto& output : found->second.outputs()) {
    names.push_back(output.first);
    fetches.push_back(output.second.name());
  }
  std::vector<tensorflow::Tensor> outputs;
  status = bundle.session->Run(inputs, fetches, {}, &outputs);
  if (!status.ok()) return Fail("running: " + std::string(status.message()));
  std::cout << "loading_seconds " << loading << "\nanswering_seconds " << SecondsSince(begun) - loading
            << "\nheld_megabytes " << Held("VmRSS") << "\nmost_megabytes " << Held("VmHWM") << "\n";
  std::ofstream response(argv[4], std::ios::binary);
  for (size_t i = 0; i < outputs.size(); ++i) {
    tensorflow::TensorProto proto;
    outputs[i].AsProtoTensorContent(&proto);
    const std::string bytes = proto.SerializeAsString();
    response << names[i] << ' ' << bytes.size() << '\n' << bytes;
  }
  return response.flush() ? 0 : Fail("can't write the response");
}
