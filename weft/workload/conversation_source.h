// Conversations as text (ShareGPT, OpenAI messages), turned into rows of token counts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft::workload {

// Reads one JSON array of conversations, or one conversation a line, holding one
// conversation in memory. A conversation is {"id", "conversations": [{"from", "value"}]} or
// {"messages": [{"role", "content"}]}; each of its answers is a request whose prompt is
// everything before it.
class ConversationSource {
 public:
  static constexpr std::size_t kMaxElementBytes = std::size_t{64} << 20;
  using CountTokens = std::function<std::uint32_t(std::string_view)>;

  static Result<ConversationSource> open(const std::filesystem::path& path, CountTokens count);

  // The next request as a JSON object with "timestamp" 0, "input_length", "output_length",
  // "session_id", or {"problem": "..."} for a conversation that gives none. False at the
  // end. The view is valid until the next call.
  Result<bool> next(std::string_view& line);

  std::int64_t element() const { return element_; }  // of the conversation, from 1
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  ConversationSource() = default;
  Result<bool> next_element();
  void make_rows();

  std::unique_ptr<std::FILE, Close> file_;
  std::string name_, buffer_, text_, line_;
  std::size_t at_ = 0;
  CountTokens count_;
  std::deque<std::string> rows_;
  std::int64_t element_ = 0, bytes_read_ = 0, file_bytes_ = 0;
};

}  // namespace weft::workload
