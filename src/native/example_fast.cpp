// The records of a file mostly look alike: the same features in the same order, and often of the same size. Then all
// bytes of a feature but its values are the same in each record. The fast path remembers them, and where they still
// match it knows what the values are without parsing. Whatever is unusual goes to the general path, which alone says
// what is wrong with a record.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "example.h"
#include "example_general.h"
#include "example_rows.h"

namespace penstock {
namespace {

constexpr size_t kMaxHeader = 116;  // longer ones are parsed each time
constexpr size_t kMaxPositions = 64;
// Lengths differ by a byte or two where ints are small or large: each gets a place of its own.
constexpr size_t kWays = 4;

// What stands in an entry after its header.
enum class Payload : uint8_t { kIgnored, kFloats, kInts, kStrings, kTensor, kContent };

// The bytes before the values of one entry, and what they said. They hold all lengths, so that an entry with the same
// bytes and the same length is laid out the same.
struct Memo {
  int64_t entry_nbytes = 0;  // from the tag on; 0: nothing remembered
  int32_t feature = -1;
  uint16_t header_nbytes = 0;
  Payload payload = Payload::kIgnored;
  uint8_t header[kMaxHeader];
};

// One entry in the layout that every writer produces.
struct Entry {
  int feature = -1;
  Payload payload = Payload::kIgnored;
  Reader values;
};

// Headers are some tens of bytes: fewer than a call of memcmp is worth.
bool is_same(const uint8_t* a, const uint8_t* b, size_t nbytes) {
  const auto word = [](const uint8_t* from) {
    uint64_t value;
    std::memcpy(&value, from, 8);
    return value;
  };
  if (nbytes < 8) return std::memcmp(a, b, nbytes) == 0;
  uint64_t differs = word(a + nbytes - 8) ^ word(b + nbytes - 8);
  for (size_t at = 0; at + 8 < nbytes; at += 8) differs |= word(a + at) ^ word(b + at);
  return differs == 0;
}

inline bool take(Reader& reader, uint8_t byte) {
  if (reader.done() || *reader.at != byte) return false;
  ++reader.at;
  return true;
}

// A length-delimited field that is all there is.
inline bool take_all(Reader& reader, uint8_t tag, Reader& body) {
  return take(reader, tag) && reader.bytes(body) && reader.done();
}

class FastPath {
 public:
  FastPath(const Plan& plan, Rows& rows) : plan_(plan), rows_(rows), seen_(static_cast<size_t>(plan.size()), -1) {}

  // Returns false for whatever is not as expected; the row is then half written.
  bool decode(Reader payload, int64_t record) {
    record_ = record;
    num_seen_ = 0;
    Reader features;
    if (!take_all(payload, 0x0A, features)) return false;
    for (size_t position = 0; !features.done(); ++position) {
      const uint8_t* start = features.at;
      Reader body;
      if (!take(features, 0x0A) || !features.bytes(body)) return false;
      if (position >= kMaxPositions) {
        Entry entry;
        if (!parse(body, position, entry) || !put(entry)) return false;
        continue;
      }
      if (position == expected_.size()) {
        expected_.push_back(-1);
        memos_.resize(memos_.size() + kWays);
      }
      Memo& memo = memos_[position * kWays + static_cast<size_t>(body.left()) % kWays];
      if (memo.entry_nbytes == body.end - start && is_same(start, memo.header, memo.header_nbytes)) {
        if (!put({memo.feature, memo.payload, {start + memo.header_nbytes, body.end}})) return false;
        continue;
      }
      Entry entry;
      if (!parse(body, position, entry) || !put(entry)) return false;
      remember(memo, start, entry, body.end);
    }
    if (num_seen_ == plan_.size()) return true;
    Problem ignored;
    for (int i = 0; i < plan_.size(); ++i) {
      if (seen_[static_cast<size_t>(i)] != record && !rows_.put_missing(i, ignored)) return false;
    }
    return true;
  }

 private:
  bool parse(Reader body, size_t position, Entry& entry) {
    Reader key;
    Reader value;
    if (!take(body, 0x0A) || !body.bytes(key) || !take_all(body, 0x12, value)) return false;
    entry.feature = find(key, position);
    entry.values = value;
    if (entry.feature < 0) return true;
    const FeaturePlan& wanted = plan_.features()[static_cast<size_t>(entry.feature)];
    Reader list;
    if (!take_all(value, static_cast<uint8_t>(static_cast<int>(wanted.kind) << 3 | 2), list)) return false;
    entry.values = list;
    if (wanted.kind == Kind::kBytes) {
      entry.payload = wanted.form == Form::kTensor ? Payload::kTensor : Payload::kStrings;
      return wanted.form != Form::kTensor || take_all(list, 0x0A, entry.values);
    }
    entry.payload = wanted.kind == Kind::kFloats ? Payload::kFloats : Payload::kInts;
    return list.done() || take_all(list, 0x0A, entry.values);
  }

  // First the feature that stood in this place in the record before.
  int find(const Reader& key, size_t position) {
    if (position < expected_.size()) {
      const int guess = expected_[position];
      if (guess >= 0) {
        const std::string& name = plan_.features()[static_cast<size_t>(guess)].name;
        if (name.size() == static_cast<size_t>(key.left()) && std::memcmp(name.data(), key.at, name.size()) == 0) {
          return guess;
        }
      }
    }
    const int number = plan_.find(key);
    if (position < expected_.size()) expected_[position] = number;
    return number;
  }

  bool put(const Entry& entry) {
    if (entry.feature < 0) return true;
    int64_t& seen = seen_[static_cast<size_t>(entry.feature)];
    // The last of two wins, so that the first must not have been written.
    if (seen == record_) return false;
    seen = record_;
    ++num_seen_;
    Problem ignored;
    switch (entry.payload) {
      case Payload::kFloats:
        return rows_.put_floats(entry.feature, entry.values, ignored);
      case Payload::kInts:
        return rows_.put_ints(entry.feature, entry.values, ignored);
      case Payload::kStrings:
        return put_strings(entry.feature, entry.values);
      case Payload::kTensor:
        return rows_.put_tensor(entry.feature, entry.values, tensor_, ignored);
      case Payload::kContent:
        // Its type, shape and size stood in the bytes that matched.
        std::memcpy(rows_.slot(entry.feature), entry.values.at, static_cast<size_t>(entry.values.left()));
        return true;
      case Payload::kIgnored:
        return true;
    }
    return false;
  }

  bool put_strings(int feature, Reader list) {
    Problem ignored;
    int64_t count = 0;
    Reader item;
    for (Reader rest = list; !rest.done(); ++count) {
      if (!take(rest, 0x0A) || !rest.bytes(item)) return false;
    }
    if (!rows_.claim(feature, count, list.at, ignored)) return false;
    while (!list.done()) {
      if (!take(list, 0x0A) || !list.bytes(item) || !rows_.put_string(feature, item, ignored)) return false;
    }
    rows_.finish(feature);
    return true;
  }

  void remember(Memo& memo, const uint8_t* start, Entry entry, const uint8_t* end) {
    memo.entry_nbytes = 0;
    if (entry.payload == Payload::kTensor) {
      const FeaturePlan& wanted = plan_.features()[static_cast<size_t>(entry.feature)];
      // The values of a bool must be looked at each time; a shape that varies must be read.
      const bool is_content = wanted.has_slots && wanted.type != Type::kBool && !tensor_.content.done() &&
                              tensor_.content.end == end && tensor_.count > 0;
      if (is_content) {
        entry.payload = Payload::kContent;
        entry.values = tensor_.content;
      }
    }
    const auto header = static_cast<size_t>(entry.values.at - start);
    // Strings are of any length, so that what is remembered would seldom be met again.
    if (header > kMaxHeader || entry.values.end != end || entry.payload == Payload::kStrings) return;
    memo.entry_nbytes = end - start;
    memo.feature = entry.feature;
    memo.payload = entry.payload;
    memo.header_nbytes = static_cast<uint16_t>(header);
    std::memcpy(memo.header, start, header);
  }

  const Plan& plan_;
  Rows& rows_;
  int64_t record_ = 0;
  int num_seen_ = 0;
  std::vector<int64_t> seen_;  // the last record that had each feature
  std::vector<Memo> memos_;    // kWays for each place
  std::vector<int> expected_;  // the feature at each place of the record before
  Tensor tensor_;
};

constexpr int64_t kAhead = 4;  // measured: 3 to 8 are alike
constexpr int64_t kLine = 64;
// What is beyond this of one record the processor's own prefetching finds, as it does records that follow one another.
constexpr int64_t kMaxPrefetch = 1024;

// Asks for a record some way ahead: in a shuffled order the processor cannot guess it. Forced inline, here and below:
// GCC takes a function that does nothing else for one without effect, and drops the call.
__attribute__((always_inline)) inline void prefetch_record(const DecodeJob& job, int64_t record) {
  if (record + kAhead >= job.count) return;
  const int64_t start = job.starts[record + kAhead];
  const int64_t distance = start - job.starts[record];
  if (start < 0 || start >= job.nbytes || (distance >= 0 && distance < kAhead * kMaxPrefetch)) return;
  const int64_t wanted = std::min(std::max<int64_t>(job.lengths[record + kAhead], 0), kMaxPrefetch) + kFrameNbytes;
  const int64_t nbytes = std::min(job.nbytes - start, wanted);
  for (int64_t at = 0; at < nbytes; at += kLine) __builtin_prefetch(job.data + start + at);
  // A record that starts in the middle of a line ends in one more.
  __builtin_prefetch(job.data + start + nbytes - 1);
}

// The same for the slot that its row goes to.
__attribute__((always_inline)) inline void prefetch_slot(const DecodeJob& job, const std::vector<Column>& columns,
                                                         int64_t record) {
  if (record + kAhead >= job.count) return;
  const int64_t slot = job.slots[record + kAhead];
  if (slot < 0 || slot >= job.groups * job.group_rows) return;
  const int64_t group = slot / job.group_rows;
  const int64_t in_group = slot % job.group_rows;
  for (size_t i = 0; i < columns.size(); ++i) {
    const FeaturePlan& feature = job.plan->features()[i];
    if (!feature.has_slots) continue;
    const uint8_t* row = columns[i].rows + group * columns[i].group_stride + in_group * columns[i].slot_stride;
    const int64_t nbytes = std::min(feature.count * feature.width, kMaxPrefetch);
    for (int64_t at = 0; at < nbytes; at += kLine) __builtin_prefetch(row + at, 1);
    if (nbytes > 0) __builtin_prefetch(row + nbytes - 1, 1);
  }
}

// Checks the frame and finds the payload.
Fault find_payload(const DecodeJob& job, int64_t start, int64_t length, Reader& payload) {
  if (job.is_framed) {
    const Fault fault = check_frame(job.data, job.nbytes, start, length, job.verify);
    if (fault != Fault::kNone) return fault;
    start += kHeaderNbytes;
  } else if (start < 0 || length < 0 || start > job.nbytes || length > job.nbytes - start) {
    return Fault::kTruncated;
  }
  payload = {job.data + start, job.data + start + length};
  return Fault::kNone;
}

int64_t offset_of(Fault fault, int64_t length) {
  if (fault == Fault::kLengthChecksum) return 8;
  return fault == Fault::kDataChecksum ? kHeaderNbytes + length : 0;
}

int64_t checked_slot(const DecodeJob& job, int64_t record) {
  const int64_t slot = job.slots[record];
  const int64_t count = job.groups * job.group_rows;
  if (slot >= 0 && slot < count) return slot;
  throw std::out_of_range("at[" + std::to_string(record) + "] must be in [0, " + std::to_string(count) + "), got " +
                          std::to_string(slot) + ".");
}

}  // namespace

std::vector<RecordFault> decode_records(const DecodeJob& job, std::vector<Column>& columns) {
  const Plan& plan = *job.plan;
  std::vector<RecordFault> faults;
  std::vector<Reader> entries;
  Rows rows(plan, columns);
  FastPath fast(plan, rows);
  // Without features there are no slots.
  int64_t group = job.group_rows == 0 ? 0 : job.first_slot / job.group_rows;
  int64_t in_group = job.group_rows == 0 ? 0 : job.first_slot % job.group_rows;
  for (int64_t record = 0; record < job.count; ++record) {
    prefetch_record(job, record);
    if (job.slots != nullptr) {
      prefetch_slot(job, columns, record);
      const int64_t slot = checked_slot(job, record);
      group = slot / job.group_rows;
      in_group = slot % job.group_rows;
    } else if (record > 0 && ++in_group == job.group_rows) {
      in_group = 0;
      ++group;
    }
    // Read once: they belong to the caller, who may write to them.
    const int64_t start = job.starts[record];
    const int64_t length = job.lengths[record];
    rows.begin(group, in_group, length);
    Reader payload;
    Problem problem;
    int feature = -1;
    problem.fault = find_payload(job, start, length, payload);
    if (problem.fault == Fault::kNone) {
      if (job.has_fast_path && fast.decode(payload, record)) continue;
      rows.restart();
      if (decode_general(plan, payload, entries, rows, feature, problem)) continue;
    }
    const int64_t offset = problem.at == nullptr ? offset_of(problem.fault, length) : problem.at - job.data - start;
    faults.push_back({record, offset, feature, problem.fault, problem.found});
    if (!job.skip) break;
    rows.restart();
    for (int i = 0; i < plan.size(); ++i) rows.put_nothing(i);
  }
  return faults;
}

}  // namespace penstock
