// The products' drivers: convert x, cut the result into units, run the kernels.
#include "weft/nn/matmul.h"

#include <algorithm>
#include <vector>

#include "weft/nn/cpu/dispatch.h"
#include "weft/nn/cpu/packed_matrix.h"
#include "weft/nn/cpu/quant_pack.h"
#include "weft/nn/matmul_backward.h"
#include "weft/nn/share.h"

namespace weft::nn {
namespace {

// A strip range of one part; units of work are panels by runs of rows.
struct Panel {
  const Part* part;
  std::int64_t first, strips;
};

struct Product {
  const PackedMatrix::Data* w;
  Rows x;
  std::int64_t m;
  const float* bias;
  bool accumulate;
  float* y;
  std::int64_t ldy;
};

// Panels of at most `budget` bytes, so that one stays in the second-level cache
// (2 MiB on the machines measured, shared with x and y) over all its rows.
std::vector<Panel> panels_of(const PackedMatrix::Data& w, std::int64_t least, std::int64_t budget) {
  std::vector<Panel> panels;
  for (const Part& part : w.parts) {
    const std::int64_t fit = budget / std::max<std::int64_t>(part.strip_bytes, 1);
    const std::int64_t size = std::max(fit / least * least, least);
    for (std::int64_t first = 0; first < part.strips; first += size) {
      panels.push_back({&part, first, std::min(size, part.strips - first)});
    }
  }
  return panels;
}

// Calls body(panel, first row, rows) for all units, panel by panel. 1 << 17
// multiply-adds is the least worth waking a thread for (about 2 us with AMX).
template <class Body>
void run_units(const Product& p, const std::vector<Panel>& panels, std::int64_t run_rows,
               ThreadPool& pool, const Body& body) {
  const std::int64_t runs = (p.m + run_rows - 1) / run_rows;
  const std::int64_t units = runs * std::ssize(panels);
  const std::int64_t work = p.m * p.w->out * p.w->in / std::max<std::int64_t>(units, 1) + 1;
  const std::int64_t grain = std::max<std::int64_t>((std::int64_t{1} << 17) / work, 1);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t row = unit % runs * run_rows;
      body(panels[static_cast<std::size_t>(unit / runs)], row, std::min(run_rows, p.m - row));
    }
  };
  if (p.m <= 64) {
    pool.parallel_for(units, grain, part);
  } else {
    share(pool, units, grain, part);
  }
}

void product_f32(const Product& p, ThreadPool& pool) {
  const std::int64_t k = p.w->in;
  const std::int64_t budget = p.m <= 8 ? 0 : std::int64_t{512} << 10;
  const std::vector<Panel> panels = panels_of(*p.w, p.m <= 8 ? 8 : 2, budget);
  run_units(p, panels, 64, pool, [&](const Panel& panel, std::int64_t row, std::int64_t rows) {
    const std::int64_t column = panel.part->first_row + panel.first * kStrip;
    const std::int64_t columns =
        std::min(panel.part->rows - panel.first * kStrip, panel.strips * kStrip);
    row_kernels().product_f32(reinterpret_cast<const float*>(p.w->strip(*panel.part, panel.first)),
                              k, panel.strips, columns, p.x.data + row * p.x.ld, rows, p.x.ld,
                              p.bias == nullptr ? nullptr : p.bias + column, p.accumulate,
                              p.y + row * p.ldy + column, p.ldy);
  });
}

// Up to 64 rows and quantised weights, where the level has a kernel for that.
void product_few(const Product& p, const std::uint16_t* x, ThreadPool& pool) {
  const std::int64_t chunks = p.w->in / kChunk;
  for (const Part& part : p.w->parts) {
    const std::int64_t grain = std::max<std::int64_t>((std::int64_t{1} << 15) / (p.w->in * 16), 1);
    pool.parallel_for(part.strips, grain, [&](std::int64_t first, std::int64_t last) {
      thread_local Scratch scratch;
      const std::int64_t column = part.first_row + first * kStrip;
      Bf16QuantBlock block;
      block.format = quant_format(part.dtype);
      block.w = p.w->strip(part, first);
      block.strip_bytes = part.strip_bytes;
      block.strips = last - first;
      block.columns = std::min(part.rows - first * kStrip, block.strips * kStrip);
      block.chunks = chunks;
      block.x = x;
      block.rows = p.m;
      block.bias = p.bias == nullptr ? nullptr : p.bias + column;
      block.y = p.y + column;
      block.ldy = p.ldy;
      block.scratch = scratch.get<std::uint16_t>(
          static_cast<std::size_t>((p.m + 15) / 16 * chunks * kTileElements));
      bf16_kernels().product_few(block);
    });
  }
}

// Rows are taken in slabs whose bf16 copy stays in the caches between its
// conversion and its use.
constexpr std::int64_t kSlab = 2048;
// Chunks of 32 rows of x that stay in the first-level cache (2 KiB each of its 48) while
// the strips of a panel pass by.
constexpr std::int64_t kDepth = 20;

// Rounds rows [begin, end) of x into the layout of Bf16Kernels::convert, in which row
// `origin` is the first. Computed rows come 16 at a time, so that they stay in the caches.
void convert_rows(const Rows& x, std::int64_t k, std::int64_t begin, std::int64_t end,
                  std::int64_t origin, std::uint16_t* to) {
  const std::int64_t stride = (k + kChunk - 1) / kChunk * kTileElements;
  thread_local Scratch scratch;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = at - origin, first = row % 16, next = std::min(at - first + 16, end);
    const float* rows = x.data + at * x.ld;
    std::int64_t ld = x.ld;
    if (x.fill) {
      ld = k;
      rows = x.fill(at, next, scratch.get<float>(static_cast<std::size_t>(16 * k)) + first * k);
    }
    bf16_kernels().convert(rows - first * ld, ld, k, first, first + next - at,
                           to + row / 16 * stride);
    at = next;
  }
}

// y of rows x rounded and laid out by convert_rows (p.x is not read).
void multiply_rounded(const Product& p, const std::uint16_t* x, ThreadPool& pool) {
  const Bf16Kernels& kernels = bf16_kernels();
  const std::int64_t chunks = (p.w->in + kChunk - 1) / kChunk;
  const bool quantised = is_quantised(p.w->parts[0].layout), few = p.m <= 64;
  // Many columns are taken in blocks; the sums wait in y meanwhile.
  const std::int64_t blocks = few || quantised ? 1 : (chunks + kDepth - 1) / kDepth;
  const std::int64_t depth = (chunks + blocks - 1) / blocks;
  // Quantised panels are unpacked to bf16 once for all rows of a slab.
  std::int64_t panel_bytes = few || quantised ? 0 : std::int64_t{1} << 20;
  if (blocks > 1) panel_bytes = panel_bytes / depth * chunks;
  const std::vector<Panel> panels = panels_of(*p.w, 4, panel_bytes);
  const std::int64_t run_rows = quantised ? p.m : p.m < 512 ? 64 : 256;
  run_units(p, panels, run_rows, pool,
            [&](const Panel& panel, std::int64_t row, std::int64_t rows) {
              const Part& part = *panel.part;
              const std::int64_t column = part.first_row + panel.first * kStrip;
              Bf16Block block;
              if (quantised) {
                thread_local Scratch unpacked;
                block.strip_stride = chunks * kTileElements;
                auto* w = unpacked.get<std::uint16_t>(
                    static_cast<std::size_t>(panel.strips * block.strip_stride));
                for (std::int64_t i = 0; i < panel.strips; ++i) {
                  kernels.dequantize(quant_format(part.dtype), p.w->strip(part, panel.first + i),
                                     chunks, w + i * block.strip_stride);
                }
                block.w = w;
              } else {
                block.w = reinterpret_cast<const std::uint16_t*>(p.w->strip(part, panel.first));
                block.strip_stride = part.strip_bytes / 2;
              }
              block.strips = panel.strips;
              block.columns = std::min(part.rows - panel.first * kStrip, panel.strips * kStrip);
              block.x_stride = chunks * kTileElements;
              block.row = row;
              block.rows = rows;
              block.y = p.y + column;
              block.ldy = p.ldy;
              block.stream = few && !quantised;
              const std::uint16_t* strips = block.w;
              for (std::int64_t first = 0; first < chunks; first += depth) {
                block.chunks = std::min(depth, chunks - first);
                block.w = strips + first * kTileElements;
                block.x = x + first * kTileElements;
                block.accumulate = p.accumulate || first > 0;
                const bool last = first + depth >= chunks;
                block.bias = p.bias == nullptr || !last ? nullptr : p.bias + column;
                kernels.product(block);
              }
            });
}

void product_bf16(const Product& p, ThreadPool& pool) {
  const Bf16Kernels& kernels = bf16_kernels();
  const std::int64_t k = p.w->in, chunks = (k + kChunk - 1) / kChunk;
  thread_local Scratch scratch;
  const std::int64_t blocks = (std::min(p.m, kSlab) + 15) / 16;
  auto* x = scratch.get<std::uint16_t>(static_cast<std::size_t>(blocks * chunks * kTileElements));
  if (is_quantised(p.w->parts[0].layout) && p.m <= 64 && kernels.product_few != nullptr) {
    convert_rows(p.x, k, 0, p.m, 0, x);
    product_few(p, x, pool);
    return;
  }
  for (std::int64_t start = 0; start < p.m; start += kSlab) {
    Product slab = p;
    slab.m = std::min(kSlab, p.m - start);
    slab.y += start * p.ldy;
    share(pool, (slab.m + 15) / 16, row_grain(16 * k), [&](std::int64_t begin, std::int64_t end) {
      convert_rows(p.x, k, start + begin * 16, start + std::min(end * 16, slab.m), start, x);
    });
    multiply_rounded(slab, x, pool);
  }
}

void product_int8(const Product& p, ThreadPool& pool) {
  const Int8Kernels& kernels = int8_kernels();
  const std::int64_t k = p.w->in, blocks = k / kChunk;
  thread_local Scratch scratch;
  // Per row: k int8, then scales, totals and half sums.
  const std::int64_t row_bytes = k + blocks * 16;
  auto* q = scratch.get<std::int8_t>(static_cast<std::size_t>(p.m * row_bytes));
  auto* scale = reinterpret_cast<float*>(q + p.m * k);
  auto* totals = scale + p.m * blocks;
  auto* sums = reinterpret_cast<std::int32_t*>(totals + p.m * blocks);
  pool.parallel_for(p.m, row_grain(k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      kernels.quantize(p.x.data + row * p.x.ld, k, q + row * k, scale + row * blocks,
                       sums + row * blocks * 2);
    }
    for (std::int64_t i = begin * blocks; i < end * blocks; ++i) {
      totals[i] = scale[i] * static_cast<float>(sums[2 * i] + sums[2 * i + 1]);
    }
  });
  const std::vector<Panel> panels = panels_of(*p.w, 4, 0);
  run_units(p, panels, 512, pool, [&](const Panel& panel, std::int64_t row, std::int64_t rows) {
    const Part& part = *panel.part;
    const std::int64_t column = part.first_row + panel.first * kStrip;
    kernels.product(
        {quant_format(part.dtype), p.w->strip(part, panel.first), part.strip_bytes, panel.strips,
         std::min(part.rows - panel.first * kStrip, panel.strips * kStrip), blocks, q + row * k,
         scale + row * blocks, sums + row * blocks * 2, totals + row * blocks, rows,
         p.bias == nullptr ? nullptr : p.bias + column, p.y + row * p.ldy + column, p.ldy});
  });
}

void check_apart(const float* x, std::int64_t ldx, std::int64_t k, const float* y, std::int64_t ldy,
                 std::int64_t n, std::int64_t m) {
  WEFT_CHECK(ldx >= k && ldy >= n, "strides {} and {} for rows of {} and {}", ldx, ldy, k, n);
  const float* x_end = x + (m - 1) * ldx + k;
  const float* y_end = y + (m - 1) * ldy + n;
  // Interleaved rows of one buffer (a column range each) do not overlap.
  const bool apart = x_end <= y || y_end <= x ||
                     (ldx == ldy && m > 1 && ((y > x ? y - x : x - y) % ldx) >= (y > x ? k : n) &&
                      ((y > x ? y - x : x - y) % ldx) + (y > x ? n : k) <= ldx);
  WEFT_CHECK(apart, "the input and the result of a product overlap");
}

// All rows of x as an array, for kernels that read f32.
Rows as_array(const Rows& x, std::int64_t rows, std::int64_t columns, std::vector<float>& buffer) {
  if (!x.fill) return x;
  buffer.resize(static_cast<std::size_t>(rows * columns));
  return {x.fill(0, rows, buffer.data()), columns, nullptr};
}

void product(const Product& p, ThreadPool& pool) {
  if (p.m == 0 || p.w->out == 0) return;
  if (!p.x.fill) check_apart(p.x.data, p.x.ld, p.w->in, p.y, p.ldy, p.w->out, p.m);
  if (p.w->compute == Compute::kBF16) {
    product_bf16(p, pool);
    return;
  }
  std::vector<float> buffer;
  Product array = p;
  array.x = as_array(p.x, p.m, p.w->in, buffer);
  p.w->compute == Compute::kF32 ? product_f32(array, pool) : product_int8(array, pool);
}

// f32 dw: pieces of rows of dw.
void dw_f32(GradientShape shape, std::int64_t rows, const float* dy, std::int64_t lddy,
            const float* x, std::int64_t ldx, float* dw, std::int64_t lddw, ThreadPool& pool) {
  const std::int64_t grain =
      std::max<std::int64_t>((std::int64_t{1} << 17) / (rows * shape.in + 1), 1);
  pool.parallel_for(shape.out, grain, [&](std::int64_t begin, std::int64_t end) {
    row_kernels().gradient_f32(dy, lddy, x, ldx, rows, begin, end, shape.in, dw, lddw);
  });
}

// Both gradients of a matrix layer; dw or dx may be null.
struct Gradients {
  Compute compute;
  GradientShape shape;
  std::span<const std::int64_t> segments;
  Rows dy, x;
  float* dw;
  std::int64_t lddw;
  const PackedMatrix::Data* transposed = nullptr;
  float* dx = nullptr;
};

// A run of at most 32 rows of one segment.
struct Piece {
  std::int64_t row, rows;
};

void gradients_f32(const Gradients& g, std::int64_t rows, ThreadPool& pool) {
  std::vector<float> dy_buffer, x_buffer;
  const Rows dy = as_array(g.dy, rows, g.shape.out, dy_buffer);
  if (g.dw != nullptr) {
    const Rows x = as_array(g.x, rows, g.shape.in, x_buffer);
    dw_f32(g.shape, rows, dy.data, dy.ld, x.data, x.ld, g.dw, g.lddw, pool);
  }
  if (g.dx != nullptr) {
    product({g.transposed, dy, rows, nullptr, false, g.dx, g.shape.in}, pool);
  }
}

// One slab of pieces: its operands are rounded once for both products.
void gradients_bf16(const Gradients& g, std::span<const Piece> pieces, ThreadPool& pool) {
  const Bf16Kernels& kernels = bf16_kernels();
  const GradientShape shape = g.shape;
  const auto count = static_cast<std::int64_t>(pieces.size()), stride = count * kTileElements;
  const std::int64_t origin = pieces.front().row;
  const std::int64_t rows = pieces.back().row + pieces.back().rows - origin;
  const std::int64_t out_elements = g.dw == nullptr ? 0 : round_up(shape.out, kStrip) * kChunk;
  const std::int64_t in_elements = g.dw == nullptr ? 0 : round_up(shape.in, kStrip) * kChunk;
  const std::int64_t row_elements =
      g.dx == nullptr ? 0 : round_up(rows, 16) * round_up(shape.out, kChunk);
  thread_local Scratch scratch;
  auto* dy_tiles = scratch.get<std::uint16_t>(
      static_cast<std::size_t>(count * (out_elements + in_elements) + row_elements));
  auto* x_tiles = dy_tiles + count * out_elements;
  auto* dy_rows = x_tiles + count * in_elements;
  const auto round_piece = [&](std::int64_t i) {
    thread_local Scratch computed;
    const Piece piece = pieces[static_cast<std::size_t>(i)];
    const auto take = [&](const Rows& from, std::int64_t columns) -> Rows {
      if (!from.fill) return {from.data + piece.row * from.ld, from.ld, nullptr};
      // 16 rows in front: convert_rows counts from the border of a block.
      auto* buffer = computed.get<float>(static_cast<std::size_t>((16 + kChunk) * columns));
      buffer += 16 * columns;
      return {from.fill(piece.row, piece.row + piece.rows, buffer), columns, nullptr};
    };
    const Rows dy = take(g.dy, shape.out);
    if (g.dx != nullptr) {
      convert_rows(dy, shape.out, 0, piece.rows, origin - piece.row, dy_rows);
    }
    if (g.dw == nullptr) return;
    kernels.convert_gradient(dy.data, dy.ld, piece.rows, shape.out, true,
                             dy_tiles + i * kTileElements, stride);
    const Rows x = take(g.x, shape.in);
    kernels.convert_gradient(x.data, x.ld, piece.rows, shape.in, false, x_tiles + i * kTileElements,
                             stride);
  };
  share(pool, count, row_grain(kChunk * (shape.out + shape.in)),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) round_piece(i);
        });
  if (g.dw != nullptr) {
    // A block of dw stays in the second-level cache (2 MiB) over all rows, beside the
    // operands of `depth` chunks of them: dw is read and written once.
    constexpr std::int64_t kBudget = std::int64_t{640} << 10;
    const std::int64_t height =
        std::clamp<std::int64_t>(kBudget / (shape.in * 4) / 32 * 32, 32, 512);
    const std::int64_t depth = std::clamp<std::int64_t>(kBudget / (shape.in * 64), 4, 16);
    const std::int64_t pairs = (shape.out + 31) / 32;
    const std::int64_t grain =
        std::max<std::int64_t>((std::int64_t{1} << 17) / (count * kChunk * shape.in * 32), 1);
    share(pool, pairs, grain, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t last = std::min(end * 32, shape.out);
      for (std::int64_t block = begin * 32; block < last; block += height) {
        for (std::int64_t first = 0; first < count; first += depth) {
          kernels.gradient({dy_tiles + first * kTileElements, x_tiles + first * kTileElements,
                            stride, std::min(depth, count - first), shape.out, shape.in, block,
                            std::min(block + height, last), g.dw, g.lddw});
        }
      }
    });
  }
  if (g.dx != nullptr) {
    multiply_rounded({g.transposed, {}, rows, nullptr, false, g.dx + origin * shape.in, shape.in},
                     dy_rows, pool);
  }
}

void gradients(const Gradients& g, ThreadPool& pool) {
  WEFT_CHECK(g.compute != Compute::kInt8, "there is no int8 backward product");
  std::int64_t rows = 0;
  std::vector<Piece> pieces;
  for (std::int64_t segment : g.segments) {
    for (std::int64_t at = 0; at < segment; at += kChunk) {
      pieces.push_back({rows + at, std::min(kChunk, segment - at)});
    }
    rows += segment;
  }
  if (rows == 0 || g.shape.out == 0 || g.shape.in == 0) return;
  WEFT_CHECK((g.dy.fill || g.dy.ld >= g.shape.out) && (g.x.fill || g.x.ld >= g.shape.in) &&
                 (g.dw == nullptr || g.lddw >= g.shape.in),
             "strides {}, {}, {} of a [{}, {}] gradient", g.dy.ld, g.x.ld, g.lddw, g.shape.out,
             g.shape.in);
  if (g.compute == Compute::kF32) {
    gradients_f32(g, rows, pool);
    return;
  }
  // Slabs of up to 2,048 rows, so that dw is read and written once for that many; their
  // rounded operands take 256 MiB at most.
  constexpr std::int64_t kSlabBytes = std::int64_t{256} << 20;
  const std::int64_t piece_bytes = 2 * kChunk * (2 * g.shape.out + g.shape.in);
  const auto slab =
      static_cast<std::size_t>(std::clamp<std::int64_t>(kSlabBytes / piece_bytes, 16, 64));
  const std::span<const Piece> all = pieces;
  for (std::size_t start = 0; start < all.size(); start += slab) {
    gradients_bf16(g, all.subspan(start, std::min(slab, all.size() - start)), pool);
  }
}

}  // namespace

void matmul(const PackedMatrix& w, const float* x, std::int64_t m, std::int64_t ldx,
            const float* bias, float* y, std::int64_t ldy, ThreadPool& pool) {
  product({w.data(), {x, ldx, nullptr}, m, bias, false, y, ldy}, pool);
}

void matmul(const PackedMatrix& w, const Rows& x, std::int64_t m, const float* bias, float* y,
            std::int64_t ldy, ThreadPool& pool) {
  product({w.data(), x, m, bias, false, y, ldy}, pool);
}

void matmul_dx(const PackedMatrix& transposed, const float* dy, std::int64_t m, std::int64_t lddy,
               float* dx, std::int64_t lddx, bool accumulate, ThreadPool& pool) {
  product({transposed.data(), {dy, lddy, nullptr}, m, nullptr, accumulate, dx, lddx}, pool);
}

void matmul_dw(Compute compute, GradientShape shape, std::span<const std::int64_t> segments,
               const float* dy, std::int64_t lddy, const float* x, std::int64_t ldx, float* dw,
               std::int64_t lddw, ThreadPool& pool) {
  gradients({.compute = compute,
             .shape = shape,
             .segments = segments,
             .dy = {dy, lddy, nullptr},
             .x = {x, ldx, nullptr},
             .dw = dw,
             .lddw = lddw},
            pool);
}

void matmul_backward(const PackedMatrix& transposed, std::span<const std::int64_t> segments,
                     const Rows& dy, const Rows& x, float* dw, float* dx, ThreadPool& pool) {
  gradients({.compute = transposed.compute(),
             .shape = {.out = transposed.in(), .in = transposed.out()},
             .segments = segments,
             .dy = dy,
             .x = x,
             .dw = dw,
             .lddw = transposed.out(),
             .transposed = transposed.data(),
             .dx = dx},
            pool);
}

}  // namespace weft::nn
