// One keep-alive connection of the load tester. Only for load_*.cpp: this header
// includes Boost.Beast.
#pragma once

// clang-format off
#include <utility>  // Boost 1.74's awaitable.hpp uses std::exchange without it
// clang-format on

#include <simdjson.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/serve/load.h"

namespace weft::serve {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;

// What a stream of server-sent events says, piece by piece.
class StreamReader {
 public:
  // Takes the next bytes; calls on_text for each event that carries text. False when an
  // event is not what the API promises.
  bool take(std::string_view bytes, const std::function<void()>& on_text);
  bool ended() const { return ended_; }    // data: [DONE], or a finish reason
  bool failed() const { return failed_; }  // an event that is an error
  std::uint32_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;

 private:
  bool take_event(std::string_view data, const std::function<void()>& on_text);
  std::string pending_;
  simdjson::dom::parser parser_;
  bool ended_ = false, failed_ = false;
};

// Reads "usage" of a response object into the three counts; absent fields stay.
void read_usage(const simdjson::dom::element& response, std::uint32_t& prompt,
                std::uint32_t& completion, std::uint32_t& cached);

class LoadConnection : public std::enable_shared_from_this<LoadConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  struct Outcome {
    LoadOutcome outcome = LoadOutcome::kOk;
    int status = 0;
    Clock::time_point end;
    bool reusable = false;
    bool answered = false;  // a byte of an answer came
    std::string body;       // of an answer that is no stream
  };
  struct Events {
    std::function<void(Clock::time_point)> sent;  // the first byte is about to leave
    std::function<void(Clock::time_point)> text;  // an event with text arrived
    std::function<void(Outcome, const StreamReader&)> done;
  };

  LoadConnection(net::io_context& context, tcp::resolver::results_type endpoints)
      : stream_(context), endpoints_(std::move(endpoints)) {}

  // One request at a time. `wire` is the whole HTTP request. The timeout is for all of it.
  void send(std::string wire, double timeout_s, Events events);
  // Ends the request in hand with kStopped.
  void cancel();
  bool fresh() const { return !connected_; }

 private:
  void write();
  void read_header();
  void read_some();
  void failed(beast::error_code error, LoadOutcome otherwise);
  void finish(LoadOutcome outcome);

  beast::tcp_stream stream_;
  tcp::resolver::results_type endpoints_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::string_body>> parser_;
  std::optional<StreamReader> reader_;
  std::string wire_;
  Events events_;
  bool connected_ = false, streaming_ = false, cancelled_ = false, answered_ = false, busy_ = false;
  Clock::time_point end_;
  bool end_known_ = false;
};

}  // namespace weft::serve
