// Models and fit reports as JSON and text.
#include "weft/workload/request_model.h"

#include <algorithm>
#include <numeric>

namespace weft::workload {
namespace {

constexpr std::string_view kForms[] = {"distribution", "bootstrap", "batches"};

Json fits_json(const std::vector<Fit>& fits) {
  Json out = Json::array();
  for (const Fit& fit : fits) out.push_back(fit.json());
  return out;
}

template <class T>
Result<std::vector<T>> numbers(const Json& json, std::string_view key) {
  std::vector<T> out;
  const Json* list = json_find(json, key);
  if (list == nullptr) return out;
  if (!list->is_array()) return fail(ErrorCode::kInvalidArgument, "\"{}\" is no list", key);
  for (const Json& value : *list) {
    if (!value.is_number()) {
      return fail(ErrorCode::kInvalidArgument, "\"{}\" holds something that is no number", key);
    }
    const double number = value.get<double>();
    if (!(number >= 0) || number > 1e15) {
      return fail(ErrorCode::kOutOfRange, "\"{}\" holds {}, which is out of range", key, number);
    }
    out.push_back(static_cast<T>(number));
  }
  return out;
}

std::string fit_lines(std::string_view what, const std::vector<Fit>& fits) {
  std::string out = fmt::format("  {}\n", what);
  for (const Fit& fit : fits) {
    const Distribution& d = fit.distribution;
    std::string parameters;
    if (d.family == Family::kQuantiles) {
      parameters = "101 empirical quantiles";
    } else {
      const Json json = d.json();  // outlives the loop over its items
      for (const auto& [key, value] : json.items()) {
        if (value.is_number()) {
          parameters += fmt::format("{} {:.4g}  ", key, value.get<double>());
        } else if (value.is_array()) {
          for (std::size_t i = 0; i + 1 < value.size(); i += 2) {
            parameters += fmt::format("{:.3g} x mean {:.4g}  ", value[i].get<double>(),
                                      value[i + 1].get<double>());
          }
        }
      }
    }
    out += fmt::format("    {:<18} {:<44} KS {:.4f}", to_string(d.family), parameters, fit.ks);
    if (d.family != Family::kQuantiles) out += fmt::format("  AIC {:.1f}", fit.aic);
    out += '\n';
  }
  return out;
}

}  // namespace

double RequestModel::mean_rate() const {
  if (rates.empty()) return 0;
  double first =
      std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
  if (gap_form == GapForm::kBatches) first *= batch.mean();
  // Each session of `turns` requests counts them all.
  return first * (1 + session_share * (session_share > 0 ? turns.mean() - 1 : 0));
}

Json RequestModel::json() const {
  Json pool = Json::array();
  for (const LengthPair& pair : length_pool) {
    pool.push_back(pair.input);
    pool.push_back(pair.output);
  }
  Json label_list = Json::array();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    label_list.push_back({{"label", labels[i].first},
                          {"share", labels[i].second},
                          {"failed_share", label_failures.at(i)}});
  }
  Json out = {{"weft", "request-model"}, {"version", 1}, {"source", source}};
  out["arrivals"] = {{"window_s", window_s},
                     {"rates", rates},
                     {"form", kForms[static_cast<std::size_t>(gap_form)]}};
  Json& arrivals = out["arrivals"];
  if (gap_form == GapForm::kDistribution) arrivals["gaps"] = gaps.json();
  if (gap_form == GapForm::kBootstrap) {
    arrivals["gap_block"] = gap_block;
    arrivals["gap_pool"] = gap_pool;
  }
  if (gap_form == GapForm::kBatches) {
    arrivals["step_s"] = step_s;
    arrivals["batch"] = batch.json();
  }
  if (!length_pool.empty()) {
    out["lengths"] = {{"rows", std::move(pool)}};
  } else {
    out["lengths"] = {{"input", input.json()}, {"output", output.json()}, {"rho", length_rho}};
  }
  if (session_share > 0) {
    out["sessions"] = {
        {"share", session_share}, {"turns", turns.json()}, {"think_s", think_s.json()}};
  }
  out["labels"] = std::move(label_list);
  return out;
}

Result<RequestModel> RequestModel::from_json(const Json& json) {
  if (!json.is_object() || json.value("weft", Json()) != "request-model") {
    return fail(
        ErrorCode::kInvalidArgument,
        "this is no model of requests (\"weft\": \"request-model\"), as `weft trace fit -o` "
        "writes");
  }
  WEFT_ASSIGN(const auto version, json_field<std::int64_t>(json, "version"));
  if (version != 1) {
    return fail(ErrorCode::kUnsupported, "the model has version {}, this Weft reads 1", version);
  }
  RequestModel out;
  WEFT_ASSIGN(out.source, json_field_or<std::string>(json, "source", ""));
  WEFT_ASSIGN(const Json* arrivals, json_field<const Json*>(json, "arrivals"));
  WEFT_ASSIGN(out.window_s, json_field<double>(*arrivals, "window_s"));
  WEFT_ASSIGN(out.rates, numbers<double>(*arrivals, "rates"));
  WEFT_ASSIGN(const std::string form, json_field<std::string>(*arrivals, "form"));
  const auto found = std::ranges::find(kForms, form);
  if (found == std::end(kForms)) {
    return fail(ErrorCode::kInvalidArgument, "\"form\" is '{}'", form);
  }
  out.gap_form = static_cast<GapForm>(found - std::begin(kForms));
  if (out.gap_form == GapForm::kDistribution) {
    WEFT_ASSIGN(const Json* gaps, json_field<const Json*>(*arrivals, "gaps"));
    WEFT_ASSIGN(out.gaps, Distribution::from_json(*gaps));
  } else if (out.gap_form == GapForm::kBootstrap) {
    WEFT_ASSIGN(out.gap_pool, numbers<float>(*arrivals, "gap_pool"));
    WEFT_ASSIGN(const auto block, json_field<std::int64_t>(*arrivals, "gap_block"));
    const double sum = std::accumulate(out.gap_pool.begin(), out.gap_pool.end(), 0.0);
    if (!(sum > 0) || block < 1 || block > (1 << 24)) {
      return fail(ErrorCode::kOutOfRange,
                  "\"gap_pool\" must add up to more than 0, and "
                  "\"gap_block\" be at least 1");
    }
    out.gap_block = static_cast<std::uint32_t>(block);
  } else {
    WEFT_ASSIGN(out.step_s, json_field<double>(*arrivals, "step_s"));
    WEFT_ASSIGN(const Json* batch, json_field<const Json*>(*arrivals, "batch"));
    WEFT_ASSIGN(out.batch, Distribution::from_json(*batch));
    if (!(out.step_s > 0)) return fail(ErrorCode::kOutOfRange, "\"step_s\" must be above 0");
  }
  if (!(out.window_s > 0) || !(out.mean_rate() > 0)) {
    return fail(ErrorCode::kOutOfRange, "\"window_s\" and the mean of \"rates\" must be above 0");
  }
  WEFT_ASSIGN(const Json* lengths, json_field<const Json*>(json, "lengths"));
  WEFT_ASSIGN(const auto rows, numbers<std::uint32_t>(*lengths, "rows"));
  if (rows.size() % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument, "\"rows\" holds pairs, so an even number of values");
  }
  for (std::size_t i = 0; i < rows.size(); i += 2)
    out.length_pool.push_back({rows[i], rows[i + 1]});
  if (rows.empty()) {
    WEFT_ASSIGN(const Json* input, json_field<const Json*>(*lengths, "input"));
    WEFT_ASSIGN(const Json* output, json_field<const Json*>(*lengths, "output"));
    WEFT_ASSIGN(out.input, Distribution::from_json(*input));
    WEFT_ASSIGN(out.output, Distribution::from_json(*output));
    WEFT_ASSIGN(out.length_rho, json_field_or<double>(*lengths, "rho", 0));
    if (!(out.length_rho >= -1 && out.length_rho <= 1)) {
      return fail(ErrorCode::kOutOfRange, "\"rho\" must be in -1 ... 1");
    }
  }
  if (const Json* sessions = json_find(json, "sessions")) {
    WEFT_ASSIGN(out.session_share, json_field<double>(*sessions, "share"));
    WEFT_ASSIGN(const Json* turns, json_field<const Json*>(*sessions, "turns"));
    WEFT_ASSIGN(const Json* think, json_field<const Json*>(*sessions, "think_s"));
    WEFT_ASSIGN(out.turns, Distribution::from_json(*turns));
    WEFT_ASSIGN(out.think_s, Distribution::from_json(*think));
  }
  if (const Json* labels = json_find(json, "labels")) {
    if (!labels->is_array() || labels->size() > 65'535) {
      return fail(ErrorCode::kInvalidArgument, "\"labels\" is no list of at most 65,535");
    }
    for (const Json& each : *labels) {
      WEFT_ASSIGN(std::string label, json_field<std::string>(each, "label"));
      WEFT_ASSIGN(const double share, json_field<double>(each, "share"));
      WEFT_ASSIGN(const double failed, json_field_or<double>(each, "failed_share", 0));
      out.labels.emplace_back(std::move(label), share);
      out.label_failures.push_back(failed);
    }
  }
  return out;
}

Json FitReport::json() const {
  Json out = {{"window_s", model.window_s},
              {"windows", model.rates.size()},
              {"form", kForms[static_cast<std::size_t>(model.gap_form)]},
              {"gap_fits", fits_json(gap_fits)},
              {"gamma_shape_per_20_minutes", window_gamma_shapes},
              {"input_fits", fits_json(input_fits)},
              {"output_fits", fits_json(output_fits)},
              {"notes", notes}};
  if (gamma_moments) out["gamma_moments"] = gamma_moments->json();
  if (turns_fit) out["turns_fit"] = turns_fit->json();
  if (think_fit) out["think_fit"] = think_fit->json();
  if (counts_fit) out["counts_fit"] = counts_fit->json();
  return out;
}

std::string FitReport::text() const {
  std::string out;
  if (!gap_fits.empty()) out += fit_lines("gaps between arrivals (s), lowest AIC first", gap_fits);
  if (gamma_moments) {
    out += fmt::format("    {:<18} shape {:.4g}  scale {:.4g}   (by moments: shape = 1 / CV^2)\n",
                       "gamma", gamma_moments->a, gamma_moments->b);
  }
  if (!window_gamma_shapes.empty()) {
    out += "  Gamma shape per 20 minutes:";
    const std::size_t shown = std::min<std::size_t>(window_gamma_shapes.size(), 12);
    for (std::size_t i = 0; i < shown; ++i) out += fmt::format(" {:.3f}", window_gamma_shapes[i]);
    if (shown < window_gamma_shapes.size()) {
      out += fmt::format(" ... ({} windows)", window_gamma_shapes.size());
    }
    out += '\n';
  }
  if (counts_fit) out += fit_lines("requests per tick", {*counts_fit});
  out += fit_lines("input tokens", input_fits);
  out += fit_lines("output tokens", output_fits);
  if (turns_fit) out += fit_lines("turns of a session", {*turns_fit});
  if (think_fit) out += fit_lines("time between turns (s)", {*think_fit});
  out +=
      fmt::format("  model: {} windows of {:g} s, gaps by {}, lengths by {}\n", model.rates.size(),
                  model.window_s, kForms[static_cast<std::size_t>(model.gap_form)],
                  model.length_pool.empty() ? "copula" : "whole rows");
  for (const auto& note : notes) out += fmt::format("  note: {}\n", note);
  return out;
}

}  // namespace weft::workload
