// The event loop of a load test.
#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "weft/serve/load_connection.h"
#include "weft/serve/load_prompt.h"
#include "weft/serve/load_saturation.h"

namespace weft::serve {
namespace {

using Clock = LoadConnection::Clock;
constexpr std::uint64_t kOwnContent = std::uint64_t{1} << 62;  // of prompts without blocks

std::string wire_request(const LoadTarget& target, std::string_view method, std::string_view path,
                         std::string_view body) {
  std::string out = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nAccept: */*\r\n", method,
                                target.prefix, path, target.host, target.port);
  if (!target.api_key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", target.api_key);
  if (!body.empty()) {
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  out += "\r\n";
  out += body;
  return out;
}

std::string_view completion_path(const LoadTarget& target) {
  return target.chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string completion_body(const LoadTarget& target, const std::string& prompt,
                            std::uint32_t tokens, bool stream) {
  Json body = {{"model", target.model}, {"max_tokens", tokens}, {"temperature", 0}};
  if (target.chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
  } else {
    body["prompt"] = prompt;
  }
  if (target.ignore_eos) body["ignore_eos"] = true;
  if (stream) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
  }
  body.update(target.extra);
  return dump_json(body);
}

// One exchange outside the measurement.
Result<std::string> ask(net::io_context& context, const tcp::resolver::results_type& endpoints,
                        const LoadTarget& target, std::string_view method, std::string_view path,
                        const std::string& body) {
  const auto connection = std::make_shared<LoadConnection>(context, endpoints);
  LoadConnection::Outcome outcome;
  connection->send(wire_request(target, method, path, body), 120,
                   {.sent = {},
                    .text = [](Clock::time_point) {},
                    .done = [&](LoadConnection::Outcome out,
                                const StreamReader&) { outcome = std::move(out); }});
  context.restart();
  context.run();
  if (outcome.status == 0) {
    return fail(ErrorCode::kUnavailable, "http://{}:{}{} does not answer ({}); is the server up?",
                target.host, target.port, target.prefix, to_string(outcome.outcome));
  }
  if (outcome.status != 200) {
    return fail(ErrorCode::kInvalidArgument, "{} {}{} is answered with {}: {}", method,
                target.prefix, path, outcome.status, outcome.body.substr(0, 300));
  }
  return std::move(outcome.body);
}

class Driver {
 public:
  Driver(net::io_context& context, tcp::resolver::results_type endpoints, const LoadTarget& target,
         const LoadPlan& plan, const LoadOptions& options, LoadRun& run, double overhead)
      : context_(context),
        endpoints_(std::move(endpoints)),
        target_(target),
        plan_(plan),
        options_(options),
        run_(run),
        overhead_(overhead),
        due_timer_(context),
        tick_timer_(context) {}

  void run() {
    start_ = Clock::now();
    if (!plan_.closed) {
      run_.records.resize(plan_.requests.size());
      std::unordered_map<std::int32_t, std::size_t> last;
      follower_.assign(plan_.requests.size(), kNone);
      for (std::size_t i = 0; i < plan_.requests.size(); ++i) {
        const PlannedRequest& request = plan_.requests[i];
        fill(run_.records[i], request, request.at_ns);
        if (plan_.session_closed && request.session >= 0) {
          const auto [found, first] = last.try_emplace(request.session, i);
          if (!first) {
            follower_[found->second] = i;
            found->second = i;
            continue;  // due when the turn before is over
          }
        }
        due_.push({request.at_ns, i});
      }
      left_ = plan_.requests.size();
      arm();
    } else {
      const LoadStage& stage = plan_.stages.front();
      for (int i = 0; i < stage.concurrency; ++i) start_next_closed();
      if (in_flight_ == 0) ended_ = true;
    }
    tick();
    context_.restart();
    context_.run();
    run_.wall_s = seconds(Clock::now());
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Due {
    std::int64_t at_ns;
    std::size_t index;
    bool operator>(const Due& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : index > other.index;
    }
  };

  double seconds(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
  }
  std::int64_t since_start(Clock::time_point time) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - start_).count();
  }

  void fill(LoadRecord& record, const PlannedRequest& request, std::int64_t intended) const {
    record.intended_ns = intended;
    record.input_tokens = request.input_tokens;
    record.output_tokens = request.output_tokens;
    record.session = request.session;
    record.stage = request.stage;
    record.warm = static_cast<double>(intended) >= options_.warmup_s * 1e9;
  }

  // Open loop: sends what is due, and sleeps until the next is.
  void arm() {
    while (!due_.empty() && !ended_ && due_.top().at_ns <= since_start(Clock::now())) {
      const std::size_t index = due_.top().index;
      due_.pop();
      if (in_flight_ >= options_.max_connections) {
        waiting_.push_back(index);
      } else {
        launch(index);
      }
    }
    if (due_.empty() || ended_) return;
    due_timer_.expires_at(start_ + std::chrono::nanoseconds(due_.top().at_ns));
    due_timer_.async_wait([this](beast::error_code error) {
      if (!error) arm();
    });
  }

  void start_next_closed() {
    const LoadStage& stage = plan_.stages.front();
    const auto now = Clock::now();
    if (ended_ || next_ >= plan_.requests.size() || seconds(now) >= stage.end_s) return;
    run_.records.emplace_back();
    fill(run_.records.back(), plan_.requests[next_], since_start(now));
    launch(next_++);
  }

  std::string prompt_of(std::size_t index) const {
    const PlannedRequest& request = plan_.requests[index];
    const double tokens = std::max(1.0, std::round(request.input_tokens - overhead_));
    return make_prompt(plan_.seed, kOwnContent + index, static_cast<std::uint32_t>(tokens),
                       request.blocks, plan_.block_tokens, run_.words_per_token);
  }

  void launch(std::size_t index, bool again = false) {
    const PlannedRequest& request = plan_.requests[index];
    std::shared_ptr<LoadConnection> connection;
    if (!idle_.empty() && !again) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      connection = std::make_shared<LoadConnection>(context_, endpoints_);
    }
    const bool reused = !connection->fresh();
    if (!again) {
      ++in_flight_;
      run_.peak_concurrency = std::max(run_.peak_concurrency, in_flight_);
    }
    busy_.insert(connection);
    auto wire =
        wire_request(target_, "POST", completion_path(target_),
                     completion_body(target_, prompt_of(index), request.output_tokens, true));
    connection->send(
        std::move(wire), options_.timeout_s,
        {.sent =
             [this, index](Clock::time_point now) {
               LoadRecord& record = run_.records[index];
               if (record.sent_ns < 0) record.sent_ns = since_start(now);
             },
         .text = [this, index](Clock::time_point now) { token(index, since_start(now)); },
         .done =
             [this, index, reused, connection](LoadConnection::Outcome out,
                                               const StreamReader& reader) {
               busy_.erase(connection);
               // A kept connection that the server had closed: not the server's failure.
               if (out.outcome == LoadOutcome::kReset && reused && !out.answered && !ended_) {
                 return launch(index, true);
               }
               if (out.reusable) idle_.push_back(connection);
               done(index, out, reader);
             }});
  }

  void token(std::size_t index, std::int64_t now) {
    LoadRecord& record = run_.records[index];
    if (record.first_ns < 0) {
      record.first_ns = now;
      recent_ttft_.push_back(record.ttft_s());
      saturation_.add_ttft(record.ttft_s());
    } else {
      record.gaps_s.push_back(static_cast<float>(static_cast<double>(now - last_ns_[index]) / 1e9));
    }
    last_ns_[index] = now;
    ++record.completion_tokens;
    ++tokens_;
  }

  void done(std::size_t index, const LoadConnection::Outcome& out, const StreamReader& reader) {
    LoadRecord& record = run_.records[index];
    record.end_ns = since_start(out.end);
    record.status = out.status;
    record.outcome = out.outcome;
    // An answer without a token and without an error is not what was asked for.
    if (out.outcome == LoadOutcome::kOk && record.first_ns < 0) {
      record.outcome = LoadOutcome::kMalformed;
    }
    record.prompt_tokens = reader.prompt_tokens;
    record.cached_tokens = reader.cached_tokens;
    // An event may hold several tokens: the server's own count is the better one.
    record.completion_tokens = std::max(record.completion_tokens, reader.completion_tokens);
    last_ns_.erase(index);
    --in_flight_;
    ++finished_;
    failures_ += record.outcome != LoadOutcome::kOk;
    if (ended_) return maybe_end();
    if (plan_.closed) {
      start_next_closed();
    } else {
      --left_;
      if (follower_[index] != kNone) {
        const std::size_t next = follower_[index];
        const std::int64_t gap = plan_.requests[next].at_ns - plan_.requests[index].at_ns;
        run_.records[next].intended_ns = record.end_ns + std::max<std::int64_t>(0, gap);
        due_.push({run_.records[next].intended_ns, next});
        arm();
      }
      if (!waiting_.empty()) {
        const std::size_t next = waiting_.front();
        waiting_.pop_front();
        launch(next);
      }
    }
    maybe_end();
  }

  void maybe_end() {
    if (in_flight_ > 0) return;
    if (!ended_ && !plan_.closed && left_ > 0) return;
    ended_ = true;
    due_timer_.cancel();
    tick_timer_.cancel();
    idle_.clear();
  }

  void end_early() {
    ended_ = true;
    due_timer_.cancel();
    const auto busy = busy_;  // cancelling changes the set
    for (const auto& connection : busy) connection->cancel();
    maybe_end();
  }

  // Twice a second: progress, the stop flag; each second: concurrency and saturation.
  void tick() {
    tick_timer_.expires_after(std::chrono::milliseconds(500));
    tick_timer_.async_wait([this](beast::error_code error) {
      if (error || (ended_ && in_flight_ == 0)) return;
      const double now = seconds(Clock::now());
      if (++ticks_ % 2 == 0) {
        run_.concurrency.emplace_back(now, in_flight_);
        saturation_.second(in_flight_);
        if (options_.stop_on_saturation && saturation_.saturated() && !ended_) {
          run_.saturated = true;
          end_early();
        }
      }
      if (options_.progress) report(now);
      if (options_.stop != nullptr && options_.stop->load() && !ended_) {
        run_.stopped = true;
        end_early();
      }
      if (!(ended_ && in_flight_ == 0)) tick();
    });
  }

  void report(double now) {
    LoadProgress progress;
    progress.elapsed_s = now;
    progress.done = finished_;
    progress.failed = failures_;
    progress.in_flight = in_flight_;
    progress.total = plan_.closed ? 0 : static_cast<std::int64_t>(plan_.requests.size());
    if (!recent_ttft_.empty()) {
      const auto middle =
          recent_ttft_.begin() + static_cast<std::ptrdiff_t>(recent_ttft_.size() / 2);
      std::nth_element(recent_ttft_.begin(), middle, recent_ttft_.end());
      last_p50_ = *middle;
      recent_ttft_.clear();
    }
    progress.ttft_p50_s = last_p50_;
    progress.output_rate = static_cast<double>(tokens_ - last_tokens_) / 0.5;
    last_tokens_ = tokens_;
    options_.progress(progress);
  }

  net::io_context& context_;
  tcp::resolver::results_type endpoints_;
  const LoadTarget& target_;
  const LoadPlan& plan_;
  const LoadOptions& options_;
  LoadRun& run_;
  double overhead_;
  net::steady_timer due_timer_, tick_timer_;
  Clock::time_point start_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::deque<std::size_t> waiting_;
  std::vector<std::size_t> follower_;
  std::vector<std::shared_ptr<LoadConnection>> idle_;
  std::unordered_set<std::shared_ptr<LoadConnection>> busy_;
  std::unordered_map<std::size_t, std::int64_t> last_ns_;  // of the requests in flight
  std::size_t next_ = 0, left_ = 0;
  int in_flight_ = 0;
  std::int64_t finished_ = 0, failures_ = 0, tokens_ = 0, last_tokens_ = 0, ticks_ = 0;
  bool ended_ = false;
  std::vector<double> recent_ttft_;
  double last_p50_ = 0;
  SaturationWatch saturation_;
};

// Tokens of two prompts of known words: the line through them.
struct Calibration {
  double words_per_token = 1, overhead = 0;
};

Result<Calibration> calibrate(net::io_context& context,
                              const tcp::resolver::results_type& endpoints,
                              const LoadTarget& target, std::uint64_t seed) {
  const auto tokens_of = [&](std::uint32_t words) -> Result<double> {
    WEFT_ASSIGN(const std::string body,
                ask(context, endpoints, target, "POST", completion_path(target),
                    completion_body(target, prompt_words(seed, kOwnContent - 1, words), 1, false)));
    simdjson::dom::parser parser;
    simdjson::dom::element response;
    std::uint32_t prompt = 0, unused = 0;
    if (parser.parse(body).get(response) == simdjson::SUCCESS) {
      read_usage(response, prompt, unused, unused);
    }
    return static_cast<double>(prompt);
  };
  Calibration out;
  constexpr std::uint32_t kShort = 24, kLong = 120;
  WEFT_ASSIGN(const double few, tokens_of(kShort));
  if (few < 1) return out;             // the server does not say
  const auto many = tokens_of(kLong);  // may not fit a small window
  if (many && *many > few) {
    const double tokens_per_word = (*many - few) / (kLong - kShort);
    out.words_per_token = 1 / tokens_per_word;
    out.overhead = std::max(0.0, few - kShort * tokens_per_word);
  } else {
    out.words_per_token = kShort / few;
  }
  return out;
}

}  // namespace

Result<LoadRun> run_load(const LoadTarget& given, const LoadPlan& plan,
                         const LoadOptions& options) {
  WEFT_CHECK(!plan.requests.empty() && !plan.stages.empty(), "an empty plan");
  net::io_context context(1);
  tcp::resolver resolver(context);
  beast::error_code error;
  const auto endpoints = resolver.resolve(given.host, given.port, error);
  if (error) {
    return fail(ErrorCode::kNotFound, "cannot find the host {}: {}", given.host, error.message());
  }
  LoadTarget target = given;
  if (target.model.empty()) {
    WEFT_ASSIGN(const std::string body, ask(context, endpoints, target, "GET", "/v1/models", ""));
    WEFT_ASSIGN(const Json models, parse_json(body, "/v1/models"));
    const Json* list = models.is_object() ? json_find(models, "data") : nullptr;
    if (list == nullptr || !list->is_array() || list->empty() || !list->front().is_object()) {
      return fail(ErrorCode::kInvalidArgument, "/v1/models names no model; give --model");
    }
    WEFT_ASSIGN(target.model, json_field<std::string>(list->front(), "id"));
  }
  LoadRun run;
  Calibration calibration;
  if (options.calibrate) {
    WEFT_ASSIGN(calibration, calibrate(context, endpoints, target, plan.seed));
  }
  run.words_per_token = calibration.words_per_token;
  Driver(context, endpoints, target, plan, options, run, calibration.overhead).run();
  return run;
}

}  // namespace weft::serve
