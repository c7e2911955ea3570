#include "weft/serve/constrain/schema_merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace weft::serve::constrain {

namespace {

constexpr int kMaxFollowed = 64;
constexpr std::size_t kMaxCross = 256;  // alternatives of two anyOf together

std::unexpected<Error> unsupported(std::string_view path, std::string_view what) {
  return fail(ErrorCode::kUnsupported, "schema {}: {}", path, what);
}
std::unexpected<Error> invalid(std::string_view path, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, "schema {}: {}", path, what);
}

Json both(const Json& a, const Json& b) {
  if (a == b || says_nothing(b)) return a;
  if (says_nothing(a)) return b;
  Json out = Json::object();
  out["allOf"] = Json::array({a, b});
  return out;
}

std::int64_t count_values(const Json& value) {
  std::int64_t out = 1;
  if (value.is_structured()) {
    for (const auto& each : value) out += count_values(each);
  }
  return out;
}

std::string unescaped(std::string_view part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '%' && i + 2 < part.size() &&
        std::isxdigit(static_cast<unsigned char>(part[i + 1])) != 0 &&
        std::isxdigit(static_cast<unsigned char>(part[i + 2])) != 0) {
      out += static_cast<char>(std::stoi(std::string(part.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else if (part.substr(i, 2) == "~1") {
      out += '/';
      ++i;
    } else if (part.substr(i, 2) == "~0") {
      out += '~';
      ++i;
    } else {
      out += part[i];
    }
  }
  return out;
}

// Merges one schema into another, keyword by keyword.
class Merger {
 public:
  Merger(Json& into, std::string_view path) : into_(into), path_(path) {}

  // False: nothing fulfils both.
  Result<bool> add(const Json& other) {
    if (into_.contains("patternProperties") || other.contains("patternProperties")) {
      for (const char* key : {"additionalProperties", "properties", "patternProperties"}) {
        const bool here = into_.contains(key), there = other.contains(key);
        if (here && there && into_[key] != other[key]) {
          return unsupported(path_, "schemas with patternProperties cannot be merged");
        }
        if (std::string_view(key) == "additionalProperties" && here != there &&
            (into_.contains("properties") || other.contains("properties"))) {
          return unsupported(path_, "schemas with patternProperties cannot be merged");
        }
      }
    }
    WEFT_TRY(spread_additional(other));
    for (const auto& [key, value] : other.items()) {
      if (is_annotation(key)) continue;
      if (!into_.contains(key)) {
        into_[key] = value;
        continue;
      }
      if (into_[key] == value) continue;
      WEFT_ASSIGN(const bool possible, add_keyword(key, value));
      if (!possible) return false;
    }
    return true;
  }

 private:
  // additionalProperties counts for the properties that its own schema does not name.
  Status spread_additional(const Json& other) {
    if (into_.contains("patternProperties") || other.contains("patternProperties")) return {};
    const Json mine = into_.value("properties", Json::object());
    const Json theirs = other.value("properties", Json::object());
    if (!mine.is_object() || !theirs.is_object()) return {};
    const auto spread = [&](const Json& from, const Json& named, const Json& rest, Json& to) {
      const Json* additional = json_find(from, "additionalProperties");
      if (additional == nullptr || says_nothing(*additional)) return;
      for (const auto& [name, schema] : rest.items()) {
        if (!named.contains(name)) to[name] = both(schema, *additional);
      }
    };
    Json merged = mine;
    spread(other, theirs, mine, merged);
    Json extra = theirs;
    spread(into_, mine, theirs, extra);
    for (const auto& [name, schema] : extra.items()) {
      merged[name] = merged.contains(name) ? both(merged[name], schema) : schema;
    }
    if (!merged.empty()) into_["properties"] = std::move(merged);
    return {};
  }

  Result<bool> add_keyword(const std::string& key, const Json& value) {
    Json& mine = into_[key];
    static const std::set<std::string> kLeast = {"maximum", "exclusiveMaximum", "maxLength",
                                                 "maxItems", "maxProperties"};
    static const std::set<std::string> kMost = {"minimum", "exclusiveMinimum", "minLength",
                                                "minItems", "minProperties"};
    if (kLeast.contains(key) || kMost.contains(key)) {
      if (!mine.is_number() || !value.is_number()) return invalid(path_, key + " must be a number");
      const bool less = value.get<double>() < mine.get<double>();
      if (less == kLeast.contains(key)) mine = value;
      return true;
    }
    if (key == "type") return add_type(mine, value);
    if (key == "properties") return true;  // done by spread_additional
    if (key == "required") {
      if (!mine.is_array() || !value.is_array()) return invalid(path_, "required must be an array");
      for (const auto& name : value) {
        if (std::ranges::find(mine, name) == mine.end()) mine.push_back(name);
      }
      return true;
    }
    if (key == "const") return false;  // they differ
    if (key == "enum") {
      if (!mine.is_array() || !value.is_array()) return invalid(path_, "enum must be an array");
      Json shared = Json::array();
      for (const auto& each : mine) {
        if (std::ranges::find(value, each) != value.end()) shared.push_back(each);
      }
      mine = shared;
      return !shared.empty();
    }
    if (key == "pattern" || key == kPatterns) {
      Json& list = into_[kPatterns];
      if (!list.is_array()) list = Json::array();
      if (value.is_array()) {
        for (const auto& each : value) list.push_back(each);
      } else {
        list.push_back(value);
      }
      return true;
    }
    if (key == "additionalProperties" || key == "propertyNames") {
      mine = both(mine, value);
      return true;
    }
    if (key == "items") {
      if (into_.contains("prefixItems")) {
        return unsupported(path_, "two items beside prefixItems cannot be merged");
      }
      mine = both(mine, value);
      return true;
    }
    if (key == "uniqueItems") {
      mine = true;
      return true;
    }
    if (key == "multipleOf") {
      if (!mine.is_number_integer() || !value.is_number_integer() || mine < 1 || value < 1 ||
          mine > 10'000 || value > 10'000) {
        return unsupported(path_, "two multipleOf that are not integers up to 10000");
      }
      mine = std::lcm(mine.get<std::int64_t>(), value.get<std::int64_t>());
      return true;
    }
    if (key == "anyOf") {
      if (!mine.is_array() || !value.is_array() || mine.size() * value.size() > kMaxCross) {
        return unsupported(path_, "two anyOf with too many combinations");
      }
      Json cross = Json::array();
      for (const auto& a : mine) {
        for (const auto& b : value) cross.push_back(both(a, b));
      }
      mine = std::move(cross);
      return true;
    }
    return unsupported(path_, fmt::format("two different '{}' cannot be merged", key));
  }

  Result<bool> add_type(Json& mine, const Json& value) {
    const Json a = mine.is_array() ? mine : Json::array({mine});
    const Json b = value.is_array() ? value : Json::array({value});
    Json out = Json::array();
    const auto has = [](const Json& list, std::string_view name) {
      return std::ranges::any_of(list, [&](const Json& each) { return each == name; });
    };
    for (const auto& each : a) {
      if (has(b, each.is_string() ? each.get_ref<const std::string&>() : "") ||
          (each == "integer" && has(b, "number"))) {
        out.push_back(each);
      } else if (each == "number" && has(b, "integer")) {
        out.push_back("integer");
      }
    }
    mine = out;
    return !out.empty();
  }

  Json& into_;
  std::string_view path_;
};

}  // namespace

bool is_annotation(std::string_view keyword) {
  static constexpr std::array<std::string_view, 18> kNames = {"title",
                                                              "description",
                                                              "default",
                                                              "examples",
                                                              "$comment",
                                                              "deprecated",
                                                              "readOnly",
                                                              "writeOnly",
                                                              "$schema",
                                                              "$id",
                                                              "id",
                                                              "$defs",
                                                              "definitions",
                                                              "$anchor",
                                                              "$vocabulary",
                                                              "contentEncoding",
                                                              "contentMediaType",
                                                              "contentSchema"};
  return std::ranges::find(kNames, keyword) != kNames.end();
}

bool says_nothing(const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) return false;
  return std::ranges::all_of(schema.items(),
                             [](const auto& item) { return is_annotation(item.key()); });
}

Result<const Json*> resolve(const Json& root, const std::string& reference, std::string_view path) {
  if (reference != "#" && !reference.starts_with("#/")) {
    return unsupported(path, fmt::format("$ref '{}': only references into the same schema "
                                         "(\"#/$defs/name\") are followed",
                                         reference.substr(0, 200)));
  }
  const Json* at = &root;
  std::string_view rest = std::string_view(reference).substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string name = unescaped(rest.substr(0, end));
    rest.remove_prefix(end);
    const Json* next = nullptr;
    if (at->is_object() && at->contains(name)) {
      next = &(*at)[name];
    } else if (at->is_array() && !name.empty() && name.size() < 8 &&
               name.find_first_not_of("0123456789") == std::string::npos &&
               static_cast<std::size_t>(std::stol(name)) < at->size()) {
      next = &(*at)[static_cast<std::size_t>(std::stol(name))];
    }
    if (next == nullptr) {
      return fail(ErrorCode::kNotFound, "schema {}: $ref '{}' names nothing ('{}' is not there)",
                  path, reference.substr(0, 200), name.substr(0, 100));
    }
    at = next;
  }
  if (!at->is_object() && !at->is_boolean()) {
    return invalid(
        path, fmt::format("$ref '{}' names something that is no schema", reference.substr(0, 200)));
  }
  return at;
}

Result<Json> flattened(const Json& schema, const SchemaPlace& place) {
  if (place.depth > kMaxFollowed) {
    return fail(ErrorCode::kResourceExhausted,
                "schema {}: $ref and allOf lead on more than {} times, perhaps in a circle",
                place.path, kMaxFollowed);
  }
  if (schema.is_boolean()) return schema.get<bool>() ? Json(Json::object()) : Json(false);
  if (!schema.is_object()) {
    return invalid(place.path, "a schema must be an object, true or false");
  }
  if (!schema.contains("$ref") && !schema.contains("allOf")) return schema;
  *place.budget -= count_values(schema);
  if (*place.budget < 0) {
    return fail(ErrorCode::kResourceExhausted,
                "schema {}: its $ref and allOf together unfold to too much", place.path);
  }
  Json out = schema;
  out.erase("$ref");
  out.erase("allOf");
  std::vector<const Json*> parts;
  if (const Json* ref = json_find(schema, "$ref")) {
    if (!ref->is_string()) return invalid(place.path, "$ref must be a string");
    WEFT_ASSIGN(const Json* target, resolve(place.root, ref->get<std::string>(), place.path));
    parts.push_back(target);
  }
  if (const Json* all = json_find(schema, "allOf")) {
    if (!all->is_array() || all->empty()) {
      return invalid(place.path, "allOf must be an array that is not empty");
    }
    for (const auto& each : *all) parts.push_back(&each);
  }
  const SchemaPlace inner{place.root, place.path, place.budget, place.depth + 1};
  for (const Json* part : parts) {
    WEFT_ASSIGN(const Json flat, flattened(*part, inner));
    if (flat.is_boolean()) return Json(false);
    if (says_nothing(out)) {
      out = flat;
      continue;
    }
    WEFT_ASSIGN(const bool possible, Merger(out, place.path).add(flat));
    if (!possible) return Json(false);
  }
  return out;
}

unsigned type_of_value(const Json& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  if (value.is_string()) return kString;
  if (value.is_number_integer()) return kInteger;
  const double number = value.get<double>();
  return std::floor(number) == number ? kInteger : kFraction;
}

Result<unsigned> types_of(const Json& schema, std::string_view path) {
  const Json* type = json_find(schema, "type");
  if (type == nullptr) return static_cast<unsigned>(kAllTypes);
  const Json list = type->is_array() ? *type : Json::array({*type});
  unsigned out = 0;
  for (const auto& each : list) {
    if (each == "null") {
      out |= kNull;
    } else if (each == "boolean") {
      out |= kBoolean;
    } else if (each == "object") {
      out |= kObject;
    } else if (each == "array") {
      out |= kArray;
    } else if (each == "string") {
      out |= kString;
    } else if (each == "integer") {
      out |= kInteger;
    } else if (each == "number") {
      out |= kInteger | kFraction;
    } else {
      return invalid(fmt::format("{}/type", path),
                     fmt::format("{} is no type", dump_json(each).substr(0, 60)));
    }
  }
  if (out == 0) return invalid(fmt::format("{}/type", path), "names no type");
  return out;
}

unsigned spoken_types(const Json& schema) {
  static const std::map<std::string_view, unsigned> kSpeaksOf = {
      {"properties", kObject},
      {"required", kObject},
      {"additionalProperties", kObject},
      {"patternProperties", kObject},
      {"propertyNames", kObject},
      {"minProperties", kObject},
      {"maxProperties", kObject},
      {"items", kArray},
      {"prefixItems", kArray},
      {"minItems", kArray},
      {"maxItems", kArray},
      {"uniqueItems", kArray},
      {"minLength", kString},
      {"maxLength", kString},
      {"pattern", kString},
      {kPatterns, kString},
      {"format", kString},
      {"minimum", kInteger | kFraction},
      {"maximum", kInteger | kFraction},
      {"exclusiveMinimum", kInteger | kFraction},
      {"exclusiveMaximum", kInteger | kFraction},
      {"multipleOf", kInteger | kFraction}};
  unsigned out = 0;
  for (const auto& [key, value] : schema.items()) {
    if (const auto at = kSpeaksOf.find(key); at != kSpeaksOf.end()) out |= at->second;
  }
  return out;
}

bool disjoint(const Json& a, const Json& b, const SchemaPlace& place) {
  if (a.is_boolean() || b.is_boolean()) {
    return (a.is_boolean() && !a.get<bool>()) || (b.is_boolean() && !b.get<bool>());
  }
  const auto values = [](const Json& s) -> Json {
    if (s.contains("const")) return Json::array({s["const"]});
    const Json* list = json_find(s, "enum");
    return list != nullptr && list->is_array() ? *list : Json();
  };
  const Json va = values(a), vb = values(b);
  // What it accepts, and the part of it that replies are made of.
  const auto accepted = [&](const Json& s, const Json& v) -> unsigned {
    const unsigned all = types_of(s, place.path).value_or(kAllTypes);
    if (!v.is_array()) return all;
    unsigned seen = 0;
    for (const auto& each : v) seen |= type_of_value(each);
    return all & seen;
  };
  const auto made = [&](const Json& s, const Json& v) -> unsigned {
    const unsigned spoken = spoken_types(s);
    const bool free = s.contains("type") || s.contains("anyOf") || s.contains("oneOf");
    return free || v.is_array() || spoken == 0 ? accepted(s, v) : spoken;
  };
  const unsigned shared = (made(a, va) & accepted(b, vb)) | (accepted(a, va) & made(b, vb));
  if (shared == 0) return true;
  if (va.is_array() && vb.is_array()) {
    return std::ranges::none_of(
        va, [&](const Json& each) { return std::ranges::find(vb, each) != vb.end(); });
  }
  const auto number = [](const Json& s, const char* key) -> std::optional<double> {
    const Json* value = json_find(s, key);
    return value != nullptr && value->is_number() ? std::optional(value->get<double>())
                                                  : std::nullopt;
  };
  const auto below = [&](const Json& x, const Json& y, const char* most, const char* least) {
    const auto high = number(x, most), low = number(y, least);
    return high && low && *high < *low;
  };
  const auto apart = [&](const char* most, const char* least) {
    return below(a, b, most, least) || below(b, a, most, least);
  };
  if ((shared & ~static_cast<unsigned>(kInteger | kFraction)) == 0) {
    return apart("maximum", "minimum") || apart("exclusiveMaximum", "minimum") ||
           apart("maximum", "exclusiveMinimum");
  }
  if (shared == kString) return apart("maxLength", "minLength");
  if (shared == kArray) return apart("maxItems", "minItems");
  if (shared != kObject || place.depth > 2) return false;
  if (apart("maxProperties", "minProperties")) return true;
  const auto required = [](const Json& s, const std::string& name) {
    const Json* list = json_find(s, "required");
    return list != nullptr && list->is_array() &&
           std::ranges::find(*list, Json(name)) != list->end();
  };
  const Json* pa = json_find(a, "properties");
  const Json* pb = json_find(b, "properties");
  if (pa == nullptr || pb == nullptr || !pa->is_object() || !pb->is_object()) return false;
  for (const auto& [name, schema] : pa->items()) {
    if (!pb->contains(name) || !required(a, name) || !required(b, name)) continue;
    const SchemaPlace inner{place.root, place.path, place.budget, place.depth + 1};
    const auto x = flattened(schema, inner), y = flattened((*pb)[name], inner);
    if (x && y && disjoint(*x, *y, inner)) return true;
  }
  return false;
}

}  // namespace weft::serve::constrain
