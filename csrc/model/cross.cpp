// Cross-attention (arXiv 1706.03762): keys and values of an encoder's vectors, which lie in pages
// of their own for as long as a text is answered, and the queries of each layer that meet all of
// them.

#include <algorithm>
#include <stdexcept>
#include <string>

#include "machine/round_up.h"
#include "model/model.h"

namespace paredown {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

// Tokens whose keys and values are computed together: whole pages.
constexpr int64_t kCrossTokens = 512;

// What one page takes of the rows of all texts.
struct PagePart {
  int64_t first_row;
  int64_t num_rows;
  int32_t page;
};

std::vector<PagePart> page_parts(const CrossInput& input) {
  std::vector<PagePart> parts;
  int64_t row = 0;
  for (size_t text = 0; text < input.lengths.size(); ++text) {
    const int64_t end = row + input.lengths[text];
    for (int32_t i = input.page_offsets[text]; row < end; ++i) {
      const int64_t num_rows = std::min<int64_t>(kPageSize, end - row);
      parts.push_back({row, num_rows, input.pages[static_cast<size_t>(i)]});
      row += num_rows;
    }
  }
  return parts;
}

}  // namespace

bool Model::has_cross() const { return config_.layers.front().cross.has_value(); }

void Model::check_cross_pages(std::span<const int32_t> lengths,
                              std::span<const int32_t> page_offsets,
                              std::span<const int32_t> pages) const {
  if (page_offsets.size() != lengths.size() + 1) fail("a text has no list of its pages");
  for (size_t text = 0; text < lengths.size(); ++text) {
    const int64_t begin = page_offsets[text];
    const int64_t num_pages = int64_t{page_offsets[text + 1]} - begin;
    if (lengths[text] < 1 || begin < 0 || num_pages < divide_up(lengths[text], kPageSize) ||
        page_offsets[text + 1] > std::ssize(pages)) {
      fail("a text that is read across has too few pages, or no tokens");
    }
  }
  for (const int32_t page : pages) {
    if (page < 0 || page >= config_.num_pages) fail("page " + std::to_string(page) + " is unknown");
  }
}

void Model::check(const CrossInput& input) {
  if (!are_weights_checked_) check_weights();
  if (!has_cross()) fail("the model has no cross-attention");
  check_cross_pages(input.lengths, input.page_offsets, input.pages);
  int64_t num_rows = 0;
  for (const int32_t length : input.lengths) num_rows += length;
  if (num_rows != input.num_rows) fail("the texts do not add up to the vectors");
}

void Model::check_cross(const StepInput& input) const {
  if (!has_cross()) {
    if (!input.cross_lengths.empty() || !input.cross_pages.empty()) {
      fail("the model has no cross-attention");
    }
    return;
  }
  if (input.cross_lengths.size() != input.starts.size()) {
    fail("each slice reads one text across");
  }
  check_cross_pages(input.cross_lengths, input.cross_offsets, input.cross_pages);
}

void Model::write_cross(const CrossInput& input) {
  if (input.num_rows == 0) return;
  pool_.use(input.num_rows <= kMaxDecodeTokens ? threads_.decode : threads_.prefill);
  reserve(std::min(input.num_rows, kCrossTokens));
  const std::vector<PagePart> parts = page_parts(input);
  const size_t most = kCrossTokens / kPageSize;
  for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
    for (size_t first = 0; first < parts.size(); first += most) {
      const size_t last = std::min(first + most, parts.size()) - 1;
      const int64_t first_row = parts[first].first_row;
      project_cross(layer, input, {first_row, parts[last].first_row + parts[last].num_rows});
      const KvView kv = kv_view(layer);
      const int64_t kv_size = kv.num_kv_heads * kv.head_dim;
      paredown::for_rows(pool_, static_cast<int64_t>(last + 1 - first), [&](int64_t i) {
        const PagePart& part = parts[first + static_cast<size_t>(i)];
        const float* key = wide_.as<float>() + (part.first_row - first_row) * sizes_.wide_stride;
        if (part.num_rows == kPageSize) {
          return kernels_.write_page(kv, part.page, key, key + kv_size, sizes_.wide_stride);
        }
        for (int64_t slot = 0; slot < part.num_rows; ++slot, key += sizes_.wide_stride) {
          kernels_.write_kv(kv, part.page, slot, key, key + kv_size);
        }
      });
    }
  }
}

// Keys and values of these rows, side by side in wide_.
void Model::project_cross(int64_t index, const CrossInput& input, const Range& rows) {
  const int64_t size = config_.hidden_size;
  auto vector_of = [&](int64_t t, float* row) {
    std::copy_n(input.vectors + (rows.begin + t) * size, size, row);
    std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
    return row;
  };
  linears_.run(layers_[static_cast<size_t>(index)].cross_kv, rows.end - rows.begin, vector_of,
               wide_rows());
}

// For the last so many tokens of each slice, which read all of their text.
void Model::plan_cross(const StepInput& input, std::span<const int32_t> num_tokens) {
  if (!has_cross()) return;
  cross_slices_.clear();
  for (size_t s = 0; s < num_tokens.size(); ++s) {
    if (num_tokens[s] == 0) continue;
    const int32_t* pages = input.cross_pages.data() + input.cross_offsets[s];
    cross_slices_.push_back({pages, 0, num_tokens[s], 0, input.cross_lengths[s]});
  }
  for (auto& [shape, attention] : cross_attentions_) attention.plan(cross_slices_);
}

void Model::run_cross(int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  if (layer.cross_attention == nullptr) return;
  const AttentionConfig& cross = *layer_config(index).cross;
  run_normed(layer.cross_query, layer.norms[NormRole::kCross], num_tokens_, wide_rows());
  HeadsView queries{};
  queries.scale = cross.scale;
  queries.head_dim = cross.head_dim;
  if (cross.scale != 1.0f) {
    paredown::for_rows(pool_, num_tokens_, [&](int64_t t) {
      float* query = wide_.as<float>() + t * sizes_.wide_stride;
      kernels_.prepare_heads(queries, query, cross.num_heads);
    });
  }
  layer.cross_attention->run(kv_view(index), {wide_.as<float>(), sizes_.wide_stride,
                                              attended_.as<float>(), sizes_.wide_stride, nullptr});
  const int64_t size = cross.q_size();
  auto attended = [&](int64_t t, float*) {
    float* row = attended_.as<float>() + t * sizes_.wide_stride;
    std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
    return row;
  };
  OutputRows sum{hidden_.as<float>(), sizes_.hidden_stride, true, false, false, Activation::kRelu};
  linears_.run(layer.cross_out, num_tokens_, attended, sum);
}

OutputRows Model::wide_rows() const {
  return {wide_.as<float>(), sizes_.wide_stride, false, false, false, Activation::kRelu};
}

}  // namespace paredown
