#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "check/checks.h"
#include "check/random_model.h"
#include "weights/names.h"

namespace paredown {
namespace {

// More than are projected at once, and no multiple of a page.
constexpr int64_t kLongText = 700;

struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> vectors;  // [length][kHidden]

  int32_t length() const { return static_cast<int32_t>(std::ssize(vectors) / kHidden); }
};

Text random_text(Random& random, int64_t length) {
  Text text;
  for (int64_t i = 0; i < length; ++i) {
    text.tokens.push_back(static_cast<int32_t>(below(random, kVocab)));
  }
  text.vectors = floats(random, length * kHidden, 0.0f, 1.0f);
  return text;
}

// Gives the texts the vectors that the encoder makes of all of them together.
void encode_together(Model& encoder, std::vector<Text>& texts) {
  std::vector<int32_t> tokens, lengths;
  for (const Text& text : texts) {
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    lengths.push_back(static_cast<int32_t>(text.tokens.size()));
  }
  const EncodeInput input{tokens, {}, lengths};
  encoder.check(input, EncodeOutput::kTokens);
  std::vector<float> vectors(tokens.size() * kHidden);
  encoder.encode(input, EncodeOutput::kTokens, vectors.data());
  auto place = vectors.begin();
  for (Text& text : texts) {
    text.vectors.assign(place, place + std::ssize(text.tokens) * kHidden);
    place += std::ssize(text.tokens) * kHidden;
  }
}

void write_together(Model& model, const std::vector<Text>& texts,
                    const std::vector<const Sequence*>& sequences) {
  std::vector<float> vectors;
  std::vector<int32_t> lengths, offsets{0}, pages;
  for (size_t i = 0; i < texts.size(); ++i) {
    vectors.insert(vectors.end(), texts[i].vectors.begin(), texts[i].vectors.end());
    lengths.push_back(texts[i].length());
    const std::vector<int32_t>& own = sequences[i]->cross_pages;
    pages.insert(pages.end(), own.begin(), own.end());
    offsets.push_back(static_cast<int32_t>(pages.size()));
  }
  const CrossInput input{vectors.data(), std::ssize(vectors) / kHidden, lengths, offsets, pages};
  model.check(input);
  model.write_cross(input);
}

// Takes pages for each text from all that the model has; those of the sequences come first.
void place_texts(Random& random, const std::vector<Text>& texts, std::vector<Sequence>& sequences) {
  std::vector<int32_t> free_pages(kCrossModelPages - kPages);
  std::iota(free_pages.begin(), free_pages.end(), static_cast<int32_t>(kPages));
  std::shuffle(free_pages.begin(), free_pages.end(), random);
  for (size_t i = 0; i < texts.size(); ++i) {
    Sequence& sequence = sequences[i];
    sequence.cross_length = texts[i].length();
    const int64_t num_pages = (sequence.cross_length + kPageSize - 1) / kPageSize;
    sequence.cross_pages.assign(free_pages.end() - num_pages, free_pages.end());
    free_pages.resize(free_pages.size() - static_cast<size_t>(num_pages));
  }
}

// The same sequence before its first step, in other pages, which others have written to.
Sequence moved(const Sequence& sequence) {
  Sequence alone{sequence.tokens,       sequence.pages,      {}, 0,
                 sequence.cross_length, sequence.cross_pages};
  for (std::vector<int32_t>* pages : {&alone.pages, &alone.cross_pages}) {
    for (int32_t& page : *pages) page = static_cast<int32_t>(kCrossModelPages - 1 - page);
  }
  return alone;
}

// `encoder` null: the vectors of the texts are random numbers.
bool same_bits_alone(Model& model, Model* encoder, Random& random, std::vector<Text> texts) {
  std::vector<Sequence> sequences = random_sequences(random);
  sequences.resize(texts.size());
  place_texts(random, texts, sequences);
  if (encoder != nullptr) encode_together(*encoder, texts);
  std::vector<Sequence*> all;
  for (Sequence& sequence : sequences) all.push_back(&sequence);
  write_together(model, texts, {all.begin(), all.end()});
  run_sequences(model, random, all, false);
  for (size_t i = 0; i < texts.size(); ++i) {
    Sequence alone = moved(sequences[i]);
    std::vector<Text> text{texts[i]};
    if (encoder != nullptr) encode_together(*encoder, text);
    write_together(model, text, {&alone});
    run_sequences(model, random, {&alone}, true);
    if (std::memcmp(alone.logits.data(), sequences[i].logits.data(),
                    alone.logits.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

std::vector<Text> short_texts(Random& random) {
  std::vector<Text> texts;
  for (int i = 0; i < 4; ++i) texts.push_back(random_text(random, 1 + below(random, kContext)));
  return texts;
}

// Each of the last token's logits is another number where it reads another text.
bool texts_count(Model& model, Random& random) {
  Sequence sequence{{1, 2, 3}, {0}, {}, 0};
  std::vector<std::vector<float>> found;
  for (int i = 0; i < 2; ++i) {
    const std::vector<Text> text{random_text(random, 20)};
    Sequence one = sequence;
    one.cross_length = 20;
    one.cross_pages = {30, 31};
    write_together(model, text, {&one});
    run_sequences(model, random, {&one}, true);
    found.push_back(one.logits);
  }
  return std::equal(found[0].end() - kVocab, found[0].end(), found[1].end() - kVocab,
                    [](float a, float b) { return a != b; });
}

// Texts and pages that do not fit together are refused, by steps and where they are written.
void check_refusals(Model& model, Model& plain, Random& random, Outcome& outcome) {
  struct Wrong {
    std::vector<int32_t> lengths, offsets, pages;
  };
  const auto last = static_cast<int32_t>(kCrossModelPages);
  const std::vector<Wrong> wrong{{{20}, {0, 1}, {30}},
                                 {{0}, {0, 1}, {30}},
                                 {{-5}, {0, 1}, {30}},
                                 {{20}, {0, 2}, {30, last}},
                                 {{20}, {0, 2}, {-1, 31}},
                                 {{20}, {-1, 2}, {30, 31}},
                                 {{20}, {0, 9}, {30, 31}},
                                 {{20}, {0}, {30, 31}},
                                 {{}, {}, {}},
                                 {{20, 1}, {0, 2, 3}, {30, 31, 32}},
                                 {{20}, {0, 0}, {30, 31}}};
  const std::vector<float> vectors = floats(random, 20 * kHidden, 0.0f, 1.0f);
  const std::vector<int32_t> tokens{1}, starts{0}, lengths{1}, offsets{0, 1}, pages{0}, released{0};
  auto step = [&](const Wrong& one) {
    return StepInput{tokens,   starts, lengths,     lengths,     offsets,  pages,
                     released, {},     one.lengths, one.offsets, one.pages};
  };
  for (const Wrong& one : wrong) {
    outcome.count(is_refused([&] { model.check(step(one)); }));
    outcome.count(is_refused(
        [&] { model.check(CrossInput{vectors.data(), 20, one.lengths, one.offsets, one.pages}); }));
  }
  const Wrong right{{20}, {0, 2}, {30, 31}};
  outcome.count(!is_refused([&] { model.check(step(right)); }));
  outcome.count(is_refused([&] { plain.check(step(right)); }));
  const CrossInput input{vectors.data(), 20, right.lengths, right.offsets, right.pages};
  outcome.count(!is_refused([&] { model.check(input); }));
  outcome.count(is_refused([&] { plain.check(input); }));
}

}  // namespace

void check_cross(Outcome& outcome) {
  Random random(42);
  for (Isa isa : supported_isas()) {
    int place = 0;
    for (WeightKind kind :
         {WeightKind::kFp32, WeightKind::kBf16, WeightKind::kInt8, WeightKind::kInt4}) {
      const std::unique_ptr<Model> encoder = random_encoder(random, {isa, kind, KvKind::kFp32, 2});
      for (const auto& [name, kv] : kKvFormats) {
        if (kv.is_static) continue;
        // In half of the cases the layers slide over the answer, and the pages of the last are
        // bf16.
        Case test{isa, kind, kv, place % 2 == 1, false};
        test.has_cross = true;
        if (test.asymmetric) test.last_kv = {KvKind::kBf16, false};
        const std::unique_ptr<Model> model = random_model(random, test);
        bool passed = same_bits_alone(*model, encoder.get(), random, short_texts(random));
        if (place++ % 4 == 0) {
          passed = same_bits_alone(*model, nullptr, random,
                                   {random_text(random, 30), random_text(random, kLongText)}) &&
                   texts_count(*model, random) && passed;
        }
        outcome.count(passed);
        if (!passed) {
          std::printf("bits differ across: %s, kind %d, pages %s\n", isa_name(isa),
                      static_cast<int>(kind), name.c_str());
        }
      }
    }
  }
  Case test{Isa::kGeneric, WeightKind::kFp32, {KvKind::kFp32, false}, false, false};
  const std::unique_ptr<Model> plain = random_model(random, test);
  test.has_cross = true;
  check_refusals(*random_model(random, test), *plain, random, outcome);
}

}  // namespace paredown
