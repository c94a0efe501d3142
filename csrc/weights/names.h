// The names that choices have outside the core.
#pragma once

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "kernels/kernel_table.h"
#include "weights/packed_linear.h"

namespace paredown {

template <class Value>
Value look_up(const std::map<std::string, Value>& table, const std::string& key, const char* what) {
  const auto found = table.find(key);
  if (found == table.end()) {
    throw std::invalid_argument(std::string(what) + " '" + key + "' is unknown");
  }
  return found->second;
}

template <class Value>
const std::string& name_of(const std::map<std::string, Value>& table, Value value) {
  return std::find_if(table.begin(), table.end(),
                      [value](const auto& entry) { return entry.second == value; })
      ->first;
}

inline std::map<std::string, WeightKind> names_of_kinds() {
  std::map<std::string, WeightKind> names;
  for (const WeightTraits& traits : kWeightTraits) names[traits.name] = traits.kind;
  return names;
}

inline const std::map<std::string, WeightKind> kWeightKinds = names_of_kinds();
inline const std::map<std::string, Activations> kActivationForms = {
    {"fp32", Activations::kFp32},
    {"bf16", Activations::kBf16},
    {"int8_group", Activations::kInt8Group},
    {"int16_group", Activations::kInt16Group},
    {"int8_row", Activations::kInt8Row},
    {"int8_static", Activations::kInt8Static}};
inline const std::map<std::string, BitmapChoice> kBitmapChoices = {
    {"auto", BitmapChoice::kWherePays},
    {"never", BitmapChoice::kNever},
    {"always", BitmapChoice::kAlways}};
inline const std::map<std::string, ScaleKind> kScaleKinds = {
    {"fp32", ScaleKind::kFp32}, {"bf16", ScaleKind::kBf16}, {"fp16", ScaleKind::kFp16}};
inline const std::map<std::string, InputKind> kInputKinds = {
    {"fp32", InputKind::kFp32}, {"bf16", InputKind::kBf16}, {"int8", InputKind::kInt8}};

template <class Value>
const std::map<std::string, Value>& names_of();
template <>
inline const std::map<std::string, WeightKind>& names_of() {
  return kWeightKinds;
}
template <>
inline const std::map<std::string, ScaleKind>& names_of() {
  return kScaleKinds;
}
template <>
inline const std::map<std::string, InputKind>& names_of() {
  return kInputKinds;
}

inline const std::map<std::string, NormKind> kNormKinds = {{"rms", NormKind::kRms},
                                                           {"layer", NormKind::kLayer}};
inline const std::map<std::string, Activation> kActivations = {
    {"silu", Activation::kSilu}, {"gelu", Activation::kGelu}, {"gelu_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu}, {"tanh", Activation::kTanh}, {"sigmoid", Activation::kSigmoid}};
inline const std::map<std::string, KvFormat> kKvFormats = {
    {"bf16", {KvKind::kBf16, false}},    {"fp32", {KvKind::kFp32, false}},
    {"int8", {KvKind::kInt8, false}},    {"int4", {KvKind::kInt4, false}},
    {"fp8", {KvKind::kFp8, false}},      {"int8-static", {KvKind::kInt8, true}},
    {"fp8-static", {KvKind::kFp8, true}}};

}  // namespace paredown
