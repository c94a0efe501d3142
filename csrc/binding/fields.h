// A dict of Python's, read field by field.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <set>
#include <stdexcept>
#include <string>

namespace paredown {

// Throws std::invalid_argument for a field that is not there or is of another type, and in `finish`
// for one that was not asked for.
class Fields {
 public:
  // `owner` is what messages call the dict.
  Fields(nanobind::handle dict, const char* owner) : owner_(owner) {
    if (!nanobind::isinstance<nanobind::dict>(dict))
      throw std::invalid_argument(std::string(owner) + " is no dict");
    dict_ = nanobind::borrow<nanobind::dict>(dict);
  }

  nanobind::object take(const char* key) {
    asked_.insert(key);
    if (!dict_.contains(key)) fail(std::string("no field '") + key + "'");
    return dict_[key];
  }

  template <class Value>
  Value get(const char* key) {
    const nanobind::object value = take(key);
    Value result;
    if (!nanobind::try_cast(value, result)) {
      fail(std::string("another type of field '") + key + "'");
    }
    return result;
  }

  void finish() const {
    for (const auto& [key, value] : dict_) {
      const std::string name = nanobind::cast<std::string>(nanobind::str(key));
      if (!asked_.contains(name)) fail("an unknown field '" + name + "'");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw std::invalid_argument(message + " in " + owner_);
  }

  const char* owner_;
  nanobind::dict dict_;
  std::set<std::string> asked_;
};

}  // namespace paredown
