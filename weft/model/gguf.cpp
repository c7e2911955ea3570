#include "weft/model/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace weft::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// The format's limit on tensor dimensions; names are at most 64 bytes with their end.
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::size_t kMaxTensorName = 64;
constexpr std::size_t kMaxKey = 65535;

std::int64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool is_integer(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool &&
         scalar_bytes(type) > 0;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// One integer of an integer type; false when it does not fit (u64 above 2^63 - 1).
bool load_integer(GgufType type, const std::byte* at, std::int64_t& out) {
  switch (type) {
    case GgufType::kU8:
      out = load<std::uint8_t>(at);
      return true;
    case GgufType::kI8:
      out = load<std::int8_t>(at);
      return true;
    case GgufType::kU16:
      out = load<std::uint16_t>(at);
      return true;
    case GgufType::kI16:
      out = load<std::int16_t>(at);
      return true;
    case GgufType::kU32:
      out = load<std::uint32_t>(at);
      return true;
    case GgufType::kI32:
      out = load<std::int32_t>(at);
      return true;
    case GgufType::kI64:
      out = load<std::int64_t>(at);
      return true;
    case GgufType::kU64: {
      const auto value = load<std::uint64_t>(at);
      out = static_cast<std::int64_t>(value);
      return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    }
    default:
      return false;
  }
}

bool load_number(GgufType type, const std::byte* at, double& out) {
  if (type == GgufType::kF32) {
    out = static_cast<double>(load<float>(at));
    return true;
  }
  if (type == GgufType::kF64) {
    out = load<double>(at);
    return true;
  }
  if (type == GgufType::kU64) {
    out = static_cast<double>(load<std::uint64_t>(at));
    return true;
  }
  std::int64_t integer = 0;
  if (!load_integer(type, at, integer)) return false;
  out = static_cast<double>(integer);
  return true;
}

// Takes fields from the front of a span; every failure names the file, what was
// being read and where.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  Result<const std::byte*> take(std::uint64_t size, std::string_view what) {
    if (size > left()) {
      return fail(
          ErrorCode::kCorrupt,
          "{}: {} at byte {} needs {} bytes but only {} are left; the file is cut or damaged",
          file_, what, position_, size, left());
    }
    const std::byte* at = bytes_.data() + position_;
    position_ += size;
    return at;
  }

  template <class T>
  Result<T> value(std::string_view what) {
    WEFT_ASSIGN(const std::byte* at, take(sizeof(T), what));
    return load<T>(at);
  }

  Result<std::string_view> string(std::string_view what, std::uint64_t limit) {
    WEFT_ASSIGN(const auto size, value<std::uint64_t>(what));
    if (size > limit) {
      return fail(ErrorCode::kCorrupt, "{}: {} at byte {} has length {}, more than the {} allowed",
                  file_, what, position_ - 8, size, limit);
    }
    WEFT_ASSIGN(const std::byte* at, take(size, what));
    return std::string_view(reinterpret_cast<const char*>(at), size);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::uint64_t position_ = 0;
};

Result<GgufValue> read_value(Cursor& cursor, const std::string& file, std::string_view key) {
  const std::string what = fmt::format("value of '{}'", key);
  const auto read_type = [&]() -> Result<GgufType> {
    WEFT_ASSIGN(const auto number, cursor.value<std::uint32_t>(what));
    if (number > static_cast<std::uint32_t>(GgufType::kF64)) {
      return fail(ErrorCode::kCorrupt, "{}: '{}' has the unknown value type {}", file, key, number);
    }
    return static_cast<GgufType>(number);
  };
  GgufValue value;
  WEFT_ASSIGN(value.type, read_type());
  value.element = value.type;
  if (value.type == GgufType::kString) {
    WEFT_ASSIGN(const std::string_view text, cursor.string(what, cursor.left()));
    value.strings.push_back(text);
    return value;
  }
  if (value.type == GgufType::kArray) {
    WEFT_ASSIGN(value.element, read_type());
    if (value.element == GgufType::kArray) {
      return fail(ErrorCode::kUnsupported,
                  "{}: '{}' is an array of arrays, which Weft does not read", file, key);
    }
    WEFT_ASSIGN(const auto count, cursor.value<std::uint64_t>(what));
    // A string takes at least its 8-byte length.
    const std::uint64_t each = value.element == GgufType::kString
                                   ? 8
                                   : static_cast<std::uint64_t>(scalar_bytes(value.element));
    if (count > cursor.left() / each) {
      return fail(ErrorCode::kCorrupt, "{}: '{}' claims {} elements, more than the file can hold",
                  file, key, count);
    }
    value.count = static_cast<std::int64_t>(count);
    if (value.element == GgufType::kString) {
      value.strings.reserve(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        WEFT_ASSIGN(const std::string_view text, cursor.string(what, cursor.left()));
        value.strings.push_back(text);
      }
      return value;
    }
  }
  const auto size = static_cast<std::uint64_t>(value.count * scalar_bytes(value.element));
  WEFT_ASSIGN(const std::byte* at, cursor.take(size, what));
  value.bytes = {at, size};
  if (value.element == GgufType::kBool) {
    for (const std::byte b : value.bytes) {
      if (b > std::byte{1}) {
        return fail(ErrorCode::kCorrupt, "{}: '{}' holds a boolean that is neither 0 nor 1", file,
                    key);
      }
    }
  }
  return value;
}

Result<GgufTensor> read_tensor(Cursor& cursor, const std::string& file, std::uint64_t index) {
  GgufTensor tensor;
  WEFT_ASSIGN(const std::string_view name,
              cursor.string(fmt::format("name of tensor {}", index), kMaxTensorName));
  tensor.name = name;
  const std::string what = fmt::format("entry of tensor '{}'", name);
  WEFT_ASSIGN(const auto dimensions, cursor.value<std::uint32_t>(what));
  if (dimensions > kMaxDimensions) {
    return fail(ErrorCode::kCorrupt, "{}: tensor '{}' has {} dimensions; the format allows {}",
                file, name, dimensions, kMaxDimensions);
  }
  std::vector<std::int64_t> shape;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    WEFT_ASSIGN(const auto size, cursor.value<std::uint64_t>(what));
    if (size == 0 || size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return fail(ErrorCode::kCorrupt, "{}: tensor '{}' has a dimension of {}", file, name, size);
    }
    const auto extent = static_cast<std::int64_t>(size);
    if (d == 0) {
      columns = extent;
    } else if (__builtin_mul_overflow(rows, extent, &rows)) {
      return fail(ErrorCode::kCorrupt, "{}: the size of tensor '{}' overflows", file, name);
    }
    shape.insert(shape.begin(), extent);
  }
  WEFT_ASSIGN(const auto type, cursor.value<std::uint32_t>(what));
  const auto dtype = dtype_from_ggml(type);
  if (!dtype) {
    return fail(
        ErrorCode::kUnsupported,
        "{}: tensor '{}' has element type {}, which Weft does not read; convert the file to F32, "
        "F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K or Q6_K",
        file, name, ggml_type_name(type));
  }
  WEFT_ASSIGN(const auto offset, cursor.value<std::uint64_t>(what));
  if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return fail(ErrorCode::kCorrupt, "{}: tensor '{}' has the offset {}, past any file", file, name,
                offset);
  }
  if (auto size = tensor_bytes(*dtype, rows, columns); !size) {
    return fail(ErrorCode::kCorrupt, "{}: tensor '{}': {}", file, name, size.error().message);
  }
  tensor.view = {nullptr, *dtype, std::move(shape)};
  tensor.offset = static_cast<std::int64_t>(offset);
  return tensor;
}

}  // namespace

std::string_view to_string(GgufType type) {
  constexpr std::array<std::string_view, 13> names = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                      "i32", "f32", "bool", "string", "array",
                                                      "u64", "i64", "f64"};
  const auto index = static_cast<std::size_t>(type);
  return index < names.size() ? names[index] : "unknown";
}

std::optional<std::uint32_t> ggml_type(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kI8:
      return 24;
    case DType::kI16:
      return 25;
    case DType::kI32:
      return 26;
    case DType::kI64:
      return 27;
    case DType::kF64:
      return 28;
    case DType::kBF16:
      return 30;
    default:
      return std::nullopt;
  }
}

std::optional<DType> dtype_from_ggml(std::uint32_t type) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kI8, DType::kI16,
                            DType::kI32, DType::kI64, DType::kF64, DType::kBF16}) {
    if (ggml_type(dtype) == type) return dtype;
  }
  return std::nullopt;
}

std::string ggml_type_name(std::uint32_t type) {
  // ggml.h, enum ggml_type; empty names were removed from the format.
  constexpr std::array<std::string_view, 40> names = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
      "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};
  if (type < names.size() && !names[type].empty()) return std::string(names[type]);
  return fmt::format("{} (unknown to GGML)", type);
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::filesystem::path& path) {
  WEFT_ASSIGN(MappedFile map, MappedFile::open(path));
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->name_ = path.string();
  file->map_ = std::move(map);
  WEFT_TRY(file->parse_bytes(file->map_->bytes()));
  return file;
}

Result<std::shared_ptr<const GgufFile>> GgufFile::parse(std::span<const std::byte> bytes,
                                                        std::string name) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->name_ = std::move(name);
  WEFT_TRY(file->parse_bytes(bytes));
  return file;
}

Status GgufFile::parse_bytes(std::span<const std::byte> bytes) {
  Cursor cursor(bytes, name_);
  WEFT_ASSIGN(const std::byte* magic, cursor.take(4, "the magic number"));
  const std::string_view letters(reinterpret_cast<const char*>(magic), 4);
  if (letters != "GGUF") {
    if (letters == "FUGG") {
      return fail(ErrorCode::kUnsupported,
                  "{}: is a GGUF file with its bytes swapped; convert it first", name_);
    }
    return fail(ErrorCode::kCorrupt, "{}: does not begin with 'GGUF'; is it a GGUF file?", name_);
  }
  WEFT_ASSIGN(version_, cursor.value<std::uint32_t>("the version"));
  if (version_ != 2 && version_ != 3) {
    if ((version_ & 0xffffU) == 0 && version_ != 0) {
      return fail(ErrorCode::kUnsupported,
                  "{}: is a big-endian GGUF file; Weft reads little-endian ones", name_);
    }
    return fail(ErrorCode::kUnsupported, "{}: has GGUF version {}; Weft reads 2 and 3", name_,
                version_);
  }
  WEFT_ASSIGN(const auto tensors, cursor.value<std::uint64_t>("the number of tensors"));
  WEFT_ASSIGN(const auto pairs, cursor.value<std::uint64_t>("the number of metadata keys"));
  // The smallest entries: a key of 8 + 4 + 1 bytes, a tensor of 8 + 4 + 4 + 8.
  if (pairs > cursor.left() / 13 || tensors > cursor.left() / 24) {
    return fail(ErrorCode::kCorrupt,
                "{}: claims {} tensors and {} keys, more than {} bytes can hold", name_, tensors,
                pairs, bytes.size());
  }
  for (std::uint64_t i = 0; i < pairs; ++i) {
    WEFT_ASSIGN(const std::string_view key,
                cursor.string(fmt::format("metadata key {}", i), kMaxKey));
    WEFT_ASSIGN(GgufValue value, read_value(cursor, name_, key));
    if (!values_.emplace(key, std::move(value)).second) {
      return fail(ErrorCode::kCorrupt, "{}: the key '{}' appears twice", name_, key);
    }
    keys_.emplace_back(key);
  }
  WEFT_ASSIGN(alignment_, integer_or("general.alignment", 32));
  if (alignment_ <= 0 || alignment_ > (std::int64_t{1} << 30) ||
      (alignment_ & (alignment_ - 1)) != 0) {
    return fail(ErrorCode::kCorrupt, "{}: general.alignment is {}; it must be a power of two",
                name_, alignment_);
  }
  tensors_.reserve(tensors);
  for (std::uint64_t i = 0; i < tensors; ++i) {
    WEFT_ASSIGN(GgufTensor tensor, read_tensor(cursor, name_, i));
    tensors_.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      return fail(ErrorCode::kCorrupt, "{}: the tensor '{}' appears twice", name_,
                  tensors_[i].name);
    }
  }
  const auto align = static_cast<std::uint64_t>(alignment_);
  return check_layout(bytes, (cursor.position() + align - 1) / align * align);
}

// Turns offsets into pointers: every tensor aligned, inside the file, none over
// another.
Status GgufFile::check_layout(std::span<const std::byte> bytes, std::uint64_t data_start) {
  const std::uint64_t data_bytes = data_start < bytes.size() ? bytes.size() - data_start : 0;
  std::vector<GgufTensor*> order;
  for (GgufTensor& tensor : tensors_) {
    const auto offset = static_cast<std::uint64_t>(tensor.offset);
    const auto size = static_cast<std::uint64_t>(tensor.view.bytes());
    if (offset % static_cast<std::uint64_t>(alignment_) != 0) {
      return fail(ErrorCode::kCorrupt,
                  "{}: tensor '{}' is at offset {}, not a multiple of the alignment {}", name_,
                  tensor.name, offset, alignment_);
    }
    if (offset > data_bytes || size > data_bytes - offset) {
      return fail(ErrorCode::kCorrupt,
                  "{}: tensor '{}' takes {} bytes from offset {} of {} bytes of data; the file is "
                  "cut or damaged",
                  name_, tensor.name, size, offset, data_bytes);
    }
    tensor.offset = static_cast<std::int64_t>(data_start + offset);
    tensor.view.data = bytes.data() + tensor.offset;
    order.push_back(&tensor);
  }
  std::ranges::sort(order, {}, &GgufTensor::offset);
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->view.bytes() > order[i]->offset) {
      return fail(ErrorCode::kCorrupt, "{}: tensors '{}' and '{}' overlap", name_,
                  order[i - 1]->name, order[i]->name);
    }
  }
  return {};
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(std::string(key));
  return it == values_.end() ? nullptr : &it->second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<const GgufValue*> GgufFile::need(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    return fail(ErrorCode::kNotFound, "{}: has no metadata key '{}'", name_, key);
  }
  return value;
}

namespace {

std::unexpected<Error> wrong_type(const std::string& file, std::string_view key,
                                  const GgufValue& value, std::string_view wanted) {
  return fail(ErrorCode::kCorrupt, "{}: metadata key '{}' is {}{}, not {}", file, key,
              value.type == GgufType::kArray ? "an array of " : "", to_string(value.element),
              wanted);
}

}  // namespace

Result<std::string_view> GgufFile::text(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufType::kString) return wrong_type(name_, key, *value, "a string");
  return value->strings.front();
}

Result<std::int64_t> GgufFile::integer(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  std::int64_t out = 0;
  if (!is_integer(value->type) || !load_integer(value->type, value->bytes.data(), out)) {
    return wrong_type(name_, key, *value, "an integer of 63 bits");
  }
  return out;
}

Result<double> GgufFile::number(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  double out = 0;
  if (value->type == GgufType::kArray || !load_number(value->type, value->bytes.data(), out)) {
    return wrong_type(name_, key, *value, "a number");
  }
  return out;
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufType::kBool) return wrong_type(name_, key, *value, "a boolean");
  return value->bytes[0] != std::byte{0};
}

Result<std::span<const std::string_view>> GgufFile::texts(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return wrong_type(name_, key, *value, "an array of strings");
  }
  return std::span<const std::string_view>(value->strings);
}

Result<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufType::kArray || !is_integer(value->element)) {
    return wrong_type(name_, key, *value, "an array of integers");
  }
  std::vector<std::int64_t> out(static_cast<std::size_t>(value->count));
  const auto step = static_cast<std::size_t>(scalar_bytes(value->element));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!load_integer(value->element, value->bytes.data() + i * step, out[i])) {
      return fail(ErrorCode::kCorrupt, "{}: element {} of '{}' does not fit 63 bits", name_, i,
                  key);
    }
  }
  return out;
}

Result<std::vector<float>> GgufFile::numbers(std::string_view key) const {
  WEFT_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufType::kArray || scalar_bytes(value->element) == 0 ||
      value->element == GgufType::kBool) {
    return wrong_type(name_, key, *value, "an array of numbers");
  }
  std::vector<float> out(static_cast<std::size_t>(value->count));
  const auto step = static_cast<std::size_t>(scalar_bytes(value->element));
  for (std::size_t i = 0; i < out.size(); ++i) {
    double number = 0;
    load_number(value->element, value->bytes.data() + i * step, number);
    out[i] = static_cast<float>(number);
  }
  return out;
}

Result<std::string_view> GgufFile::text_or(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return fallback;
  return text(key);
}
Result<std::int64_t> GgufFile::integer_or(std::string_view key, std::int64_t fallback) const {
  if (!has(key)) return fallback;
  return integer(key);
}
Result<double> GgufFile::number_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  return number(key);
}
Result<bool> GgufFile::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return boolean(key);
}

}  // namespace weft::model
