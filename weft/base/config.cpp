#include "weft/base/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "weft/base/file.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

// What the variable behind a target holds, by value.
using ConfigValue =
    std::variant<bool, int, std::int64_t, float, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Shortest text that reads back to the same value, and as a float.
template <class T>
std::string toml_float(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

template <class T>
std::string toml_value(const T& value) {
  if constexpr (kIsList<T>) {
    std::string list = "[";
    for (std::size_t i = 0; i < value.size(); ++i) {
      list += (i == 0 ? "" : ", ") + toml_value(value[i]);
    }
    return list + "]";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return toml_string(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return toml_float(value);
  } else {
    return fmt::format("{}", value);
  }
}

// The node as its file has it, cut to one short line.
std::string describe(const toml::node& node) {
  if (node.is_table()) return "a table";
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  std::string text = out.str();
  if (node.is_string()) text = toml_string(*node.value<std::string>());
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

}  // namespace

// One reading of a file: values to set and mistakes found.
struct ConfigReading {
  struct Mistake {
    std::uint32_t line;
    std::uint32_t column;
    std::string text;
  };
  std::string_view name;
  std::vector<Mistake> mistakes;
  std::vector<std::pair<ConfigField*, ConfigValue>> values;

  static std::string expected(const ConfigField& field, bool list, std::string_view plain) {
    std::string text(plain);
    if (!field.choices_.empty()) {
      text = "one of ";
      for (std::size_t i = 0; i < field.choices_.size(); ++i) {
        text += (i == 0 ? "" : ", ") + toml_string(field.choices_[i]);
      }
    }
    if (field.range_) {
      const auto [low, high] = *field.range_;
      if (std::isinf(high)) {
        text += fmt::format(" of at least {}", number_text(low));
      } else if (std::isinf(low)) {
        text += fmt::format(" of at most {}", number_text(high));
      } else {
        text += fmt::format(" from {} to {}", number_text(low), number_text(high));
      }
    }
    return list ? "a list, each element " + text : text;
  }

  static bool in_range(const ConfigField& field, double value) {
    return !field.range_ || (value >= field.range_->first && value <= field.range_->second);
  }

  // The value of `node` as a T that `field` accepts, or nothing.
  template <class T>
  static std::optional<T> scalar(const ConfigField& field, const toml::node& node) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!node.is_boolean()) return std::nullopt;
      return *node.value<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!node.is_string()) return std::nullopt;
      const std::string text = *node.value<std::string>();
      const auto& choices = field.choices_;
      if (!choices.empty() && std::ranges::find(choices, text) == choices.end()) {
        return std::nullopt;
      }
      return text;
    } else if constexpr (std::is_integral_v<T>) {
      if (!node.is_integer()) return std::nullopt;
      const std::int64_t number = *node.value<std::int64_t>();
      if (!std::in_range<T>(number) || !in_range(field, static_cast<double>(number))) {
        return std::nullopt;
      }
      return static_cast<T>(number);
    } else {
      if (!node.is_number()) return std::nullopt;
      const double number = *node.value<double>();
      if (!in_range(field, number)) return std::nullopt;
      if (std::isfinite(number) && std::abs(number) > std::numeric_limits<T>::max()) {
        return std::nullopt;
      }
      return static_cast<T>(number);
    }
  }

  template <class T>
  static constexpr std::string_view plain_name() {
    if constexpr (std::is_same_v<T, bool>) {
      return "true or false";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return "a string";
    } else if constexpr (std::is_integral_v<T>) {
      return "an integer";
    } else {
      return "a number";
    }
  }

  // Puts the value of `node` aside for `field`, or says what was expected.
  template <class T>
  std::optional<std::string> take(ConfigField& field, const toml::node& node) {
    if constexpr (kIsList<T>) {
      using Element = typename T::value_type;
      T list;
      const toml::array* array = node.as_array();
      bool good = array != nullptr;
      for (std::size_t i = 0; good && i < array->size(); ++i) {
        if (auto element = scalar<Element>(field, *array->get(i))) {
          list.push_back(std::move(*element));
        } else {
          good = false;
        }
      }
      if (!good) return expected(field, true, plain_name<Element>());
      values.emplace_back(&field, std::move(list));
    } else {
      auto value = scalar<T>(field, node);
      if (!value) return expected(field, false, plain_name<T>());
      values.emplace_back(&field, std::move(*value));
    }
    return std::nullopt;
  }

  // Sets `field` from `node`, or notes the mistake at the place of `node`.
  void set(ConfigField& field, const toml::node& node, std::string_view where) {
    const auto wanted =
        std::visit([&]<class T>(T*) { return take<T>(field, node); }, field.target_);
    if (!wanted) return;
    note(node, where, fmt::format("{}: expected {}, got {}", field.name_, *wanted, describe(node)));
  }

  void note(const toml::node& node, std::string_view where, std::string text) {
    const toml::source_position begin = node.source().begin;
    if (where.empty()) {
      mistakes.push_back({begin.line, begin.column,
                          fmt::format("{}:{}:{}: {}", name, begin.line, begin.column, text)});
    } else {  // the command line comes last
      mistakes.push_back(
          {std::numeric_limits<std::uint32_t>::max(), 0, fmt::format("{}: {}", where, text)});
    }
  }
};

ConfigField& ConfigField::range(double low, double high) {
  WEFT_CHECK(low <= high, "{}: range from {} to {}", name_, low, high);
  range_ = {low, high};
  return *this;
}

ConfigField& ConfigField::choices(std::vector<std::string> values) {
  choices_ = std::move(values);
  return *this;
}

ConfigField& ConfigField::required() {
  required_ = true;
  return *this;
}

ConfigField& ConfigField::help(std::string text) {
  help_ = std::move(text);
  return *this;
}

ConfigField& ConfigSchema::field(std::string name, ConfigTarget target) {
  for (const ConfigField& other : fields_) {
    WEFT_CHECK(other.name_ != name, "the field {} is declared twice", name);
  }
  return fields_.emplace_back(std::move(name), target);
}

Status ConfigSchema::read_text(std::string_view text, std::string_view name,
                               std::span<const std::string> overrides) {
  ConfigReading reading{.name = name, .mistakes = {}, .values = {}};
  std::vector<std::string> names;
  for (const ConfigField& field : fields_) names.push_back(field.name_);
  const auto find = [&](std::string_view key) -> ConfigField* {
    const auto it = std::ranges::find(fields_, key, &ConfigField::name_);
    return it == fields_.end() ? nullptr : &*it;
  };
  const auto unknown = [&](std::string_view key) {
    const std::string nearest = nearest_name(key, names);
    return nearest.empty() ? fmt::format("unknown key {}", key)
                           : fmt::format("unknown key {}; did you mean {}?", key, nearest);
  };
  // Fields that the file or an override mentions, rightly or wrongly.
  std::vector<const ConfigField*> mentioned;

  toml::table root;
  try {
    root = toml::parse(text, std::string_view());
  } catch (const toml::parse_error& error) {
    const auto begin = error.source().begin;
    return fail(ErrorCode::kInvalidArgument, "{}:{}:{}: {}", name, begin.line, begin.column,
                error.description());
  }
  const auto walk = [&](const auto& self, const toml::table& table,
                        const std::string& prefix) -> void {
    for (const auto& [key, node] : table) {
      const std::string dotted = prefix + std::string(key.str());
      if (ConfigField* field = find(dotted)) {
        mentioned.push_back(field);
        reading.set(*field, node, "");
      } else if (node.is_table() && !node.as_table()->empty()) {
        self(self, *node.as_table(), dotted + ".");
      } else {
        const bool known_table = std::ranges::any_of(
            names, [&](const std::string& full) { return full.starts_with(dotted + "."); });
        if (!(node.is_table() && known_table)) {
          const auto at = key.source().begin;
          reading.mistakes.push_back(
              {at.line, at.column,
               fmt::format("{}:{}:{}: {}", name, at.line, at.column, unknown(dotted))});
        }
      }
    }
  };
  walk(walk, root, "");

  for (const std::string& override_text : overrides) {
    const auto equals = override_text.find('=');
    const std::string where = fmt::format("command line \"{}\"", override_text);
    if (equals == std::string::npos) {
      reading.mistakes.push_back(
          {std::numeric_limits<std::uint32_t>::max(), 0, where + ": expected key=value"});
      continue;
    }
    const std::string_view raw = std::string_view(override_text).substr(equals + 1);
    ConfigField* field = find(std::string_view(override_text).substr(0, equals));
    if (field == nullptr) {
      reading.mistakes.push_back(
          {std::numeric_limits<std::uint32_t>::max(), 0,
           fmt::format("{}: {}", where, unknown(override_text.substr(0, equals)))});
      continue;
    }
    mentioned.push_back(field);
    toml::table parsed;
    try {
      parsed = toml::parse("v = " + std::string(raw));
    } catch (const toml::parse_error&) {
      parsed.clear();  // a bare word
    }
    const bool wants_string = std::holds_alternative<std::string*>(field->target_);
    const toml::node* node = parsed.get("v");
    if (node == nullptr || parsed.size() != 1 || (wants_string && !node->is_string())) {
      parsed = toml::table{{"v", raw}};
      node = parsed.get("v");
    }
    reading.set(*field, *node, where);
  }

  for (const ConfigField& field : fields_) {
    if (field.required_ && std::ranges::find(mentioned, &field) == mentioned.end()) {
      reading.mistakes.push_back(
          {std::numeric_limits<std::uint32_t>::max(), 0,
           fmt::format("{}: {} is missing{}", name, field.name_,
                       field.help_.empty() ? "" : " (" + field.help_ + ")")});
    }
  }
  if (!reading.mistakes.empty()) {
    std::ranges::stable_sort(reading.mistakes, {}, [](const ConfigReading::Mistake& mistake) {
      return std::pair(mistake.line, mistake.column);
    });
    std::string all;
    for (const auto& mistake : reading.mistakes) all += (all.empty() ? "" : "\n") + mistake.text;
    return std::unexpected(Error{ErrorCode::kInvalidArgument, std::move(all)});
  }
  for (auto& [field, value] : reading.values) {  // overrides come later and win
    std::visit([&]<class T>(T* target) { *target = std::get<T>(std::move(value)); },
               field->target_);
  }
  return {};
}

Status ConfigSchema::read_file(const std::filesystem::path& path,
                               std::span<const std::string> overrides) {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  WEFT_ASSIGN(const std::string text, weft::read_file(path, kMaxBytes));
  return read_text(text, path.string(), overrides);
}

std::string ConfigSchema::dump() const {
  const auto table_of = [](const ConfigField& field) {
    const auto dot = field.name_.rfind('.');
    return dot == std::string::npos ? std::string() : field.name_.substr(0, dot);
  };
  std::vector<std::string> tables = {""};
  for (const ConfigField& field : fields_) {
    if (std::ranges::find(tables, table_of(field)) == tables.end()) {
      tables.push_back(table_of(field));
    }
  }
  std::string text;
  for (const std::string& table : tables) {
    if (!table.empty()) text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table);
    for (const ConfigField& field : fields_) {
      if (table_of(field) != table) continue;
      const std::string key = field.name_.substr(table.empty() ? 0 : table.size() + 1);
      const std::string value =
          std::visit([](const auto* target) { return toml_value(*target); }, field.target_);
      text +=
          fmt::format("{} = {}{}{}\n", key, value, field.help_.empty() ? "" : "  # ", field.help_);
    }
  }
  return text;
}

}  // namespace weft
