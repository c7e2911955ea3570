// Packing: from the element types of files to the layouts of the kernels.
#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/nn/cpu/bf16_convert.h"
#include "weft/nn/cpu/dispatch.h"
#include "weft/nn/cpu/packed_matrix.h"
#include "weft/nn/cpu/quant_blocks.h"
#include "weft/nn/cpu/quant_pack.h"
#include "weft/nn/matmul.h"
#include "weft/nn/matmul_backward.h"

namespace weft::nn {
namespace {

// Rows of stacked views, by their number in the stack.
class RowReader {
 public:
  explicit RowReader(const std::vector<TensorView>& stacked) : stacked_(stacked) {
    for (const TensorView& view : stacked) starts_.push_back(starts_.back() + view.rows());
  }
  std::int64_t rows() const { return starts_.back(); }

  // Rows [begin, end) as f32: a pointer into an f32 view where they lie together
  // in one, else `buffer`, filled.
  const float* read(std::int64_t begin, std::int64_t end, std::vector<float>& buffer) const {
    const std::int64_t columns = stacked_[0].columns();
    std::size_t view = view_of(begin);
    if (stacked_[view].dtype == DType::kF32 && end <= starts_[view + 1]) {
      return reinterpret_cast<const float*>(stacked_[view].data) +
             (begin - starts_[view]) * columns;
    }
    buffer.resize(static_cast<std::size_t>((end - begin) * columns));
    for (std::int64_t row = begin; row < end; ++row) {
      while (row >= starts_[view + 1]) ++view;
      read_row(stacked_[view], row - starts_[view], buffer.data() + (row - begin) * columns);
    }
    return buffer.data();
  }

 private:
  std::size_t view_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin() + 1, starts_.end(), row) -
                                    (starts_.begin() + 1));
  }
  static void read_row(const TensorView& view, std::int64_t row, float* out) {
    const std::int64_t n = view.columns();
    const std::byte* data =
        view.data + row * (n / block_elements(view.dtype)) * block_bytes(view.dtype);
    if (is_quantized(view.dtype)) {
      dequantize_quant_row(view.dtype, data, n, out);
    } else if (view.dtype == DType::kF32) {
      std::memcpy(out, data, static_cast<std::size_t>(n) * sizeof(float));
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        std::uint16_t h;
        std::memcpy(&h, data + 2 * i, sizeof h);
        out[i] = view.dtype == DType::kF16 ? f16_to_f32(h) : bf16_to_f32(h);
      }
    }
  }

  const std::vector<TensorView>& stacked_;
  std::vector<std::int64_t> starts_{0};
};

Status check_stack(const std::vector<TensorView>& stacked, Compute compute) {
  if (stacked.empty()) return fail(ErrorCode::kInvalidArgument, "no matrix to pack");
  for (const TensorView& view : stacked) {
    if (view.shape.size() != 2) {
      return fail(ErrorCode::kInvalidArgument, "a weight matrix has 2 dimensions, not {}",
                  view.shape.size());
    }
    if (view.columns() != stacked[0].columns()) {
      return fail(ErrorCode::kInvalidArgument, "stacked matrices have {} and {} columns",
                  stacked[0].columns(), view.columns());
    }
    if (view.columns() % block_elements(view.dtype) != 0) {
      return fail(ErrorCode::kInvalidArgument, "rows of {} columns are not whole {} blocks",
                  view.columns(), to_string(view.dtype));
    }
    const bool plain =
        view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
    if (!plain && !is_quantized(view.dtype)) {
      return fail(ErrorCode::kUnsupported, "no matrix product for weights of type {}",
                  to_string(view.dtype));
    }
    if (compute == Compute::kInt8 && !is_quantized(view.dtype)) {
      return fail(ErrorCode::kUnsupported,
                  "int8 products need quantised weights, not {}; use bf16 or f32",
                  to_string(view.dtype));
    }
  }
  return {};
}

// Adds a part of `rows` rows; the buffer comes when all parts are known.
void add_part(PackedMatrix::Data& data, Layout layout, DType dtype, std::int64_t rows) {
  Part part;
  part.layout = layout;
  part.dtype = dtype;
  part.first_row = data.out;
  part.rows = rows;
  part.strips = (rows + kStrip - 1) / kStrip;
  switch (layout) {
    case Layout::kF32:
      part.strip_bytes = data.in * kStrip * 4;
      break;
    case Layout::kBF16:
      part.strip_bytes = round_up(data.in, kChunk) * kStrip * 2;
      break;
    case Layout::kQuantRows:
    case Layout::kQuantColumns:
      part.strip_bytes = quant_format(dtype).strip_bytes(data.in);
      break;
  }
  if (!data.parts.empty()) {
    const Part& last = data.parts.back();
    part.offset = last.offset + static_cast<std::size_t>(last.strips * last.strip_bytes);
  }
  data.out += rows;
  data.parts.push_back(part);
}

void allocate(PackedMatrix::Data& data) {
  const Part& last = data.parts.back();
  data.buffer =
      AlignedBuffer(last.offset + static_cast<std::size_t>(last.strips * last.strip_bytes));
}

// Rows [32 * chunk, ...) of an f32 stack into an f32 pack, forward or transposed.
void pack_f32(const float* w, std::int64_t first_row, std::int64_t rows, std::int64_t columns,
              std::int64_t all_rows, float* forward, float* transposed) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = first_row + r;
    const float* in = w + r * columns;
    if (forward != nullptr) {
      float* to = forward + row / kStrip * columns * kStrip + row % kStrip;
      for (std::int64_t c = 0; c < columns; ++c) to[c * kStrip] = in[c];
    }
    if (transposed == nullptr) continue;
    for (std::int64_t strip = 0; strip * kStrip < columns; ++strip) {
      float* to = transposed + (strip * all_rows + row) * kStrip;
      const std::int64_t n = std::min(columns - strip * kStrip, kStrip);
      std::copy_n(in + strip * kStrip, n, to);
      std::fill(to + n, to + kStrip, 0.0F);
    }
  }
  if (forward != nullptr && first_row + rows == all_rows) {  // lanes beyond the last row
    for (std::int64_t row = all_rows; row < round_up(all_rows, kStrip); ++row) {
      float* to = forward + row / kStrip * columns * kStrip + row % kStrip;
      for (std::int64_t c = 0; c < columns; ++c) to[c * kStrip] = 0.0F;
    }
  }
}

// Fills dense packs of the whole stack; either may be null.
void fill_dense(const std::vector<TensorView>& stacked, Compute compute,
                PackedMatrix::Data* forward, PackedMatrix::Data* transposed, ThreadPool& pool) {
  const RowReader reader(stacked);
  const std::int64_t rows = reader.rows(), columns = stacked[0].columns();
  const std::int64_t chunks = (rows + kChunk - 1) / kChunk;
  pool.parallel_for(
      chunks, row_grain(kChunk * columns), [&](std::int64_t first, std::int64_t last) {
        std::vector<float> buffer;
        for (std::int64_t chunk = first; chunk < last; ++chunk) {
          const std::int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, rows);
          const float* w = reader.read(begin, end, buffer);
          if (compute == Compute::kF32) {
            pack_f32(
                w, begin, end - begin, columns, rows,
                forward == nullptr ? nullptr : reinterpret_cast<float*>(forward->buffer.data()),
                transposed == nullptr ? nullptr
                                      : reinterpret_cast<float*>(transposed->buffer.data()));
            continue;
          }
          const std::int64_t forward_stride = round_up(columns, kChunk) * kStrip;
          const std::int64_t transposed_stride = round_up(rows, kChunk) * kStrip;
          auto* to = forward == nullptr ? nullptr
                                        : reinterpret_cast<std::uint16_t*>(forward->buffer.data()) +
                                              chunk * 2 * forward_stride;
          auto* to_transposed = transposed == nullptr
                                    ? nullptr
                                    : reinterpret_cast<std::uint16_t*>(transposed->buffer.data()) +
                                          chunk * kTileElements;
          bf16_kernels().pack(w, columns, end - begin, columns, to, forward_stride, to_transposed,
                              transposed_stride);
        }
      });
}

// One quantised view into its part.
void fill_quantised(const TensorView& view, const Part& part, PackedMatrix::Data& data,
                    ThreadPool& pool) {
  pool.parallel_for(part.strips, row_grain(data.in * kStrip),
                    [&](std::int64_t first, std::int64_t last) {
                      for (std::int64_t strip = first; strip < last; ++strip) {
                        pack_quant_strip(view, strip * kStrip, part.layout == Layout::kQuantColumns,
                                         data.strip(part, strip));
                      }
                    });
}

}  // namespace

std::int64_t PackedMatrix::out() const { return data_ == nullptr ? 0 : data_->out; }
std::int64_t PackedMatrix::in() const { return data_ == nullptr ? 0 : data_->in; }
Compute PackedMatrix::compute() const { return data_->compute; }
DType PackedMatrix::dtype() const { return data_->dtype; }
std::int64_t PackedMatrix::bytes() const {
  return data_ == nullptr ? 0 : static_cast<std::int64_t>(data_->buffer.bytes());
}

Result<PackedMatrix> pack_matrix(const std::vector<TensorView>& stacked, Compute compute,
                                 ThreadPool& pool) {
  WEFT_TRY(check_stack(stacked, compute));
  auto data = std::make_shared<PackedMatrix::Data>();
  data->in = stacked[0].columns();
  data->compute = compute;
  data->dtype = stacked[0].dtype;
  const bool quantised = compute != Compute::kF32 &&
                         std::all_of(stacked.begin(), stacked.end(), [](const TensorView& view) {
                           return is_quantized(view.dtype);
                         });
  if (quantised) {
    const Layout layout = compute == Compute::kInt8 ? Layout::kQuantColumns : Layout::kQuantRows;
    for (const TensorView& view : stacked) add_part(*data, layout, view.dtype, view.rows());
    allocate(*data);
    for (std::size_t i = 0; i < stacked.size(); ++i) {
      fill_quantised(stacked[i], data->parts[i], *data, pool);
    }
  } else {
    add_part(*data, compute == Compute::kF32 ? Layout::kF32 : Layout::kBF16, data->dtype,
             RowReader(stacked).rows());
    allocate(*data);
    fill_dense(stacked, compute, data.get(), nullptr, pool);
  }
  return PackedMatrix(std::move(data));
}

Result<PackedMatrix> pack_transposed(const std::vector<TensorView>& stacked, Compute compute,
                                     ThreadPool& pool) {
  WEFT_TRY(check_stack(stacked, compute));
  if (compute == Compute::kInt8) {
    return fail(ErrorCode::kUnsupported, "there is no int8 backward product; use bf16 or f32");
  }
  auto data = std::make_shared<PackedMatrix::Data>();
  data->in = RowReader(stacked).rows();
  data->compute = compute;
  data->dtype = stacked[0].dtype;
  add_part(*data, compute == Compute::kF32 ? Layout::kF32 : Layout::kBF16, data->dtype,
           stacked[0].columns());
  allocate(*data);
  fill_dense(stacked, compute, nullptr, data.get(), pool);
  return PackedMatrix(std::move(data));
}

void repack(const std::vector<TensorView>& masters, const PackedMatrix& forward,
            const PackedMatrix& transposed, ThreadPool& pool) {
  if (!forward && !transposed) return;
  const std::int64_t rows = RowReader(masters).rows(), columns = masters[0].columns();
  // The one place that writes to a finished pack; the caller promised to be alone.
  auto* to = const_cast<PackedMatrix::Data*>(forward.data());
  auto* to_transposed = const_cast<PackedMatrix::Data*>(transposed.data());
  const Compute compute = to != nullptr ? to->compute : to_transposed->compute;
  for (const PackedMatrix::Data* data : {to, to_transposed}) {
    if (data == nullptr) continue;
    WEFT_CHECK(
        data->parts.size() == 1 && !is_quantised(data->parts[0].layout) && data->compute == compute,
        "repack needs dense packs of one kind");
  }
  WEFT_CHECK(to == nullptr || (to->out == rows && to->in == columns),
             "repack of a [{}, {}] stack into a [{}, {}] pack", rows, columns, to->out, to->in);
  WEFT_CHECK(
      to_transposed == nullptr || (to_transposed->out == columns && to_transposed->in == rows),
      "repack of a [{}, {}] stack into a transposed [{}, {}] pack", rows, columns,
      to_transposed->out, to_transposed->in);
  fill_dense(masters, compute, to, to_transposed, pool);
}

void matrix_row(const PackedMatrix& w, std::int64_t row, float* out) {
  const PackedMatrix::Data& data = *w.data();
  WEFT_CHECK(row >= 0 && row < data.out, "row {} of {}", row, data.out);
  const auto part = std::find_if(data.parts.begin(), data.parts.end(),
                                 [&](const Part& p) { return row < p.first_row + p.rows; });
  const std::int64_t local = row - part->first_row, lane = local % kStrip;
  const std::byte* strip = data.strip(*part, local / kStrip);
  if (is_quantised(part->layout)) {
    quant_row(quant_format(part->dtype), strip, part->layout == Layout::kQuantColumns, lane,
              data.in, out);
    if (data.compute == Compute::kBF16) {
      for (std::int64_t i = 0; i < data.in; ++i) out[i] = from_bf16(to_bf16(out[i]));
    }
    return;
  }
  for (std::int64_t i = 0; i < data.in; ++i) {
    if (part->layout == Layout::kF32) {
      out[i] = reinterpret_cast<const float*>(strip)[i * kStrip + lane];
    } else {
      out[i] = from_bf16(reinterpret_cast<const std::uint16_t*>(
          strip)[i / kChunk * kTileElements + i % kChunk / 2 * 32 + lane * 2 + i % 2]);
    }
  }
}

}  // namespace weft::nn
