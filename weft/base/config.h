// Configuration: a TOML file read into declared, typed fields.
//
//   TrainConfig config;                       // plain struct with defaults
//   ConfigSchema schema;
//   schema.field("train.steps", &config.steps).range(1, 1e9).help("optimizer steps");
//   schema.field("train.schedule", &config.schedule).choices({"constant", "cosine"});
//   schema.field("model.path", &config.model).required();
//   WEFT_TRY(schema.read_file("run.toml", overrides));   // {"train.steps=20"}
//   schema.dump()                             // the effective configuration, as TOML
//
// An error says where, which key, what was expected and what was there:
//   run.toml:3:9: train.steps: expected an integer from 1 to 1000000000, got "ten"
//   run.toml:4:1: unknown key train.stpes; did you mean train.steps?
// All errors of a file are reported together, a line each, and then no field
// has changed.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "weft/base/result.h"

namespace weft {

// Where a field's value goes. The variable must outlive the schema's last use.
using ConfigTarget =
    std::variant<bool*, int*, std::int64_t*, float*, double*, std::string*,
                 std::vector<std::int64_t>*, std::vector<double>*, std::vector<std::string>*>;

// What a field accepts; for a list, what each of its elements is.
class ConfigField {
 public:
  ConfigField(std::string name, ConfigTarget target) : name_(std::move(name)), target_(target) {}

  ConfigField& range(double low, double high);  // both ends included
  ConfigField& choices(std::vector<std::string> values);
  ConfigField& required();
  ConfigField& help(std::string text);

  const std::string& name() const { return name_; }

 private:
  friend class ConfigSchema;
  friend struct ConfigReading;
  std::string name_;
  ConfigTarget target_;
  std::optional<std::pair<double, double>> range_;
  std::vector<std::string> choices_;
  std::string help_;
  bool required_ = false;
};

// The fields of one kind of file. Not for concurrent use.
class ConfigSchema {
 public:
  // Declares `name` ("table.key" or "key"), whose default is what `target` holds.
  ConfigField& field(std::string name, ConfigTarget target);
  template <class T>
    requires(!std::is_pointer_v<T>)
  ConfigField& field(std::string name, T& target) {
    return field(std::move(name), ConfigTarget(&target));
  }

  // Reads TOML text; `name` begins each error. `overrides` are "key=value" with
  // a TOML value (a bare word is taken as a string), and win over the file.
  // kInvalidArgument with one line for each mistake.
  Status read_text(std::string_view text, std::string_view name,
                   std::span<const std::string> overrides = {});
  Status read_file(const std::filesystem::path& path, std::span<const std::string> overrides = {});

  // All fields with the values they have now, with their help as comments; reads
  // back to the same values.
  std::string dump() const;

 private:
  std::deque<ConfigField> fields_;  // references stay valid
};

}  // namespace weft
