#include <algorithm>
#include <functional>

#include "weft/model/jinja_filters.h"
#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

Value lazy(Interpreter& in, std::vector<Value> items, const char* name = "generator") {
  Value out = in.list(std::move(items), Kind::kIterator);
  out.mutable_seq().type_name = name;
  return out;
}

// "a.b.0" or a number, as make_attrgetter reads it; none = the item itself.
Value get_path(Interpreter& in, Value item, const Value& path) {
  if (path.is(Kind::kNone) || path.is_undefined()) return item;
  if (!path.is_string()) return in.get_item(item, path);
  for (const auto& part : split(path.text(), ".", -1)) {
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    item = in.get_item(item, number ? Value::integer(std::stoll(part)) : Value::string(part));
  }
  return item;
}

Value fold_case(Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return Value::string(to_lower(value.text()));
}

Value length_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("length", std::move(arguments), {});
  in.budget().take_steps(value.is_string() ? weight(value) : 1);
  return Value::integer(length(value));
}

Value list_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("list", std::move(arguments), {});
  return in.list(iterate(value, in.budget()));
}

Value join_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("join", std::move(arguments), {"d", "attribute"});
  const std::string separator = p.has(0) ? to_string(p[0]) : "";
  std::string out;
  bool first = true;
  for (auto& item : iterate(value, in.budget())) {
    const Value shown = p.has(1) ? get_path(in, item, p[1]) : item;
    in.budget().take_steps(weight(shown));
    if (!std::exchange(first, false)) out += separator;
    out += to_string(shown);
    in.budget().take_bytes(static_cast<std::int64_t>(separator.size()));
  }
  return in.text(std::move(out));
}

Value first_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("first", std::move(arguments), {});
  if (value.is(Kind::kIterator)) {
    auto& sequence = value.mutable_seq();
    if (sequence.consumed < sequence.items.size()) return sequence.items[sequence.consumed++];
    return Value::undefined("no first item, the sequence is empty");
  }
  const auto items = iterate(value, in.budget());
  return items.empty() ? Value::undefined("no first item, the sequence is empty") : items.front();
}

Value last_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("last", std::move(arguments), {});
  if (value.is(Kind::kIterator)) raise("last needs a list; put '| list' before it");
  const auto items = iterate(value, in.budget());
  return items.empty() ? Value::undefined("no last item, the sequence is empty") : items.back();
}

Value reverse_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("reverse", std::move(arguments), {});
  if (value.is_string()) return in.text(slice_text(value.text(), std::nullopt, std::nullopt, -1));
  auto items = iterate(value, in.budget());
  std::reverse(items.begin(), items.end());
  return lazy(in, std::move(items), "list_reverseiterator");
}

Value items_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("items", std::move(arguments), {});
  std::vector<Value> out;
  if (!value.is_undefined()) {
    if (!value.is(Kind::kDict)) raise("items needs a dict, not a {}", type_name(value));
    for (const auto& [key, item] : value.entries().items)
      out.push_back(in.list({key, item}, Kind::kTuple));
  }
  return lazy(in, std::move(out));
}

Value dictsort(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  if (!value.is(Kind::kDict)) {
    if (value.is_undefined()) raise("{}", value.hint());
    raise("dictsort needs a dict, not a {}", type_name(value));
  }
  const std::string by = p.string(1, "key");
  if (by != "key" && by != "value") raise("dictsort(by) must be 'key' or 'value'");
  const bool sensitive = p.flag(0, false), reverse = p.flag(2, false);
  std::vector<std::pair<Value, Value>> order;  // sort key, (key, value)
  for (const auto& [key, item] : value.entries().items) {
    order.emplace_back(fold_case(by == "key" ? key : item, sensitive),
                       in.list({key, item}, Kind::kTuple));
  }
  in.budget().take_steps(static_cast<std::int64_t>(order.size()) * 8);
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first, "<") < 0 : compare(a.first, b.first, "<") < 0;
  });
  std::vector<Value> out;
  for (auto& entry : order) out.push_back(std::move(entry.second));
  return in.list(std::move(out));
}

Value sort_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  const bool reverse = p.flag(0, false), sensitive = p.flag(1, false);
  std::vector<std::pair<Value, Value>> order;
  for (auto& item : iterate(value, in.budget())) {
    std::vector<Value> keys;
    if (p[2].is_string()) {
      for (const auto& part : split(p[2].text(), ",", -1)) {
        keys.push_back(fold_case(get_path(in, item, Value::string(part)), sensitive));
      }
    } else {
      keys.push_back(fold_case(get_path(in, item, p[2]), sensitive));
    }
    in.budget().take_steps(16 + weight(keys[0]));
    order.emplace_back(in.list(std::move(keys)), std::move(item));
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first, "<") < 0 : compare(a.first, b.first, "<") < 0;
  });
  std::vector<Value> out;
  for (auto& entry : order) out.push_back(std::move(entry.second));
  return in.list(std::move(out));
}

Value unique(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("unique", std::move(arguments), {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> out;
  for (auto& item : iterate(value, in.budget())) {
    Value key = fold_case(get_path(in, item, p[1]), p.flag(0, false));
    require_hashable(key);
    in.budget().take_steps(key.is_string() ? 1 : static_cast<std::int64_t>(seen.items.size()) + 1);
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), Value::none());
    out.push_back(std::move(item));
  }
  return lazy(in, std::move(out));
}

template <bool kMax>
Value extreme(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p(kMax ? "max" : "min", std::move(arguments), {"case_sensitive", "attribute"});
  const auto items = iterate(value, in.budget());
  if (items.empty()) return Value::undefined("no aggregated item, the sequence is empty");
  const auto key = [&](const Value& item) {
    return fold_case(get_path(in, item, p[1]), p.flag(0, false));
  };
  std::size_t best = 0;
  Value best_key = key(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value each = key(items[i]);
    in.budget().take_steps(1 + std::min(weight(each), weight(best_key)));
    const int order = compare(each, best_key, kMax ? ">" : "<");
    if (kMax ? order > 0 : order < 0) {
      best = i;
      best_key = std::move(each);
    }
  }
  return items[best];
}

Value sum(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("sum", std::move(arguments), {"attribute", "start"});
  Value total = p.has(1) ? p[1] : Value::integer(0);
  if (total.is_string()) raise("sum(start) cannot be a string");
  for (const auto& item : iterate(value, in.budget())) {
    total = binary_operation(Operator::kAdd, total, get_path(in, item, p[0]), in.budget());
  }
  return total;
}

Value map_filter(Interpreter& in, const Value& value, Arguments arguments) {
  std::vector<Value> out;
  if (!truthy(value)) return lazy(in, {});
  auto items = iterate(value, in.budget());
  if (arguments.positional.empty()) {
    Parameters p("map", std::move(arguments), {"attribute", "default"});
    p.require(0);
    for (auto& item : items) {
      Value found = get_path(in, std::move(item), p[0]);
      out.push_back(found.is_undefined() && p.has(1) && !p[1].is(Kind::kNone) ? p[1]
                                                                              : std::move(found));
    }
    return lazy(in, std::move(out));
  }
  if (!arguments.positional[0].is_string()) raise("map() needs the name of a filter");
  const std::string name = arguments.positional[0].text();
  arguments.positional.erase(arguments.positional.begin());
  for (const auto& item : items) out.push_back(in.apply_filter(name, item, arguments));
  return lazy(in, std::move(out));
}

template <bool kKeep, bool kByAttribute>
Value select(Interpreter& in, const Value& value, Arguments arguments) {
  if (!truthy(value)) return lazy(in, {});
  auto& given = arguments.positional;
  Value path = Value::none();
  if (kByAttribute) {
    if (given.empty()) raise("selectattr() and rejectattr() need the name of an attribute");
    path = given.front();
    given.erase(given.begin());
  }
  std::string test;
  if (!given.empty()) {
    if (!given.front().is_string()) raise("select() needs the name of a test");
    test = given.front().text();
    given.erase(given.begin());
  }
  std::vector<Value> out;
  for (auto& item : iterate(value, in.budget())) {
    const Value subject = get_path(in, item, path);
    const bool holds = test.empty() ? truthy(subject) : in.apply_test(test, subject, arguments);
    if (holds == kKeep) out.push_back(std::move(item));
  }
  return lazy(in, std::move(out));
}

Value batch(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("batch", std::move(arguments), {"linecount", "fill_with"});
  const std::int64_t size = (p.require(0), p.integer(0, 1));
  if (size < 1) raise("batch(linecount) must be at least 1");
  std::vector<Value> out, row;
  for (auto& item : iterate(value, in.budget())) {
    if (static_cast<std::int64_t>(row.size()) == size)
      out.push_back(in.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (p.has(1) && !p[1].is(Kind::kNone)) {
      in.budget().take_bytes(std::min<std::int64_t>(size, std::int64_t{1} << 40) *
                             static_cast<std::int64_t>(sizeof(Value)));
      row.resize(static_cast<std::size_t>(size), p[1]);
    }
    out.push_back(in.list(std::move(row)));
  }
  return lazy(in, std::move(out));
}

Value slice_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("slice", std::move(arguments), {"slices", "fill_with"});
  const std::int64_t slices = (p.require(0), p.integer(0, 1));
  if (slices < 1) raise("slice(slices) must be at least 1");
  in.budget().take_bytes(std::min<std::int64_t>(slices, std::int64_t{1} << 40) * 256);
  const auto items = iterate(value, in.budget());
  const auto count = static_cast<std::int64_t>(items.size());
  std::vector<Value> out;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const std::int64_t size = count / slices + (i < count % slices ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + begin + size);
    begin += size;
    if (p.has(1) && !p[1].is(Kind::kNone) && i >= count % slices) part.push_back(p[1]);
    out.push_back(in.list(std::move(part)));
  }
  return lazy(in, std::move(out));
}

Value groupby(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"});
  const bool sensitive = p.flag(2, false);
  const auto key_of = [&](const Value& item) {
    Value key = get_path(in, item, p.require(0));
    return key.is_undefined() && p.has(1) ? p[1] : key;
  };
  std::vector<std::pair<Value, Value>> order;
  for (auto& item : iterate(value, in.budget())) {
    Value key = fold_case(key_of(item), sensitive);
    in.budget().take_steps(16 + weight(key));
    order.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return compare(a.first, b.first, "<") < 0; });
  std::vector<Value> out;
  for (std::size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const std::size_t begin = i;
    for (; i < order.size() && equal(order[i].first, order[begin].first); ++i)
      members.push_back(order[i].second);
    const Value shown = key_of(members[0]);
    Value group = in.list({shown, in.list(std::move(members))}, Kind::kTuple);
    group.mutable_seq().type_name = "group";
    out.push_back(std::move(group));
  }
  return in.list(std::move(out));
}

}  // namespace

const std::unordered_map<std::string, Filter>& sequence_filters() {
  static const std::unordered_map<std::string, Filter> kFilters = {
      {"batch", batch},
      {"count", length_filter},
      {"dictsort", dictsort},
      {"first", first_filter},
      {"groupby", groupby},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"length", length_filter},
      {"list", list_filter},
      {"map", map_filter},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse_filter},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slice_filter},
      {"sort", sort_filter},
      {"sum", sum},
      {"unique", unique}};
  return kFilters;
}

}  // namespace weft::model::jinja
