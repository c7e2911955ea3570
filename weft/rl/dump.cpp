#include "weft/rl/dump.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "weft/model/safetensors.h"

namespace weft::rl {
namespace {

constexpr int kVersion = 1;

// The named arrays of a dump, in one place for writing and reading.
template <class DumpType, class Visit>
void visit_arrays(DumpType& d, Visit visit) {
  visit("offsets", d.batch.offsets);
  visit("group", d.batch.group);
  visit("reward", d.batch.reward);
  visit("logp_rollout", d.batch.logp_rollout);
  visit("logp_old", d.batch.logp_old);
  visit("logp_reference", d.batch.logp_reference);
  visit("value_old", d.batch.value_old);
  visit("advantage", d.advantage);
  visit("returns", d.returns);
  for (std::size_t u = 0; u < d.updates.size(); ++u) {
    auto& update = d.updates[u];
    const std::string p = "update" + std::to_string(u) + ".";
    visit(p + "logp", update.logp);
    visit(p + "entropy", update.entropy);
    visit(p + "value", update.value);
    visit(p + "gradient.logp", update.gradient.logp);
    visit(p + "gradient.entropy", update.gradient.entropy);
    visit(p + "gradient.value", update.gradient.value);
  }
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kI32;
  return DType::kI64;
}

template <class T>
Status read_array(const model::SafetensorsFile& file, const std::string& name,
                  std::vector<T>& out) {
  const TensorView* view = file.find(name);
  if (view == nullptr) {
    out.clear();  // empty arrays are not written
    return {};
  }
  if (view->dtype != dtype_of<T>())
    return fail(ErrorCode::kCorrupt, "{}: {} has type {}", file.name(), name,
                to_string(view->dtype));
  out.resize(static_cast<std::size_t>(view->elements()));
  std::memcpy(out.data(), view->data, out.size() * sizeof(T));
  return {};
}

Status check(const Dump& d, const std::string& file) {
  const auto length = [&](const char* name, std::size_t got, std::size_t want,
                          bool may_be_empty) -> Status {
    if (got == want || (may_be_empty && got == 0)) return {};
    return fail(ErrorCode::kCorrupt, "{}: {} has {} entries where {} belong", file, name, got,
                want);
  };
  const Batch& b = d.batch;
  if (b.offsets.size() != b.sequences() + 1 || b.offsets.front() != 0 ||
      b.offsets.back() != static_cast<std::int64_t>(b.tokens()) ||
      !std::is_sorted(b.offsets.begin(), b.offsets.end()))
    return fail(ErrorCode::kCorrupt, "{}: offsets do not fit {} sequences and {} tokens", file,
                b.sequences(), b.tokens());
  WEFT_TRY(length("reward", b.reward.size(), b.sequences(), false));
  WEFT_TRY(length("logp_old", b.logp_old.size(), b.tokens(), false));
  WEFT_TRY(
      length("logp_reference", b.logp_reference.size(), b.tokens(), !uses_reference(d.config)));
  WEFT_TRY(length("value_old", b.value_old.size(), b.tokens(), !uses_critic(d.config)));
  WEFT_TRY(length("advantage", d.advantage.size(), b.tokens(), false));
  WEFT_TRY(length("returns", d.returns.size(), b.tokens(), !uses_critic(d.config)));
  for (const Update& u : d.updates) {
    if (!(u.begin < u.end && u.end <= b.sequences()))
      return fail(ErrorCode::kCorrupt, "{}: an update of sequences {} to {}", file, u.begin, u.end);
    const auto n = static_cast<std::size_t>(b.offsets[u.end] - b.offsets[u.begin]);
    WEFT_TRY(length("logp", u.logp.size(), n, false));
    WEFT_TRY(length("entropy", u.entropy.size(), n, d.config.entropy == 0));
    WEFT_TRY(length("value", u.value.size(), n, !uses_critic(d.config)));
    WEFT_TRY(length("gradient.logp", u.gradient.logp.size(), n, false));
  }
  return {};
}

}  // namespace

Status write_dump(const std::filesystem::path& path, const Dump& dump) {
  std::vector<model::TensorSource> tensors;
  visit_arrays(dump, [&](const std::string& name, const auto& array) {
    using T = typename std::remove_cvref_t<decltype(array)>::value_type;
    if (array.empty()) return;
    const TensorView view{reinterpret_cast<const std::byte*>(array.data()),
                          dtype_of<T>(),
                          {static_cast<std::int64_t>(array.size())}};
    tensors.push_back(model::source_of(name, view));
  });
  Json updates = Json::array();
  for (const Update& u : dump.updates) {
    Json entry = Json::object();
    entry["begin"] = u.begin;
    entry["end"] = u.end;
    updates.push_back(std::move(entry));
  }
  const std::map<std::string, std::string> metadata = {
      {"format", "weft-rl-dump"},
      {"version", std::to_string(kVersion)},
      {"step", std::to_string(dump.step)},
      {"config", dump_json(to_json(dump.config))},
      // As bits: a decimal number may round.
      {"kl_coefficient_bits", std::to_string(std::bit_cast<std::uint64_t>(dump.kl_coefficient))},
      {"updates", dump_json(updates)},
      {"why", dump.why}};
  return model::write_safetensors(path, std::move(tensors), metadata);
}

Result<Dump> read_dump(const std::filesystem::path& path) {
  WEFT_ASSIGN(const auto file, model::SafetensorsFile::open(path));
  const std::string name = path.string();
  const auto text = [&](const std::string& key) -> Result<std::string> {
    const auto it = file->metadata().find(key);
    if (it == file->metadata().end())
      return fail(ErrorCode::kCorrupt,
                  "{}: no \"{}\" in its metadata; it is not a batch dump of "
                  "`weft rl`",
                  name, key);
    return it->second;
  };
  WEFT_ASSIGN(const std::string format, text("format"));
  WEFT_ASSIGN(const std::string version, text("version"));
  if (format != "weft-rl-dump" || version != std::to_string(kVersion))
    return fail(ErrorCode::kUnsupported,
                "{}: format {} version {}; this program reads weft-rl-dump {}", name, format,
                version, kVersion);
  Dump dump;
  const auto number = [&](const std::string& key) -> Result<std::uint64_t> {
    WEFT_ASSIGN(const std::string s, text(key));
    if (s.empty() || s.size() > 20 || s.find_first_not_of("0123456789") != std::string::npos)
      return fail(ErrorCode::kCorrupt, "{}: \"{}\" is '{}', not a number", name, key, s);
    return std::strtoull(s.c_str(), nullptr, 10);
  };
  WEFT_ASSIGN(const std::uint64_t step, number("step"));
  WEFT_ASSIGN(const std::uint64_t kl_bits, number("kl_coefficient_bits"));
  dump.step = static_cast<std::int64_t>(step);
  dump.kl_coefficient = std::bit_cast<double>(kl_bits);
  WEFT_ASSIGN(dump.why, text("why"));
  WEFT_ASSIGN(const std::string config_text, text("config"));
  WEFT_ASSIGN(const Json config, parse_json(config_text, name));
  WEFT_ASSIGN(dump.config, rl_config_from_json(config));
  WEFT_TRY(resolve(dump.config));
  WEFT_ASSIGN(const std::string updates_text, text("updates"));
  WEFT_ASSIGN(const Json updates, parse_json(updates_text, name));
  for (const Json& entry : updates) {
    WEFT_ASSIGN(const std::int64_t begin, json_field<std::int64_t>(entry, "begin"));
    WEFT_ASSIGN(const std::int64_t end, json_field<std::int64_t>(entry, "end"));
    Update u;
    u.begin = static_cast<std::size_t>(begin);
    u.end = static_cast<std::size_t>(end);
    dump.updates.push_back(std::move(u));
  }
  Status status;
  visit_arrays(dump, [&](const std::string& array_name, auto& array) {
    if (status) status = read_array(*file, array_name, array);
  });
  WEFT_TRY(status);
  WEFT_TRY(check(dump, name));
  return dump;
}

Replay replay(const Dump& dump) {
  Replay result;
  const auto compare = [&](const std::string& name, std::span<const float> recorded,
                           std::span<const float> again) {
    const std::size_t n = std::max(recorded.size(), again.size());
    for (std::size_t i = 0; i < n; ++i) {
      ++result.values;
      const bool both = i < recorded.size() && i < again.size();
      if (both &&
          std::bit_cast<std::uint32_t>(recorded[i]) == std::bit_cast<std::uint32_t>(again[i]))
        continue;
      if (both)
        result.largest_difference =
            std::max(result.largest_difference, std::abs(double{recorded[i]} - again[i]));
      if (result.different++ == 0)
        result.first_difference =
            both ? fmt::format("{}[{}]: {} recorded, {} replayed", name, i, recorded[i], again[i])
                 : fmt::format("{}: {} recorded values, {} replayed", name, recorded.size(),
                               again.size());
    }
  };
  LossConfig config = loss_config(dump.config);
  if (config.kl_coefficient > 0) config.kl_coefficient = dump.kl_coefficient;
  result.signal = make_signal(dump.config, dump.kl_coefficient, dump.batch);
  compare("advantage", dump.advantage, result.signal.advantage);
  compare("returns", dump.returns, result.signal.returns);
  for (std::size_t k = 0; k < dump.updates.size(); ++k) {
    const Update& u = dump.updates[k];
    const LossCounts counts = counts_of(dump.batch, result.signal, u.begin, u.end);
    LossGradient gradient;
    const LossSums sums = run_objective(config, counts, dump.batch, result.signal, u.begin, u.end,
                                        u.logp, u.entropy, u.value, gradient);
    const std::string p = "update" + std::to_string(k) + ".gradient.";
    compare(p + "logp", u.gradient.logp, gradient.logp);
    compare(p + "entropy", u.gradient.entropy, gradient.entropy);
    compare(p + "value", u.gradient.value, gradient.value);
    result.sums.push_back(sums);
  }
  return result;
}

}  // namespace weft::rl
