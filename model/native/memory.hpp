// What a model keeps in memory: packed matrices, gain vectors, the pages of keys and values, rotary tables.
//
// Knows shapes and owns the bytes; knows nothing of how they are used. Always: a matrix is held once, in packed form.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "affine.hpp"
#include "kv_pages.hpp"
#include "rope.hpp"

namespace tane {

// Memory aligned to a cache line. Large blocks come from the system untouched, so what is never written costs nothing.
class Block {
 public:
  explicit Block(std::size_t bytes = 0);
  std::byte* data() const { return bytes_.get(); }
  float* floats() const { return reinterpret_cast<float*>(bytes_.get()); }
  // Makes room for at least so many bytes; what was there before is lost when it has to grow.
  void reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  std::size_t size_ = 0;
};

struct ModelShape {
  int layers, heads, kv_heads, head_width, context;
  int pages;
  KvType kv_type;
};

class ModelMemory {
 public:
  // Allocates the pages. Throws std::invalid_argument for a shape that no kernel can work on.
  explicit ModelMemory(const ModelShape& shape);

  // A table of the whole context. Throws std::invalid_argument for a base that is not above 0.
  int add_rope(double base, const RopeStretch* stretch);
  int add_matrix(AffineForm form, int outputs, int inputs);
  int add_vector(const float* values, int width);

  const ModelShape& shape() const { return shape_; }
  // Throw std::invalid_argument for an index that nothing has.
  const AffineWeights& matrix(int index) const { return at(matrices_, index); }
  const std::vector<float>& vector(int index) const { return at(vectors_, index); }
  RopeTable rope(int index) const { return at(ropes_, index).table(); }
  const KvPages& pages() const { return pages_; }
  std::size_t weight_bytes() const { return weight_bytes_; }

 private:
  struct Rope {
    int half;
    std::vector<float> cosines, sines;
    RopeTable table() const { return {half, cosines.data(), sines.data()}; }
  };

  template <typename T>
  static const T& at(const std::vector<T>& all, int index) {
    if (index < 0 || static_cast<std::size_t>(index) >= all.size()) throw std::invalid_argument("no such weights");
    return all[static_cast<std::size_t>(index)];
  }

  ModelShape shape_;
  std::vector<Block> blocks_;
  std::vector<AffineWeights> matrices_;
  std::vector<std::vector<float>> vectors_;
  Block page_memory_;
  KvPages pages_;
  std::vector<Rope> ropes_;
  std::size_t weight_bytes_ = 0;
};

}  // namespace tane
