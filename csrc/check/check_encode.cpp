#include <algorithm>
#include <cstdio>
#include <cstring>

#include "check/checks.h"
#include "check/random_model.h"

namespace paredown {
namespace {

constexpr int64_t kMostTokens = 96;

struct Texts {
  std::vector<int32_t> tokens;
  std::vector<int32_t> types;
  std::vector<int32_t> lengths;
};

Texts random_texts(Random& random, int64_t num_types) {
  Texts texts;
  for (int64_t i = 1 + below(random, 30); i > 0; --i) {
    const int64_t length = 1 + below(random, kMostTokens);
    texts.lengths.push_back(static_cast<int32_t>(length));
    for (int64_t t = 0; t < length; ++t) {
      texts.tokens.push_back(static_cast<int32_t>(below(random, kVocab)));
      texts.types.push_back(static_cast<int32_t>(below(random, num_types)));
    }
  }
  return texts;
}

std::vector<float> encode(Model& model, const EncodeInput& input, EncodeOutput output) {
  model.check(input, output);
  std::vector<float> vectors(
      static_cast<size_t>(model.encoded_rows(input, output) * model.encoded_size(output)));
  model.encode(input, output, vectors.data());
  return vectors;
}

// A text's vectors have the same bits in a batch and alone, from an encoder of that form.
bool same_bits_alone(const EncoderCase& test, Random& random) {
  const std::unique_ptr<Model> model = random_encoder(random, test);
  const Texts texts = random_texts(random, test.variant == 0 ? 2 : 1);
  for (const EncodeOutput output : {EncodeOutput::kHead, EncodeOutput::kTokens}) {
    const std::vector<float> together =
        encode(*model, {texts.tokens, texts.types, texts.lengths}, output);
    auto place = together.begin();
    size_t token = 0;
    for (size_t i = 0; i < texts.lengths.size(); ++i) {
      const auto length = static_cast<size_t>(texts.lengths[i]);
      const EncodeInput input{std::span(texts.tokens).subspan(token, length),
                              std::span(texts.types).subspan(token, length),
                              std::span(texts.lengths).subspan(i, 1)};
      const std::vector<float> alone = encode(*model, input, output);
      if (std::memcmp(alone.data(), &*place, alone.size() * sizeof(float)) != 0) return false;
      place += std::ssize(alone);
      token += length;
    }
  }
  return true;
}

}  // namespace

void check_encode(Outcome& outcome) {
  Random random(29);
  for (Isa isa : supported_isas()) {
    for (WeightKind kind : {WeightKind::kFp32, WeightKind::kBf16, WeightKind::kInt8}) {
      for (int variant = 0; variant < kNumEncoderVariants; ++variant) {
        const KvKind kv = variant % 2 == 0 ? KvKind::kFp32 : KvKind::kBf16;
        const bool passed = same_bits_alone({isa, kind, kv, variant}, random);
        outcome.count(passed);
        if (!passed) {
          std::printf("vectors differ: %s, kind %d, variant %d\n", isa_name(isa),
                      static_cast<int>(kind), variant);
        }
      }
    }
  }
}

}  // namespace paredown
