// The request traces that Weft reads, and how each is told from the others.
#include <array>

#include "weft/workload/field_text.h"
#include "weft/workload/trace_format.h"

namespace weft::workload {
namespace {

using Names = std::string_view;

bool is_weft(const TraceHead& head) {
  return !head.lines.empty() && head.lines.front().starts_with("#weft-requests ");
}
bool is_servegen(const TraceHead& head) {
  return head.is_directory && std::filesystem::exists(head.path / "chunk-0-trace.csv");
}
bool is_sharegpt(const TraceHead& head) {
  if (head.is_directory || head.lines.empty()) return false;
  std::string text;
  for (const auto& line : head.lines) text += line;
  const std::string_view start = trimmed(text);
  return (start.starts_with('[') || start.starts_with('{')) &&
         (text.find("\"conversations\"") != std::string::npos ||
          text.find("\"messages\"") != std::string::npos);
}
bool is_burstgpt(const TraceHead& head) {
  return has_columns(head, std::array<Names, 3>{"Timestamp", "Request tokens", "Response tokens"});
}
bool is_azure(const TraceHead& head) {
  return has_columns(head, std::array<Names, 3>{"TIMESTAMP", "ContextTokens", "GeneratedTokens"});
}
bool is_vidur(const TraceHead& head) {
  return has_columns(head,
                     std::array<Names, 3>{"arrived_at", "num_prefill_tokens", "num_decode_tokens"});
}
bool is_vidur_lengths(const TraceHead& head) {
  return has_columns(head, std::array<Names, 2>{"num_prefill_tokens", "num_decode_tokens"});
}
bool is_bailian(const TraceHead& head) {
  return has_keys(head, std::array<Names, 4>{"chat_id", "timestamp", "input_length", "hash_ids"});
}
bool is_ragpulse(const TraceHead& head) {
  return has_keys(head,
                  std::array<Names, 4>{"session_id", "timestamp", "input_length", "hash_ids"});
}
bool is_mooncake(const TraceHead& head) {
  return has_keys(head, std::array<Names, 3>{"timestamp", "input_length", "output_length"});
}
bool is_tracelab(const TraceHead& head) {
  return has_keys(head, std::array<Names, 3>{"timing_events", "input_tokens_total", "session_id"});
}

constexpr TraceFormat kFormats[] = {
    {"weft", TraceKind::kRequest, "Weft's own rows of requests", is_weft},
    {"burstgpt", TraceKind::kRequest, "BurstGPT 1, 2 and 3 (CSV)", is_burstgpt},
    {"azure", TraceKind::kRequest, "Azure LLM inference 2023 and 2024 (CSV)", is_azure},
    {"vidur", TraceKind::kRequest, "Vidur's processed traces (CSV)", is_vidur},
    {"vidur-lengths", TraceKind::kRequest, "the same without arrival times", is_vidur_lengths},
    {"bailian", TraceKind::kRequest, "Qwen-Bailian (JSON lines, 16-token blocks)", is_bailian},
    {"ragpulse", TraceKind::kRequest, "RAGPulse (JSON lines, typed block ids)", is_ragpulse},
    {"mooncake", TraceKind::kRequest, "Mooncake (JSON lines, 512-token blocks)", is_mooncake},
    {"servegen", TraceKind::kRequest, "ServeGen's clients (a folder; info and gen)", is_servegen},
    {"sharegpt", TraceKind::kRequest, "conversations as text (JSON; no times)", is_sharegpt},
    {"tracelab", TraceKind::kRequest, "rounds of agent sessions (JSON lines)", is_tracelab},
};

}  // namespace

std::span<const TraceFormat> request_formats() { return kFormats; }

}  // namespace weft::workload
