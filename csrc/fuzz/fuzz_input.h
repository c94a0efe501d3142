// The bytes of an input of a fuzzer, taken one value after the other; behind their end come zeros,
// which should ask for nothing odd: so short inputs go far.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace paredown {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : left_(data, size) {}

  bool is_empty() const { return left_.empty(); }

  template <class Value>
  Value take() {
    Value value{};
    const size_t count = std::min(sizeof(value), left_.size());
    if (count > 0) std::memcpy(&value, left_.data(), count);
    left_ = left_.subspan(count);
    return value;
  }

  // From 0 to limit - 1.
  int64_t below(int64_t limit) { return take<uint16_t>() % limit; }

  // Mostly a small number, at times any: what a file may claim.
  int64_t number() {
    const auto kind = take<uint8_t>();
    if (kind < 160) return take<uint8_t>();
    if (kind < 200) return static_cast<int64_t>(take<uint8_t>()) * 16;
    if (kind < 216) return int64_t{1} << (take<uint8_t>() % 63);
    if (kind < 232) return ~(int64_t{1} << (take<uint8_t>() % 63));
    return take<int64_t>();
  }

  // `count` bytes, which are repeated where there are too few.
  std::vector<uint8_t> bytes(int64_t count) {
    std::vector<uint8_t> found(static_cast<size_t>(count));
    const size_t given = std::min(found.size(), left_.size());
    for (size_t i = 0; i < found.size(); ++i) found[i] = given == 0 ? 0 : left_[i % given];
    left_ = left_.subspan(given);
    return found;
  }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace paredown
