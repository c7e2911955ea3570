// Values of the template language: Python's, as far as templates can see them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/base/result.h"

namespace weft::model::jinja {

// Thrown inside the engine only; parse() and render() turn it into an Error.
struct Failure {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  std::size_t offset = kNoOffset;  // into the template's source
  bool by_template = false;        // raise_exception(): its own words, without a place
  static constexpr std::size_t kNoOffset = static_cast<std::size_t>(-1);
};

template <class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
[[noreturn]] void raise_unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{ErrorCode::kUnsupported, fmt::format(format, std::forward<Args>(args)...)};
}

// What one render may use, so that a hostile template ends with an error.
struct Budget {
  std::int64_t steps = 5'000'000;
  std::int64_t bytes = std::int64_t{256} << 20;  // of values made, over the whole render
  std::int64_t output_bytes = std::int64_t{64} << 20;

  void take_steps(std::int64_t count) {
    if ((steps -= count) < 0) {
      throw Failure{ErrorCode::kResourceExhausted, "the template takes more than 5,000,000 steps"};
    }
  }
  void take_bytes(std::int64_t count) {
    if (count < 0 || (bytes -= count) < 0) {
      throw Failure{ErrorCode::kResourceExhausted,
                    "the template makes more than 256 MiB of values"};
    }
  }
};

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,      // dict.keys(), .values(), .items()
  kIterator,  // what lazy filters give: can be walked once
  kNamespace,
  kLoop,
  kFunction,
};

using Int = __int128;  // Python's are unbounded; overflow is an error here

class Value;
struct Dict;
struct Sequence;
struct Function;
struct Loop;

// A value. Copies share what they point to; nothing that is shared is changed,
// except namespaces, loops and iterators.
class Value {
 public:
  Value() = default;
  static Value undefined(std::string hint);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(Int i);
  static Value real(double d);
  static Value string(std::string text);
  static Value sequence(Kind kind, std::vector<Value> items);  // list, tuple, view, iterator
  static Value dict(Dict entries);
  static Value object(Kind kind, std::shared_ptr<void> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const {  // bool is a number in Python
    return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat;
  }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_sequence() const {
    return kind_ >= Kind::kList && kind_ <= Kind::kIterator && kind_ != Kind::kDict;
  }

  const std::string& text() const { return *static_cast<const std::string*>(object_.get()); }
  Int as_int() const { return int_; }
  double as_double() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(int_); }
  const Sequence& seq() const { return *static_cast<const Sequence*>(object_.get()); }
  Sequence& mutable_seq() const { return *static_cast<Sequence*>(object_.get()); }
  const Dict& entries() const { return *static_cast<const Dict*>(object_.get()); }
  Dict& mutable_entries() const { return *static_cast<Dict*>(object_.get()); }
  const Function& function() const { return *static_cast<const Function*>(object_.get()); }
  Loop& loop() const { return *static_cast<Loop*>(object_.get()); }
  const void* identity() const { return object_.get(); }
  const std::string& hint() const;  // of an undefined value: the sentence to complain with

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  Int int_ = 0;
  double real_ = 0;
  std::shared_ptr<void> object_;
};

// Nesting is bounded so that walks and destructors can recurse.
inline constexpr int kMaxValueDepth = 600;

struct Sequence {
  std::vector<Value> items;
  int depth = 1;
  std::int64_t weight = 1;
  std::size_t consumed = 0;  // iterators
  std::string type_name;     // views and iterators: what Python calls them
};

// Keeps insertion order. Keys are strings, numbers, none or tuples.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, std::size_t> index;  // string keys
  int depth = 1;
  std::int64_t weight = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;
struct Function {
  std::string name;
  std::function<Value(Interpreter&, Arguments)> call;
};

struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
  std::int64_t depth0 = 0;
  Value last_changed;
  bool has_changed = false;
  std::function<Value(Interpreter&, const Value&)> recurse;  // empty unless `recursive`
};

// The work of a walk through a value: its nodes and characters, shared parts
// counted each time. Callers take it from the budget before they print, compare
// or serialise: a list that holds itself twice, forty levels deep, is small to make.
std::int64_t weight(const Value& value);

std::string type_name(const Value& value);  // "str", "NoneType", ...
bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
// <0, 0, >0; raises for values that Python does not order.
int compare(const Value& a, const Value& b, std::string_view operation);
std::string to_string(const Value& value);  // str()
std::string repr(const Value& value);
std::string format_int(Int value);
// The items that a for loop sees; walks an iterator to its end. Raises if not iterable.
std::vector<Value> iterate(const Value& value, Budget& budget);
// len(); raises where Python does.
std::int64_t length(const Value& value);
void require_hashable(const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace weft::model::jinja
