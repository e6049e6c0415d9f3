// Plain rows of JSON Lines to columns, several times as fast as a reader of all of JSON. It knows objects, in which the
// wanted values are numbers, truths, texts and lists of numbers, and gives up at whatever else comes: others read that.
//
// Values of any length take two steps, since their memory can only be had once their sizes are known: rows are read, and
// tell where these values are; then texts are copied, and lists are parsed.
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>

#include "buffer.h"
#include "json_values.h"

namespace penstock {
namespace {

constexpr size_t kMaxKeys = 1024;  // Keys that differ from row to row are data, and each would be looked at.
constexpr int kMaxDepth = 64;

// How its values are read. Where they are: for text three numbers a row, for lists two.
enum class Kind : char { kFloat = 'f', kInt = 'i', kBool = 'b', kText = 't', kList = 'l' };

struct Column {
  Kind kind;
  bool is_array;  // Lists of one length, in an array of two dimensions.
  int64_t width;  // The values of a row; for text and lists, the numbers from one of a row to the next of it.
  void* values;
  int64_t last_row = -1;  // In which it was found.

  double* floats() const { return static_cast<double*>(values); }
  int64_t* ints() const { return static_cast<int64_t*>(values); }
};

// The keys of an object, as they came first. They are kept with their quotes, so that none is the beginning of another.
struct Level {
  struct Key {
    std::string quoted;
    int64_t column;  // -1: it is an object whose keys are wanted, or nothing of it is.
    Level* inner;
  };
  std::vector<Key> keys;
  std::vector<Key> wanted;
  std::vector<std::unique_ptr<Level>> owned;
  int64_t last_row = -1;
};

// Reads rows, the last of which ends with a brace: nothing but texts goes over one, so that little else looks for the end.
class Reader {
 public:
  Reader(std::unique_ptr<Level> top, std::vector<Column> columns)
      : top_(std::move(top)), columns_(std::move(columns)) {}

  // Returns whether all was understood, and so many rows came.
  bool read(const uint8_t* text, const uint8_t* end, int64_t num_rows) {
    text_ = at_ = text;
    end_ = end;
    for (row_ = 0;; ++row_) {
      while (at_ < end_ && (*at_ == '\n' || *at_ == '\r')) ++at_;
      if (at_ == end_) return row_ == num_rows;
      found_ = 0;
      if (row_ == num_rows || !read_object(*top_)) return false;
      if (at_ < end_ && *at_ != '\n' && *at_ != '\r') return false;
      if (found_ != columns_.size() && !fill_missing()) return false;
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

  bool take_word(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size() || memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  // What follows the brace that ends it may be outside.
  bool read_object(Level& level) {
    if (level.last_row == row_ || !take('{')) return false;
    level.last_row = row_;
    skip_spaces();
    for (size_t place = 0; *at_ != '}'; ++place) {
      if (place > 0) {
        if (!take(',')) return false;
        skip_spaces();
      }
      const Level::Key* const key = read_key(level, place);
      if (key == nullptr) return false;
      skip_spaces();
      if (!take(':')) return false;
      skip_spaces();
      if (!read_for(*key) || at_ == end_) return false;
      skip_spaces();
    }
    ++at_;
    return true;
  }

  bool read_for(const Level::Key& key) {
    if (key.inner != nullptr) {
      if (!take_word("null")) return read_object(*key.inner);
      return std::exchange(key.inner->last_row, row_) != row_;
    }
    if (key.column < 0) return skip_value(0);
    Column& column = columns_[static_cast<size_t>(key.column)];
    if (column.last_row == row_ || !read_column(column)) return false;
    column.last_row = row_;
    ++found_;
    return true;
  }

  // Finds out which key comes; mostly they come in the same order in every row.
  const Level::Key* read_key(Level& level, size_t place) {
    if (place < level.keys.size() && take_word(level.keys[place].quoted)) return &level.keys[place];
    for (const Level::Key& key : level.keys) {
      if (take_word(key.quoted)) return &key;
    }
    if (level.keys.size() == kMaxKeys || *at_ != '"') return nullptr;
    const uint8_t* const start = at_;
    at_ = find_special(at_ + 1, end_);
    if (at_ == end_ || *at_ != '"') return nullptr;  // A key with escapes may be any.
    ++at_;
    Level::Key found{std::string(start, at_), -1, nullptr};
    for (const Level::Key& key : level.wanted) {
      if (key.quoted == found.quoted) found = key;
    }
    level.keys.push_back(found);
    return &level.keys.back();
  }

  bool read_column(const Column& column) {
    if (column.kind == Kind::kText) return read_text(column);
    if (column.kind == Kind::kList) return find_list(column);
    int64_t place = row_ * column.width;
    if (!column.is_array) return read_value(column, place);
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
    if (column.kind == Kind::kBool) {
      const bool is_true = take_word("true");
      static_cast<uint8_t*>(column.values)[place] = is_true;
      return is_true || take_word("false");
    }
    JsonNumber number;
    if (!number.read(at_)) {
      if (column.kind != Kind::kFloat || column.is_array || !take_word("null")) return false;
      column.floats()[place] = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    at_ = number.stop;
    if (column.kind == Kind::kFloat) return number.to_float(column.floats()[place]);
    return number.to_int(column.ints()[place]);
  }

  bool read_text(const Column& column) {
    int64_t start = 0, length = 0, made = 0;
    if (!take_word("null") && (!go_over_text(start, length, made) || made < 0)) return false;
    int64_t* const place = column.ints() + row_;
    place[0] = start;
    place[column.width] = length;
    place[2 * column.width] = made;
    return true;
  }

  // Says where the bytes between the quotes are, and how many they stand for: -1 if that is no UTF-8.
  bool go_over_text(int64_t& start, int64_t& length, int64_t& made) {
    if (!take('"')) return false;
    const uint8_t* const first = at_;
    int64_t less = 0;
    bool is_whole = true;
    for (;;) {
      at_ = find_special(at_, end_);
      if (at_ == end_ || *at_ < ' ') return false;
      if (*at_ == '"') break;
      const JsonEscape escape(at_, end_);
      if (escape.used == 0) return false;
      is_whole = is_whole && escape.made > 0;
      less += escape.used - escape.made;
      at_ += escape.used;
    }
    start = first - text_;
    length = at_ - first;
    made = is_whole ? length - less : -1;
    ++at_;
    return true;
  }

  // Says where the values of a list begin, and how many there are, if nothing is in it that no numbers have.
  bool find_list(const Column& column) {
    if (!take('[')) return false;
    int64_t* const place = column.ints() + row_;
    place[0] = at_ - text_;
    int64_t count = 0;
    skip_spaces();
    if (*at_ != ']') {
      for (count = 1; *at_ != ']'; ++at_) {
        if (*at_ == ',') ++count;
        const bool is_part = is_digit(*at_) || *at_ == ',' || *at_ == ' ' || *at_ == '.' || *at_ == '-' ||
                             *at_ == 'e' || *at_ == 'E' || *at_ == '+' || *at_ == '\t';
        if (!is_part) return false;
      }
    }
    place[column.width] = count;
    ++at_;
    return true;
  }

  // Goes over a value of which nothing is wanted, if it is one.
  bool skip_value(int depth) {
    int64_t start, length, made;
    if (*at_ == '"') return go_over_text(start, length, made);
    if (*at_ == '{' || *at_ == '[') return depth < kMaxDepth && skip_values(depth);
    JsonNumber number;
    if (!number.read(at_)) return take_word("null") || take_word("true") || take_word("false");
    at_ = number.stop;
    return true;
  }

  bool skip_values(int depth) {
    const bool is_object = *at_++ == '{';
    const uint8_t closing = is_object ? '}' : ']';
    int64_t start, length, made;
    skip_spaces();
    for (bool is_first = true; *at_ != closing; is_first = false) {
      if (!is_first) {
        if (!take(',')) return false;
        skip_spaces();
      }
      if (is_object) {
        if (!go_over_text(start, length, made)) return false;
        skip_spaces();
        if (!take(':')) return false;
        skip_spaces();
      }
      if (!skip_value(depth + 1) || at_ == end_) return false;
      skip_spaces();
    }
    ++at_;
    return true;
  }

  // Numbers that are missing are nan, and texts empty; of others there is nothing to say that.
  bool fill_missing() {
    for (Column& column : columns_) {
      if (column.last_row == row_) continue;
      if (column.kind == Kind::kFloat && !column.is_array) {
        column.floats()[row_] = std::numeric_limits<double>::quiet_NaN();
      } else if (column.kind == Kind::kText) {
        for (int which = 0; which < 3; ++which) column.ints()[row_ + which * column.width] = 0;
      } else {
        return false;
      }
    }
    return true;
  }

  const std::unique_ptr<Level> top_;
  std::vector<Column> columns_;
  size_t found_ = 0;  // Columns of this row.
  const uint8_t* text_ = nullptr;
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  int64_t row_ = 0;
};

void add_path(Level& top, nb::handle path, int64_t column) {
  Level* level = &top;
  const size_t depth = nb::len(path);
  if (depth == 0) raise_value_error("a path must have a key.");
  for (size_t place = 0; place < depth; ++place) {
    const nb::bytes name = nb::cast<nb::bytes>(path[place]);
    const std::string quoted = '"' + std::string(name.c_str(), name.size()) + '"';
    const bool is_last = place + 1 == depth;
    Level::Key* known = nullptr;
    for (Level::Key& key : level->wanted) {
      if (key.quoted == quoted) known = &key;
    }
    if (known != nullptr && (is_last || known->inner == nullptr)) {
      raise_value_error("no path may be another, or begin with it.");
    }
    if (known == nullptr) {
      level->wanted.push_back(Level::Key{quoted, is_last ? column : -1, nullptr});
      known = &level->wanted.back();
      if (!is_last) {
        level->owned.push_back(std::make_unique<Level>());
        known->inner = level->owned.back().get();
      }
    }
    level = known->inner;
  }
}

// Puts the values of rows into `arrays`, one for each path; returns whether all of the text was understood. Arrays of
// two dimensions are lists, but for those that say where values of any length are.
bool read_json_rows(nb::handle text_object, int64_t num_rows, const nb::sequence& paths, const std::string& kinds,
                    const nb::sequence& arrays) {
  const Buffer text(text_object, "text", Element::kUint8, 1, Access::kRead);
  if (nb::len(paths) != kinds.size() || nb::len(arrays) != kinds.size()) {
    raise_value_error("paths, kinds and columns must be as many.");
  }
  auto top = std::make_unique<Level>();
  std::vector<Column> columns;
  std::vector<std::unique_ptr<Buffer>> held;
  for (size_t which = 0; which < kinds.size(); ++which) {
    const std::string_view known = "fibtl";
    if (known.find(kinds[which]) == std::string_view::npos) raise_value_error("kinds must be of f, i, b, t and l.");
    const auto kind = static_cast<Kind>(kinds[which]);
    const bool varies = kind == Kind::kText || kind == Kind::kList;
    const Element element = kind == Kind::kFloat  ? Element::kFloat64
                            : kind == Kind::kBool ? Element::kUint8
                                                  : Element::kInt64;
    const nb::object array = arrays[which];
    const bool is_table = varies || nb::cast<int>(array.attr("ndim")) == 2;
    held.push_back(std::make_unique<Buffer>(array, "columns", element, is_table ? 2 : 1, Access::kWrite));
    const Buffer& buffer = *held.back();
    int64_t width = is_table ? buffer.size(1) : 1;
    if (varies) {
      if (buffer.size(0) != (kind == Kind::kText ? 3 : 2))
        raise_value_error("columns must have 3 rows for text, 2 for lists.");
      buffer.require_size(1, num_rows, "the rows");
      width = num_rows;
    } else {
      buffer.require_size(0, num_rows, "the rows");
    }
    const int64_t size = kind == Kind::kBool ? 1 : 8;
    if (buffer.size(0) > 1 && buffer.stride(0) != width * size) raise_value_error("columns must be contiguous.");
    for (const auto& other : held) {
      if (other.get() != &buffer && may_share_memory(*other, buffer))
        raise_value_error("columns must share no memory.");
    }
    if (may_share_memory(buffer, text)) raise_value_error("columns must share no memory with text.");
    add_path(*top, paths[which], static_cast<int64_t>(which));
    columns.push_back(Column{kind, is_table && !varies, width, buffer.data<void>()});
  }
  nb::gil_scoped_release release;
  const auto* const start = text.data<const uint8_t>();
  const uint8_t* end = start + text.size(0);
  while (end > start && (end[-1] == '\n' || end[-1] == '\r')) --end;
  if (end == start) return num_rows == 0;
  if (end[-1] != '}') return false;
  return Reader(std::move(top), std::move(columns)).read(start, end, num_rows);
}

// The text of `found` of read_json_rows, or of what is like it: refuses what is outside.
const uint8_t* check_span(const Buffer& text, int64_t start, int64_t length) {
  if (start < 0 || length < 0 || start > text.size(0) || length > text.size(0) - start) {
    raise_index_error("a value reaches outside the text.");
  }
  return text.data<const uint8_t>() + start;
}

// Copies texts one after the other, with what their escapes stand for.
void copy_json_texts(nb::handle text_object, nb::handle found_object, nb::handle out_object) {
  const Buffer text(text_object, "text", Element::kUint8, 1, Access::kRead);
  const Buffer found(found_object, "found", Element::kInt64, 2, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  found.require_size(0, 3, "starts, lengths and sizes");
  if (may_share_memory(text, out)) raise_value_error("out must be apart from the text.");
  nb::gil_scoped_release release;
  const auto* const starts = found.data<const int64_t>();
  const int64_t step = found.stride(0) / 8;
  auto* to = out.data<uint8_t>();
  const uint8_t* const stop = to + out.size(0);
  for (int64_t row = 0; row < found.size(1); ++row) {
    const int64_t length = starts[row + step], made = starts[row + 2 * step];
    const uint8_t* at = check_span(text, starts[row], length);
    const uint8_t* const end = at + length;
    if (made < 0 || made > stop - to) raise_index_error("out is too small.");
    if (length == 0 && made == 0) continue;  // There may be no memory at all.
    if (made == length) {
      memcpy(to, at, static_cast<size_t>(length));
      to += made;
      continue;
    }
    const uint8_t* const last = to + made;
    while (at < end) {
      const auto* const escape = static_cast<const uint8_t*>(memchr(at, '\\', static_cast<size_t>(end - at)));
      const int64_t plain = (escape == nullptr ? end : escape) - at;
      if (plain > last - to) break;
      memcpy(to, at, static_cast<size_t>(plain));
      to += plain;
      at += plain;
      if (escape == nullptr) break;
      const JsonEscape one(at, end);
      if (one.made == 0 || one.made > last - to) break;
      memcpy(to, one.bytes, static_cast<size_t>(one.made));
      to += one.made;
      at += one.used;
    }
    if (at != end || to != last) raise_value_error("a text is not as long as it should be.");
  }
}

// Parses lists of numbers one after the other; returns false if anything in them is none.
bool read_json_lists(nb::handle text_object, nb::handle found_object, nb::handle out_object, bool is_float) {
  const Buffer text(text_object, "text", Element::kUint8, 1, Access::kRead);
  const Buffer found(found_object, "found", Element::kInt64, 2, Access::kRead);
  const Buffer out(out_object, "out", is_float ? Element::kFloat64 : Element::kInt64, 1, Access::kWrite);
  found.require_size(0, 2, "starts and counts");
  if (may_share_memory(text, out)) raise_value_error("out must be apart from the text.");
  nb::gil_scoped_release release;
  const uint8_t* const last = text.data<const uint8_t>() + text.size(0);
  // Numbers are read up to what is none: there must be something behind the last one.
  if (text.size(0) > 0 && last[-1] != '}' && last[-1] != '\n' && last[-1] != '\r') return false;
  const auto* const starts = found.data<const int64_t>();
  const int64_t step = found.stride(0) / 8;
  int64_t place = 0;
  for (int64_t row = 0; row < found.size(1); ++row) {
    const uint8_t* at = check_span(text, starts[row], 0);
    const int64_t count = starts[row + step];
    if (count < 0 || count > out.size(0) - place) raise_index_error("out is too small.");
    for (int64_t number = 0; number < count; ++number) {
      if (number > 0 && (at == last || *at++ != ',')) return false;
      while (at < last && (*at == ' ' || *at == '\t')) ++at;
      JsonNumber value;
      if (at == last || !value.read(at)) return false;
      const bool is_good =
          is_float ? value.to_float(out.data<double>()[place]) : value.to_int(out.data<int64_t>()[place]);
      if (!is_good) return false;
      ++place;
      for (at = value.stop; at < last && (*at == ' ' || *at == '\t');) ++at;
    }
    if (count > 0 && (at == last || *at != ']')) return false;
  }
  return place == out.size(0);
}

}  // namespace

void bind_json_rows(nb::module_& m) {
  m.def("read_json_rows", &read_json_rows, nb::arg("text"), nb::arg("num_rows"), nb::arg("paths"), nb::arg("kinds"),
        nb::arg("columns"), "Put plain values of JSON Lines into columns.");
  m.def("copy_json_texts", &copy_json_texts, nb::arg("text"), nb::arg("found"), nb::arg("out"),
        "Copy texts that were found in JSON Lines.");
  m.def("read_json_lists", &read_json_lists, nb::arg("text"), nb::arg("found"), nb::arg("out"), nb::arg("is_float"),
        "Parse lists of numbers that were found in JSON Lines.");
}

}  // namespace penstock
