#include "weft/base/json.h"

#include <simdjson.h>

#include <cmath>
#include <limits>
#include <unordered_set>
#include <vector>

namespace weft {
namespace {

constexpr std::size_t kMaxDepth = 512;

std::unexpected<Error> too_deep(std::string_view name) {
  return fail(ErrorCode::kInvalidArgument, "{}: JSON nested deeper than {} levels", name,
              kMaxDepth);
}

std::unexpected<Error> duplicate(std::string_view name, std::string_view key) {
  return fail(ErrorCode::kInvalidArgument, "{}: the key \"{}\" occurs twice in one JSON object",
              name, key);
}

// Copies simdjson's tree, appending to objects without nlohmann's linear search
// for the key: vocabularies have 100,000 of them.
Status copy(const simdjson::dom::element& from, Json& to, std::string_view name,
            std::size_t depth) {
  using simdjson::dom::element_type;
  const bool container = from.is_array() || from.is_object();
  if (container && depth >= kMaxDepth) return too_deep(name);
  switch (from.type()) {
    case element_type::NULL_VALUE:
      to = nullptr;
      break;
    case element_type::BOOL:
      to = from.get_bool().value_unsafe();
      break;
    case element_type::INT64:
      to = from.get_int64().value_unsafe();
      break;
    case element_type::UINT64:
      to = from.get_uint64().value_unsafe();
      break;
    case element_type::DOUBLE:
      to = from.get_double().value_unsafe();
      break;
    case element_type::STRING:
      to = std::string(from.get_string().value_unsafe());
      break;
    case element_type::ARRAY: {
      to = Json::array();
      auto& values = to.get_ref<Json::array_t&>();
      const simdjson::dom::array elements = from.get_array().value_unsafe();
      for (const simdjson::dom::element value : elements) {
        values.emplace_back();
        WEFT_TRY(copy(value, values.back(), name, depth + 1));
      }
      break;
    }
    case element_type::OBJECT: {
      to = Json::object();
      std::vector<std::pair<const std::string, Json>>& members = to.get_ref<Json::object_t&>();
      std::unordered_set<std::string_view> seen;
      const simdjson::dom::object object = from.get_object().value_unsafe();
      for (const auto& [key, value] : object) {
        if (!seen.insert(key).second) return duplicate(name, key);
        members.emplace_back(std::string(key), Json());
        WEFT_TRY(copy(value, members.back().second, name, depth + 1));
      }
      break;
    }
  }
  return {};
}

// Builds the tree through nlohmann's parser, which knows where an error is and
// takes integers of any size. Only for documents that simdjson refused.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }

  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      error_ = duplicate(name_, value).error();
      return false;
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    std::string_view what = exception.what();
    // "[json.exception...] parse error at line 1, column 2: syntax error ..."
    if (const auto bracket = what.find("] "); bracket != what.npos) what.remove_prefix(bracket + 2);
    if (what.starts_with("parse error")) {
      if (const auto colon = what.find(": "); colon != what.npos) what.remove_prefix(colon + 2);
    }
    const std::string_view before = text_.substr(0, position == 0 ? 0 : position - 1);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto column = before.size() - (before.rfind('\n') + 1) + 1;
    error_ =
        Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}:{}: {}", name_, line, column, what)};
    return false;
  }

  Result<Json> finish(bool parsed) {
    if (parsed) return std::move(root_);
    return std::unexpected(std::move(error_));
  }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& values = parent.get_ref<Json::array_t&>();
      return &values.emplace_back(std::move(value));
    }
    std::vector<std::pair<const std::string, Json>>& members = parent.get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() >= kMaxDepth) {
      error_ = too_deep(name_).error();
      return false;
    }
    open_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view name_;
  Json root_;
  std::vector<Json*> open_;  // a parent does not grow while a child is open
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  Error error_;
};

std::string_view type_of(const Json& value) {
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "true or false";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

Result<std::int64_t> to_integer(const Json& value, std::string_view key) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return static_cast<std::int64_t>(number);
    }
  } else if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 0x1p63) {
      return static_cast<std::int64_t>(number);
    }
  } else {
    return fail(ErrorCode::kInvalidArgument, "\"{}\" must be an integer, not {}", key,
                type_of(value));
  }
  return fail(ErrorCode::kOutOfRange, "\"{}\" must be an integer of 64 bits, not {}", key,
              dump_json(value));
}

template <class T>
Result<T> convert(const Json& value, std::string_view key) {
  const auto mismatch = [&](std::string_view wanted) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\" must be {}, not {}", key, wanted,
                type_of(value));
  };
  if constexpr (std::is_same_v<T, const Json*>) {
    return &value;
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) return mismatch("a string");
    return value.get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) return mismatch("true or false");
    return value.get<bool>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) return mismatch("a number");
    return value.get<T>();
  } else {
    WEFT_ASSIGN(const std::int64_t number, to_integer(value, key));
    if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max()) {
      return fail(ErrorCode::kOutOfRange, "\"{}\" is {}, which is out of range", key, number);
    }
    return static_cast<T>(number);
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view name) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  // simdjson's own depth limit is 1,024; copy() applies ours.
  if (text.size() < simdjson::SIMDJSON_MAXSIZE_BYTES &&
      parser.parse(simdjson::padded_string(text)).get(root) == simdjson::SUCCESS) {
    Json json;
    WEFT_TRY(copy(root, json, name, 0));
    return json;
  }
  Builder builder(text, name);
  return builder.finish(Json::sax_parse(text.begin(), text.end(), &builder));
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* json_find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (name == key) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

template <class T>
Result<T> json_field(const Json& object, std::string_view key) {
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "expected an object with \"{}\", not {}", key,
                type_of(object));
  }
  const Json* value = json_find(object, key);
  if (value == nullptr) return fail(ErrorCode::kInvalidArgument, "\"{}\" is missing", key);
  return convert<T>(*value, key);
}

template <class T>
Result<T> json_field_or(const Json& object, std::string_view key, T fallback) {
  const Json* value = json_find(object, key);
  if (value == nullptr) return fallback;
  return convert<T>(*value, key);
}

#define WEFT_JSON_FIELD(T)                                         \
  template Result<T> json_field<T>(const Json&, std::string_view); \
  template Result<T> json_field_or<T>(const Json&, std::string_view, T)
WEFT_JSON_FIELD(std::string);
WEFT_JSON_FIELD(bool);
WEFT_JSON_FIELD(std::int64_t);
WEFT_JSON_FIELD(int);
WEFT_JSON_FIELD(double);
WEFT_JSON_FIELD(float);
WEFT_JSON_FIELD(const Json*);
#undef WEFT_JSON_FIELD

}  // namespace weft
