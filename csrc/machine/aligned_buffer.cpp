#include "machine/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "machine/round_up.h"

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;  // bytes; sizes are whole lines

void* map(int64_t num_bytes, int protection) {
  void* data =
      mmap(nullptr, static_cast<size_t>(num_bytes), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return data;
}

void unmap(uint8_t* data, int64_t num_bytes) {
  if (num_bytes > 0) munmap(data, static_cast<size_t>(num_bytes));
}

#if defined(PAREDOWN_GUARD_PAGES)

// For the checks: a buffer ends where an inaccessible page begins, so that a read beyond it stops
// the program. The address sanitizer does not watch mapped memory.
void* map_buffer(int64_t num_bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t usable = round_up(num_bytes, page);
  auto* base = static_cast<uint8_t*>(map(usable + page, PROT_NONE));
  if (mprotect(base, static_cast<size_t>(usable), PROT_READ | PROT_WRITE) != 0) {
    unmap(base, usable + page);
    throw std::bad_alloc();
  }
  return base + usable - num_bytes;
}

void unmap_buffer(void* data, int64_t num_bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t usable = round_up(num_bytes, page);
  unmap(static_cast<uint8_t*>(data) + num_bytes - usable, usable + page);
}

#else

constexpr int64_t kHugePage = int64_t{2} << 20;

// Large buffers lie on borders of huge pages and ask for them: one entry of the translation cache
// instead of 512. The system gives them where it has them and is set to.
void* map_huge(int64_t num_bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t usable = round_up(num_bytes, page);
  auto* base = static_cast<uint8_t*>(map(usable + kHugePage, PROT_READ | PROT_WRITE));
  const int64_t skipped =
      -static_cast<int64_t>(reinterpret_cast<uintptr_t>(base)) & (kHugePage - 1);
  unmap(base, skipped);
  unmap(base + skipped + usable, kHugePage - skipped);
  madvise(base + skipped, static_cast<size_t>(usable), MADV_HUGEPAGE);
  return base + skipped;
}

void* map_buffer(int64_t num_bytes) {
  if (num_bytes >= kHugePage) return map_huge(num_bytes);
  return map(num_bytes, PROT_READ | PROT_WRITE);
}

void unmap_buffer(void* data, int64_t num_bytes) { unmap(static_cast<uint8_t*>(data), num_bytes); }

#endif

}  // namespace

int64_t AlignedBuffer::padded(int64_t num_bytes) { return round_up(num_bytes, kCacheLine); }

AlignedBuffer::AlignedBuffer(int64_t num_bytes) : num_bytes_(padded(num_bytes)) {
  // An anonymous mapping is zero, and takes memory only where it is written.
  if (num_bytes_ > 0) data_ = map_buffer(num_bytes_);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) unmap_buffer(data_, num_bytes_);
}

}  // namespace paredown
