// Any bytes as a TensorProto.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "../src/native/tensor_proto.h"

using namespace penstock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  // The decoder allows 64 times the bytes of a record; a little more reaches the cases beyond.
  constexpr int64_t kMaxNbytes = 1 << 16;
  Tensor tensor;
  Problem problem;
  if (!read_tensor({input, input + size}, tensor, problem)) {
    const bool is_inside = problem.at >= input && problem.at <= input + size;
    if (problem.fault == Fault::kNone || !is_inside) std::abort();
    return 0;
  }
  if (tensor.type == Type::kString) {
    if (tensor.count > kMaxNbytes / 8) return 0;
    TensorStrings strings(tensor);
    if (!strings.start(tensor, problem)) return 0;
    size_t total = 0;
    for (int64_t i = 0; i < tensor.count; ++i) {
      const Reader item = strings.next();
      for (const uint8_t* p = item.at; p < item.end; ++p) total += *p;
    }
    return total == SIZE_MAX;
  }
  const int64_t width = type_nbytes(tensor.type);
  if (tensor.count > kMaxNbytes / width) return 0;
  // Exactly the room there is, so that a byte too many is seen.
  std::vector<uint8_t> out(static_cast<size_t>(tensor.count * width));
  copy_tensor(tensor, out.data(), problem);
  return 0;
}
