// Working memory and weights: zeroed, aligned, freed in one piece.
#pragma once

#include <cstdint>
#include <utility>

namespace paredown {

// Zeroed memory, aligned to 64 bytes; pages take memory only when they are written. From 2 MiB on
// they are huge pages where the system allows it.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t num_bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }

  // Bytes that a buffer of num_bytes takes: whole cache lines.
  static int64_t padded(int64_t num_bytes);

  void* get() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
  }

  void* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

}  // namespace paredown
