// Plain numbers of JSON Lines to columns, several times as fast as a reader of all of JSON. It knows objects whose wanted
// values are numbers, truths and lists of so many of them, and gives up at whatever else comes: others read that.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.h"
#include "system.h"

namespace penstock {
namespace {

constexpr size_t kMaxKeys = 1024;   // Keys that differ from row to row are data, and each would be looked at.
constexpr int64_t kMaxDigits = 19;  // As many are a uint64.
constexpr uint64_t kExact = uint64_t{1} << 53;  // Whole numbers up to here are float64.
constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int64_t kMaxPower = 22;          // Powers of ten up to here are float64.
constexpr int64_t kMaxExponent = 1 << 20;  // Those beyond it are all alike.

struct Column {
  char kind;  // 'f': float64, 'i': int64, 'b': uint8.
  bool is_list;
  int64_t width;
  void* values;
  int64_t last_row = -1;  // In which it was found.
};

// A number as it is written.
struct Number {
  const uint8_t* start;
  const uint8_t* stop;
  uint64_t digits;  // All of them, without the point, if there are few enough.
  int64_t count;
  int64_t exponent;  // Of ten.
  bool is_negative;
  bool is_whole;
};

bool is_digit(uint8_t byte) { return static_cast<uint8_t>(byte - '0') < 10; }

// Reads rows, the last of which ends with a brace: nothing but texts goes over one, so that only these look for the end.
class Reader {
 public:
  Reader(std::vector<std::string> names, std::vector<Column> columns)
      : names_(std::move(names)), columns_(std::move(columns)) {}

  // Returns how many rows there are; -1 if there is anything in them that is not understood, or there are more.
  int64_t read(const uint8_t* text, const uint8_t* end, int64_t num_rows) {
    at_ = text;
    end_ = end;
    for (row_ = 0;; ++row_) {
      while (at_ < end_ && (*at_ == '\n' || *at_ == '\r')) ++at_;
      if (at_ == end_) return row_;
      if (row_ == num_rows || !read_row()) return -1;
      if (at_ < end_ && *at_ != '\n' && *at_ != '\r') return -1;
    }
  }

 private:
  void skip_spaces() {
    while (*at_ == ' ' || *at_ == '\t') ++at_;
  }

  bool take(uint8_t byte) {
    if (*at_ != byte) return false;
    ++at_;
    return true;
  }

  bool read_row() {
    if (!take('{')) return false;
    skip_spaces();
    size_t found = 0, place = 0;
    for (; *at_ != '}'; ++place) {
      if (place > 0) {
        if (!take(',')) return false;
        skip_spaces();
      }
      int64_t which;
      if (!read_key(place, which)) return false;
      skip_spaces();
      if (!take(':')) return false;
      skip_spaces();
      if (which < 0) {
        if (!skip_value()) return false;
      } else {
        Column& column = columns_[static_cast<size_t>(which)];
        if (column.last_row == row_ || !read_values(column)) return false;
        column.last_row = row_;
        ++found;
      }
      skip_spaces();
    }
    ++at_;
    return found == columns_.size() || fill_missing();
  }

  // Finds which column a key is, -1 for none of them. Keys mostly come in the same order in every row.
  bool read_key(size_t place, int64_t& which) {
    if (place < keys_.size() && is_key(keys_[place].first)) {
      at_ += keys_[place].first.size();
      which = keys_[place].second;
      return true;
    }
    for (const auto& [key, column] : keys_) {
      if (is_key(key)) {
        at_ += key.size();
        which = column;
        return true;
      }
    }
    if (keys_.size() == kMaxKeys || *at_ != '"') return false;
    const uint8_t* const start = at_;
    if (!skip_text()) return false;
    const std::string key(reinterpret_cast<const char*>(start), static_cast<size_t>(at_ - start));
    which = -1;
    for (size_t column = 0; column < names_.size(); ++column) {
      if (std::string_view(key).substr(1, key.size() - 2) == names_[column]) which = static_cast<int64_t>(column);
    }
    keys_.emplace_back(key, which);
    return true;
  }

  // Keys are kept with their quotes, so that none is the beginning of another.
  bool is_key(const std::string& key) const {
    return static_cast<size_t>(end_ - at_) >= key.size() && memcmp(at_, key.data(), key.size()) == 0;
  }

  // Goes over a text without escapes.
  bool skip_text() {
    for (++at_; at_ < end_; ++at_) {
      if (*at_ == '"') {
        ++at_;
        return true;
      }
      if (*at_ < ' ' || *at_ == '\\') return false;
    }
    return false;
  }

  bool skip_value() {
    Number number;
    if (*at_ == '"') return skip_text();
    return take_word("null") || take_word("true") || take_word("false") || read_number(number);
  }

  bool take_word(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size() || memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  bool read_values(Column& column) {
    int64_t place = row_ * column.width;
    if (!column.is_list) return read_value(column, place);
    if (!take('[')) return false;
    skip_spaces();
    for (const int64_t stop = place + column.width; place < stop; ++place) {
      if (!read_value(column, place)) return false;
      skip_spaces();
      if (place + 1 < stop) {
        if (!take(',')) return false;
        skip_spaces();
      }
    }
    return take(']');
  }

  bool read_value(const Column& column, int64_t place) {
    if (column.kind == 'b') {
      const bool is_true = take_word("true");
      static_cast<uint8_t*>(column.values)[place] = is_true;
      return is_true || take_word("false");
    }
    Number number;
    if (!read_number(number)) {
      if (column.kind != 'f' || column.is_list || !take_word("null")) return false;
      static_cast<double*>(column.values)[place] = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    if (column.kind == 'f') return to_float(number, static_cast<double*>(column.values)[place]);
    if (!number.is_whole || number.count >= kMaxDigits) return false;
    const auto whole = static_cast<int64_t>(number.digits);
    static_cast<int64_t*>(column.values)[place] = number.is_negative ? -whole : whole;
    return true;
  }

  // Stays where it is if there is no number, or one that JSON does not allow.
  bool read_number(Number& number) {
    const uint8_t* at = at_;
    number = Number{at, at, 0, 0, 0, *at == '-', true};
    at += number.is_negative;
    const uint8_t* const first = at;
    for (; is_digit(*at); ++at) number.digits = number.digits * 10 + (*at - '0');
    number.count = at - first;
    if (number.count == 0 || (number.count > 1 && *first == '0')) return false;
    if (*at == '.') {
      const uint8_t* const point = at++;
      for (; is_digit(*at); ++at) number.digits = number.digits * 10 + (*at - '0');
      number.exponent = point + 1 - at;
      if (number.exponent == 0) return false;
      number.count -= number.exponent;
      number.is_whole = false;
    }
    if (*at == 'e' || *at == 'E') {
      ++at;
      const bool is_below = *at == '-';
      at += is_below || *at == '+';
      if (!is_digit(*at)) return false;
      int64_t power = 0;
      for (; is_digit(*at); ++at) power = std::min<int64_t>(power * 10 + (*at - '0'), kMaxExponent);
      number.exponent += is_below ? -power : power;
      number.is_whole = false;
    }
    at_ = number.stop = at;
    return true;
  }

  // Both factors are exact, so that their product or quotient is rounded once, as it must be.
  static bool to_float(const Number& number, double& value) {
    if (number.count > kMaxDigits || number.digits > kExact || number.exponent < -kMaxPower ||
        number.exponent > kMaxPower) {
      return parse_float(reinterpret_cast<const char*>(number.start), reinterpret_cast<const char*>(number.stop),
                         value);
    }
    const auto digits = static_cast<double>(number.digits);
    value = number.exponent < 0 ? digits / kPowers[-number.exponent] : digits * kPowers[number.exponent];
    if (number.is_negative) value = -value;
    return true;
  }

  // Numbers that are missing are nan; of others there is nothing to say that.
  bool fill_missing() {
    for (Column& column : columns_) {
      if (column.last_row == row_) continue;
      if (column.kind != 'f' || column.is_list) return false;
      static_cast<double*>(column.values)[row_] = std::numeric_limits<double>::quiet_NaN();
    }
    return true;
  }

  const std::vector<std::string> names_;
  std::vector<Column> columns_;
  std::vector<std::pair<std::string, int64_t>> keys_;  // As they came first.
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  int64_t row_ = 0;
};

// Puts the values of rows into `columns`, one for each name; returns whether all of the text was understood. Columns of
// two dimensions are lists.
bool read_json_numbers(nb::handle text_object, int64_t num_rows, const nb::sequence& names, const std::string& kinds,
                       const nb::sequence& arrays) {
  const Buffer text(text_object, "text", Element::kUint8, 1, Access::kRead);
  if (nb::len(names) != kinds.size() || nb::len(arrays) != kinds.size()) {
    raise_value_error("names, kinds and columns must be as many.");
  }
  std::vector<std::string> wanted;
  std::vector<Column> columns;
  std::vector<std::unique_ptr<Buffer>> held;
  for (size_t which = 0; which < kinds.size(); ++which) {
    const char kind = kinds[which];
    if (kind != 'f' && kind != 'i' && kind != 'b') raise_value_error("kinds must be of f, i and b.");
    const Element element = kind == 'f' ? Element::kFloat64 : kind == 'i' ? Element::kInt64 : Element::kUint8;
    const nb::object array = arrays[which];
    const int ndim = nb::cast<int>(array.attr("ndim")) == 2 ? 2 : 1;
    held.push_back(std::make_unique<Buffer>(array, "columns", element, ndim, Access::kWrite));
    const Buffer& buffer = *held.back();
    buffer.require_size(0, num_rows, "the rows");
    const int64_t width = ndim == 2 ? buffer.size(1) : 1;
    const int64_t size = kind == 'b' ? 1 : 8;
    if (num_rows > 1 && buffer.stride(0) != width * size) raise_value_error("columns must be contiguous.");
    for (const auto& other : held) {
      if (other.get() != &buffer && may_share_memory(*other, buffer)) {
        raise_value_error("columns must share no memory.");
      }
    }
    if (may_share_memory(buffer, text)) raise_value_error("columns must share no memory with text.");
    const nb::bytes name = nb::cast<nb::bytes>(names[which]);
    wanted.emplace_back(name.c_str(), name.size());
    columns.push_back(Column{kind, ndim == 2, width, buffer.data<void>()});
  }
  nb::gil_scoped_release release;
  const auto* const start = text.data<const uint8_t>();
  const uint8_t* end = start + text.size(0);
  while (end > start && (end[-1] == '\n' || end[-1] == '\r')) --end;
  if (end == start) return num_rows == 0;
  if (end[-1] != '}') return false;
  return Reader(std::move(wanted), std::move(columns)).read(start, end, num_rows) == num_rows;
}

}  // namespace

void bind_json_numbers(nb::module_& m) {
  m.def("read_json_numbers", &read_json_numbers, nb::arg("text"), nb::arg("num_rows"), nb::arg("names"),
        nb::arg("kinds"), nb::arg("columns"), "Put plain numbers of JSON Lines into columns.");
}

}  // namespace penstock
