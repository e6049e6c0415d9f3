// Plain JPEGs: of one or three colours, 8 bits each, in one scan of Huffman codes. Most of the time of a JPEG goes to these
// codes, of which libjpeg-turbo looks up one, and then its value; here both are looked up at once. It gives up at whatever
// is unusual or damaged in any way, which others then read, or say what is wrong.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "buffer.h"
#include "jpeg_bits.h"
#include "jpeg_pixels.h"

namespace penstock {
namespace jpeg {
namespace {

constexpr int kMostColors = 3;
constexpr int kTables = 4;
constexpr int64_t kLeastSamples = 3;  // Of a row that is widened: libjpeg-turbo widens shorter ones in another way.

enum Marker : uint8_t {
  kBaseline = 0xC0,
  kSequential = 0xC1,
  kCodes = 0xC4,
  kRestart = 0xD0,
  kEndOfImage = 0xD9,
  kScan = 0xDA,
  kFactors = 0xDB,
  kInterval = 0xDD,
  kApplication = 0xE0,
  kAdobe = 0xEE,
  kComment = 0xFE,
};

// The bytes of a segment.
struct Segment {
  const uint8_t* at;
  int64_t left;

  int byte() {
    if (left == 0) return -1;
    --left;
    return *at++;
  }
  int word() {
    const int high = byte();
    const int low = byte();
    return low < 0 ? -1 : high << 8 | low;
  }
  bool begins_with(const char* text, int64_t size) const {
    return left >= size && std::memcmp(at, text, static_cast<size_t>(size)) == 0;
  }
};

struct Color {
  int id = 0;
  int across = 1;  // Blocks of it in a unit.
  int down = 1;
  int factors = 0;  // The numbers of its tables.
  int dc = 0;
  int ac = 0;
  int64_t width = 0;  // Samples that are of the image.
  int64_t height = 0;
  int64_t stride = 0;
  int64_t rows = 0;  // That are in memory at a time: those of two rows of units, a power of two.
  std::vector<uint8_t> samples;

  uint8_t* row(int64_t y) { return samples.data() + (y & (rows - 1)) * stride; }
};

class Jpeg {
 public:
  Jpeg(const uint8_t* data, int64_t size) : at_(data), end_(data + size) {}

  // Reads what stands before the pixels; returns false if it is not plain, or the image has other sides.
  bool read_header(int64_t height, int64_t width) {
    height_ = height;
    width_ = width;
    if (end_ - at_ < 2 || at_[0] != 0xFF || at_[1] != 0xD8) return false;
    at_ += 2;
    for (;;) {
      if (end_ - at_ < 4 || at_[0] != 0xFF) return false;
      const uint8_t marker = at_[1];
      const int64_t nbytes = at_[2] << 8 | at_[3];
      if (nbytes < 2 || nbytes > end_ - at_ - 2) return false;
      Segment segment{at_ + 4, nbytes - 2};
      at_ += 2 + nbytes;
      if (marker == kScan) return read_scan(segment) && plan();
      if (!read_segment(marker, segment)) return false;
    }
  }

  // Puts the pixels into rows of `stride` bytes; returns false if anything is wrong with them.
  template <typename Steps>
  PENSTOCK_INLINE bool read_pixels(uint8_t* out, int64_t stride) {
    const int64_t units_across = (width_ + unit_width_ - 1) / unit_width_;
    const int64_t units_down = (height_ + unit_height_ - 1) / unit_height_;
    scan_.resize(static_cast<size_t>(end_ - at_ + kBeyond));
    int64_t left = 0;  // Units until the next restart.
    int64_t done = 0;  // Rows of the image.
    if (!begin_part()) return false;
    left = interval_;
    for (int64_t down = 0; down < units_down; ++down) {
      for (int64_t across = 0; across < units_across; ++across) {
        if (interval_ != 0 && left-- == 0) {
          if (!restart()) return false;
          left = interval_ - 1;
        }
        if (!read_unit<Steps>(across, down)) return false;
      }
      // The last row waits for the one below, of which its colours take a part.
      const bool is_last = down + 1 == units_down;
      const int64_t stop = is_last ? height_ : (down + 1) * unit_height_ - (colors_[0].down - 1);
      for (; done < stop; ++done) put_row<Steps>(done, out + done * stride);
    }
    return !excess_.is_there() && bits_.is_at_end() && end_ - at_ >= 2 && at_[0] == 0xFF && at_[1] == kEndOfImage;
  }

 private:
  bool read_segment(uint8_t marker, Segment segment) {
    switch (marker) {
      case kFactors:
        return read_factors(segment);
      case kCodes:
        return read_codes(segment);
      case kBaseline:
      case kSequential:
        return read_frame(segment);
      case kInterval:
        interval_ = segment.word();
        return interval_ >= 0 && segment.left == 0;
      case kComment:
        return true;
      default:
        break;
    }
    if (marker == kApplication && segment.begins_with("JFIF\0", 5)) {
      const int version = segment.left > 5 ? segment.at[5] : 0;
      if (segment.left < 14 || version != 1) return false;  // Others warn of it.
      is_jfif_ = true;
    }
    if (marker == kAdobe && segment.begins_with("Adobe", 5)) {
      if (segment.left < 12) return false;
      adobe_ = segment.at[11];
    }
    return marker >= kApplication && marker < kApplication + 16;
  }

  bool read_factors(Segment segment) {
    while (segment.left > 0) {
      const int number = segment.byte();  // The high half says whether they have 16 bits.
      if (number >= kTables || segment.left < kBlockSize) return false;
      for (int place = 0; place < kBlockSize; ++place) {
        factors_[static_cast<size_t>(number)][kZigzag[static_cast<size_t>(place)]] =
            static_cast<uint8_t>(segment.byte());
      }
      has_factors_[static_cast<size_t>(number)] = true;
    }
    return true;
  }

  bool read_codes(Segment segment) {
    while (segment.left > 0) {
      const int number = segment.byte();
      const int kind = number >> 4;
      const uint8_t* const counts = segment.at;
      if (kind > 1 || (number & 15) >= kTables || segment.left < kLongestCode) return false;
      int64_t total = 0;
      for (int i = 0; i < kLongestCode; ++i) total += segment.byte();
      if (total > 256 || total > segment.left) return false;
      CodeTable& codes = (kind == 0 ? dc_ : ac_)[static_cast<size_t>(number & 15)];
      if (!codes.make(counts, segment.at, total, kind == 0)) return false;
      segment.at += total;
      segment.left -= total;
    }
    return true;
  }

  bool read_frame(Segment segment) {
    const bool is_plain =
        num_colors_ == 0 && segment.byte() == 8 && segment.word() == height_ && segment.word() == width_;
    num_colors_ = segment.byte();
    if (!is_plain || (num_colors_ != 1 && num_colors_ != kMostColors) || segment.left != 3 * num_colors_) return false;
    for (int i = 0; i < num_colors_; ++i) {
      Color& color = colors_[static_cast<size_t>(i)];
      color.id = segment.byte();
      const int finer = segment.byte();
      color.across = finer >> 4;
      color.down = finer & 15;
      color.factors = segment.byte();
      if (color.across < 1 || color.across > 4 || color.down < 1 || color.down > 4 || color.factors >= kTables) {
        return false;
      }
    }
    if (num_colors_ == 1) {  // One colour has one block a unit, whatever it says.
      colors_[0].across = colors_[0].down = 1;
    }
    return true;
  }

  bool read_scan(Segment segment) {
    if (num_colors_ == 0 || segment.byte() != num_colors_ || segment.left != 2 * num_colors_ + 3) return false;
    for (int i = 0; i < num_colors_; ++i) {
      Color& color = colors_[static_cast<size_t>(i)];
      if (segment.byte() != color.id) return false;
      const int tables = segment.byte();
      color.dc = tables >> 4;
      color.ac = tables & 15;
      if (color.dc >= kTables || color.ac >= kTables) return false;
    }
    return segment.byte() == 0 && segment.byte() == kBlockSize - 1 && segment.byte() == 0;
  }

  // Looks whether all is there, and whether colours are what is read here.
  bool plan() {
    const Color& light = colors_[0];
    if (num_colors_ == kMostColors) {
      const bool is_numbered = light.id == 1 && colors_[1].id == 2 && colors_[2].id == 3;
      const bool is_ycc = is_jfif_ || (adobe_ < 0 ? is_numbered : adobe_ == 1);
      const bool is_finer = (light.across == 1 && light.down == 1) || (light.across == 2 && light.down <= 2);
      if (!is_ycc || !is_finer) return false;
      for (int i = 1; i < kMostColors; ++i) {
        if (colors_[static_cast<size_t>(i)].across != 1 || colors_[static_cast<size_t>(i)].down != 1) return false;
      }
    }
    unit_width_ = kBlockSide * light.across;
    unit_height_ = kBlockSide * light.down;
    for (int i = 0; i < num_colors_; ++i) {
      Color& color = colors_[static_cast<size_t>(i)];
      const auto dc = static_cast<size_t>(color.dc), ac = static_cast<size_t>(color.ac);
      if (!has_factors_[static_cast<size_t>(color.factors)] || !dc_[dc].is_made() || !ac_[ac].is_made()) return false;
      color.width = (width_ * color.across + light.across - 1) / light.across;
      color.height = (height_ * color.down + light.down - 1) / light.down;
      if (color.across < light.across && color.width < kLeastSamples) return false;
      color.stride = (width_ + unit_width_ - 1) / unit_width_ * kBlockSide * color.across;
      color.rows = 2 * kBlockSide * color.down;
      color.samples.resize(static_cast<size_t>(color.rows * color.stride));
    }
    const auto widest = static_cast<size_t>(colors_[0].stride);
    wide_[0].resize(widest);
    wide_[1].resize(widest);
    room_.resize(widest + 2);
    return true;
  }

  // Copies the bytes up to the next marker, without the zeros that stand behind each 0xFF there.
  bool begin_part() {
    uint8_t* to = scan_.data();
    for (;;) {
      const auto* const found = static_cast<const uint8_t*>(std::memchr(at_, 0xFF, static_cast<size_t>(end_ - at_)));
      if (found == nullptr || found + 1 == end_) return false;
      const auto plain = static_cast<size_t>(found - at_);
      std::memcpy(to, at_, plain);
      to += plain;
      at_ = found;
      if (found[1] != 0) break;
      *to++ = 0xFF;
      at_ += 2;
    }
    std::memset(to, 0, static_cast<size_t>(kBeyond));
    bits_ = Bits(scan_.data(), to);
    last_dc_.fill(0);
    return true;
  }

  bool restart() {
    if (!bits_.is_at_end() || end_ - at_ < 2 || at_[1] != kRestart + next_restart_) return false;
    next_restart_ = (next_restart_ + 1) % 8;
    at_ += 2;
    return at_ < end_ && begin_part();
  }

  template <typename Steps>
  PENSTOCK_INLINE bool read_unit(int64_t across, int64_t down) {
    Bits bits = bits_;  // A copy that compilers can keep in registers.
    for (int i = 0; i < num_colors_; ++i) {
      Color& color = colors_[static_cast<size_t>(i)];
      const CodeTable& dc = dc_[static_cast<size_t>(color.dc)];
      const CodeTable& ac = ac_[static_cast<size_t>(color.ac)];
      const Factors& factors = factors_[static_cast<size_t>(color.factors)];
      for (int y = 0; y < color.down; ++y) {
        uint8_t* to = color.row((down * color.down + y) * kBlockSide) + across * color.across * kBlockSide;
        for (int x = 0; x < color.across; ++x, to += kBlockSide) {
          Block block;
          if (!read_block(bits, dc, ac, last_dc_[static_cast<size_t>(i)], block)) return false;
          block_pixels<Steps>(block, factors, to, color.stride, excess_);
        }
      }
    }
    bits_ = bits;
    return true;
  }

  template <typename Steps>
  PENSTOCK_INLINE void put_row(int64_t y, uint8_t* out) {
    const uint8_t* const light = colors_[0].row(y);
    if (num_colors_ == 1) return grey_to_rgb(light, width_, out);
    const uint8_t* rows[2];
    for (size_t i = 0; i < 2; ++i) {
      Color& color = colors_[i + 1];
      rows[i] = wide_[i].data();
      if (colors_[0].across == 1) {
        rows[i] = color.row(y);
      } else if (colors_[0].down == 1) {
        widen_row(color.row(y), color.width, room_.data(), wide_[i].data());
      } else {
        const int64_t near = y / 2;
        const int64_t far = std::clamp<int64_t>(y % 2 == 0 ? near - 1 : near + 1, 0, color.height - 1);
        widen_rows(color.row(near), color.row(far), color.width, room_.data(), wide_[i].data());
      }
    }
    const int64_t done = Steps::to_rgb(light, rows[0], rows[1], width_, out);
    to_rgb(light, rows[0], rows[1], done, width_, out);
  }

  const uint8_t* at_;
  const uint8_t* const end_;
  int64_t width_ = 0;
  int64_t height_ = 0;
  int num_colors_ = 0;
  std::array<Color, kMostColors> colors_;
  int64_t unit_width_ = 0;
  int64_t unit_height_ = 0;
  std::array<Factors, kTables> factors_{};
  std::array<bool, kTables> has_factors_{};
  std::array<CodeTable, kTables> dc_;
  std::array<CodeTable, kTables> ac_;
  int64_t interval_ = 0;  // Units from one restart to the next; 0: there are none.
  bool is_jfif_ = false;
  int adobe_ = -1;  // What Adobe's segment says of the colours.

  Bits bits_;
  std::array<int32_t, kMostColors> last_dc_{};
  int next_restart_ = 0;
  Excess excess_;
  std::vector<uint8_t> scan_;
  std::array<std::vector<uint8_t>, 2> wide_;
  std::vector<uint16_t> room_;
};

bool read_portable(Jpeg& image, uint8_t* out, int64_t stride) { return image.read_pixels<Plain>(out, stride); }

#if defined(PENSTOCK_JPEG_AVX2)
__attribute__((target("avx2,bmi2"))) bool read_avx2(Jpeg& image, uint8_t* out, int64_t stride) {
  return image.read_pixels<Avx2>(out, stride);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  return has;
}

bool read_pixels(Jpeg& image, uint8_t* out, int64_t stride) {
  return has_avx2() ? read_avx2(image, out, stride) : read_portable(image, out, stride);
}
#else
bool has_avx2() { return false; }

bool read_pixels(Jpeg& image, uint8_t* out, int64_t stride) { return read_portable(image, out, stride); }
#endif

bool decode_jpeg(nb::handle data_object, nb::handle out_object) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 3, Access::kWrite);
  if (out.size(2) != 3 || (out.size(1) > 1 && out.stride(1) != 3)) {
    raise_value_error("out must have pixels of 3 bytes, one after the other.");
  }
  if (may_share_memory(data, out)) raise_value_error("data and out must not share memory.");
  nb::gil_scoped_release release;
  Jpeg image(data.data<const uint8_t>(), data.size(0));
  if (!image.read_header(out.size(0), out.size(1))) return false;
  return read_pixels(image, out.data<uint8_t>(), out.stride(0));
}

}  // namespace
}  // namespace jpeg

void bind_jpeg(nb::module_& m) {
  m.def("decode_jpeg", &jpeg::decode_jpeg, nb::arg("data"), nb::arg("out"),
        "Decode a plain JPEG; return whether it is one, with nothing wrong in it.");
  // Elsewhere libjpeg-turbo is twice as fast: it has vectors by hand for all machines.
  m.attr("decodes_jpeg_fast") = jpeg::has_avx2();
}

}  // namespace penstock
