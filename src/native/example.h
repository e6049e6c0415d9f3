// tf.train.Example, decoded straight into columns: many records a call, a row a record.
//
// What a record means is what protobuf makes of it: fields in any order, lists packed or not and in any number of
// parts, unknown fields passed over, submessages merged, the last of equal map keys. What a feature must be is what
// tf.io.parse_example asks for. Where those two disagree protobuf wins; docs in Python list the cases.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor_proto.h"
#include "tfrecord_frame.h"
#include "wire.h"

namespace penstock {

// The members of Feature's oneof, by field number.
enum class Kind : uint8_t { kNone = 0, kBytes = 1, kFloats = 2, kInts = 3 };

enum class Form : uint8_t {
  kFixed,     // exactly `count` values
  kVariable,  // any number of values
  kTensor,    // one bytes value that holds a TensorProto
};

// What the caller wants of one feature.
struct FeaturePlan {
  std::string name;
  Form form = Form::kFixed;
  Type type{};
  std::vector<int64_t> shape;  // -1: any size. Of kVariable: empty
  bool is_utf8 = false;        // strings must be text
  bool has_default = false;
  std::vector<uint8_t> default_row;        // the bytes of a row of numbers
  std::vector<std::string> default_items;  // the items of a row of strings

  // What follows from these, set by Plan.
  Kind kind = Kind::kNone;
  int64_t count = 0;       // values a row; -1 where that varies
  int64_t width = 0;       // bytes a value; 0 for strings
  bool has_slots = false;  // rows of one size, in memory of the caller's
};

class Plan {
 public:
  // Throws std::invalid_argument for features that cannot be: two of a name, a type that a list cannot hold.
  explicit Plan(std::vector<FeaturePlan> features);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const std::vector<FeaturePlan>& features() const { return features_; }
  int size() const { return static_cast<int>(features_.size()); }
  // The number of the feature of this name, or -1.
  int find(const Reader& name) const;

 private:
  std::vector<FeaturePlan> features_;
  std::unordered_map<std::string_view, int> numbers_;
};

// Bytes that grow. Not a std::vector: that would write zeros first, and could not be given to NumPy.
class Growable {
 public:
  Growable() = default;
  // Takes all it grows by from `left`, which others share, and throws std::overflow_error if that is not enough.
  explicit Growable(int64_t* left) : left_(left) {}
  ~Growable() { std::free(data_); }
  Growable(Growable&& other) noexcept { *this = std::move(other); }
  Growable& operator=(Growable&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(left_, other.left_);
    return *this;
  }

  int64_t size() const { return size_; }
  uint8_t* data() const { return data_; }
  void truncate(int64_t size) { size_ = size; }
  void commit(int64_t nbytes) { size_ += nbytes; }

  bool has_room(int64_t nbytes) const { return nbytes <= capacity_ - size_; }
  // Room for `nbytes` more; they count once committed.
  uint8_t* reserve(int64_t nbytes) {
    if (nbytes > capacity_ - size_) grow(nbytes);
    return data_ + size_;
  }
  void append(const uint8_t* from, int64_t nbytes) {
    if (nbytes == 0) return;
    std::memcpy(reserve(nbytes), from, static_cast<size_t>(nbytes));
    size_ += nbytes;
  }
  void append(int64_t value) {
    std::memcpy(reserve(8), &value, 8);
    size_ += 8;
  }
  // Hands over the memory, to be freed with std::free, without the room that was never used.
  uint8_t* release() {
    void* smaller = std::realloc(data_, static_cast<size_t>(size_ > 0 ? size_ : 1));
    uint8_t* data = smaller != nullptr ? static_cast<uint8_t*>(smaller) : data_;
    data_ = nullptr;
    size_ = capacity_ = 0;
    return data;
  }

 private:
  void grow(int64_t nbytes) {
    int64_t wanted = 0;
    if (__builtin_add_overflow(size_, nbytes, &wanted)) throw std::bad_alloc();
    int64_t capacity = wanted < 64 ? 64 : wanted;
    if (capacity < 2 * capacity_) capacity = 2 * capacity_;
    if (left_ != nullptr) {
      const int64_t most = capacity_ + *left_;
      if (wanted > most) throw std::overflow_error("the columns take more bytes than they may.");
      if (capacity > most) capacity = most;
    }
    void* data = std::realloc(data_, static_cast<size_t>(capacity));
    if (data == nullptr) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(data);
    if (left_ != nullptr) *left_ -= capacity - capacity_;
    capacity_ = capacity;
  }

  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  int64_t* left_ = nullptr;
};

// Where the rows of one feature go.
struct Column {
  // Rows of one size: slot s is at rows + s / group_rows * group_stride + s % group_rows * slot_stride.
  uint8_t* rows = nullptr;
  int64_t group_stride = 0;
  int64_t slot_stride = 0;
  // All other rows, one after the other in the order of the records.
  Growable values;       // numbers, or the bytes of all strings
  Growable offsets;      // of strings: int64, where each starts in `values`, and the end of the last
  Growable row_lengths;  // int64: how many values or strings each row has
  Growable shapes;       // of tensors whose shape varies: int64, the shape of each row

  Column() = default;
  explicit Column(int64_t* left) : values(left), offsets(left), row_lengths(left), shapes(left) {}
};

struct DecodeJob {
  const Plan* plan = nullptr;
  const uint8_t* data = nullptr;
  int64_t nbytes = 0;
  const int64_t* starts = nullptr;   // where each record starts: its header if framed, else its payload
  const int64_t* lengths = nullptr;  // of its payload
  int64_t count = 0;
  const int64_t* slots = nullptr;  // where the row of each record goes; in order from `first_slot` if null
  int64_t first_slot = 0;
  int64_t groups = 0;
  int64_t group_rows = 0;
  bool is_framed = true;
  bool verify = true;
  bool skip = false;          // go on after a bad record
  bool has_fast_path = true;  // off: to test one path against the other
};

struct RecordFault {
  int64_t record = 0;
  int64_t offset = 0;    // from the start of the record, as `starts` has it
  int64_t feature = -1;  // -1: the record as a whole
  Fault fault = Fault::kNone;
  int64_t found = 0;
};

// Decodes all records into `columns`, one for each feature. Without `skip` it stops at the first fault. A record with
// a fault leaves a row of zeros or an empty one. Throws std::bad_alloc, std::overflow_error where columns would take
// more than they may, and std::out_of_range for a slot that is not
// there; without slots there must be one for each record.
std::vector<RecordFault> decode_records(const DecodeJob& job, std::vector<Column>& columns);

struct FeatureSummary {
  std::string_view name;  // in the record
  Kind kind = Kind::kNone;
  int64_t count = 0;
  Reader first;  // the first value of a list of bytes
};

// Lists the features of one record, checking all of it.
bool list_features(Reader payload, std::vector<FeatureSummary>& features, Problem& problem);

}  // namespace penstock
