#include "aligned_buffer.h"

#include <sys/mman.h>

#include <new>

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;  // bytes; sizes are whole lines

}  // namespace

AlignedBuffer::AlignedBuffer(int64_t num_bytes)
    : num_bytes_((num_bytes + kCacheLine - 1) / kCacheLine * kCacheLine) {
  if (num_bytes_ == 0) return;
  // An anonymous mapping is page-aligned and zero, and takes memory only where it is written.
  void* data = mmap(nullptr, static_cast<size_t>(num_bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = data;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(num_bytes_));
}

}  // namespace paredown
