// Products of matrix tiles in steps, so that the matrix unit works on some tiles of rows while the
// lanes work on another.
#pragma once

#include "attention_scratch.h"

namespace paredown {
namespace {

// The scores of a tile or its weighted values. `Product` is a product of up to 64 columns:
// num_steps() of them in all, step() does the next one. `Products` makes them in place: a copy
// would wait for all stores before it.
template <class Products, class Product>
class TileSteps {
 public:
  void begin_scores(const Products& products, const TileWork& work) {
    num_steps_ = products.num_score_steps(work);
    num_done_ = 0;
    products.make_score_product(work, product_);
    num_left_ = num_steps_;
  }

  void begin_values(const Products& products, const TileWork& work) {
    num_steps_ = products.num_value_steps(work);
    num_done_ = num_left_ = 0;
    next_dim_ = 0;
    weighed_ = &work;
  }

  // Goes on until `part` of num_parts is done.
  void run(const Products& products, int64_t part, int64_t num_parts) {
    for (; num_done_ * num_parts < num_steps_ * part; ++num_done_) {
      if (num_left_ == 0) {
        products.make_value_product(*weighed_, next_dim_, product_);
        next_dim_ += 4 * kLanes;
        num_left_ = product_.num_steps();
      }
      --num_left_;
      product_.step();
    }
  }

 private:
  const TileWork* weighed_ = nullptr;
  int64_t next_dim_ = 0;
  int64_t num_steps_ = 0;
  int64_t num_done_ = 0;
  int64_t num_left_ = 0;  // of product_
  Product product_{};
};

}  // namespace
}  // namespace paredown
