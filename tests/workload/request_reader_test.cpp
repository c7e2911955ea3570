#include "weft/workload/request_reader.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/data.h"
#include "weft/workload/field_text.h"
#include "weft/workload/request_info.h"

namespace weft::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RequestReaderTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    const auto path = dir_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  LoadedRequests load(const std::string& text, RequestReadOptions options = {}) {
    auto loaded = load_requests(write("trace", text), std::move(options));
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    return loaded ? *std::move(loaded) : LoadedRequests{};
  }
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / fmt::format("weft_requests_{}", ::getpid());
};

constexpr const char* kBurst12 =
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,230,1317,Conversation log\n"
    "45,GPT-4,10,0,10,API log\n";
constexpr const char* kBurst3 =
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,,1.5,ChatGPT,472,18,490,API log\n"
    "19440111.25,0f-1,3,GPT-4,8,9,17,Conversation log\n"
    "19440120.5,0f-1,2,GPT-4,30,9,39,Conversation log\n";

TEST_F(RequestReaderTest, BurstGptColumnsAreFoundByNameInBothHeaders) {
  const auto one = load(kBurst12);
  ASSERT_EQ(one.trace.rows.size(), 3U);
  EXPECT_EQ(one.trace.rows[1].input_tokens, 1087U);
  EXPECT_EQ(one.trace.rows[1].output_tokens, 230U);
  EXPECT_EQ(one.trace.rows[1].time_ns, 45 * kNsPerSecond);
  EXPECT_TRUE(one.trace.rows[2].failed);
  EXPECT_THAT(one.trace.labels, ElementsAre("ChatGPT / Conversation", "GPT-4 / API"));
  const auto three = load(kBurst3);
  ASSERT_EQ(three.trace.rows.size(), 3U);
  EXPECT_EQ(three.trace.rows[0].input_tokens, 472U);
  EXPECT_EQ(three.trace.rows[0].session, -1);
  EXPECT_EQ(three.trace.rows[1].time_ns, 19440111'250'000'000);
  EXPECT_EQ(three.trace.rows[1].session, three.trace.rows[2].session);
  EXPECT_FLOAT_EQ(three.trace.rows[2].elapsed_s, 2);
}

TEST_F(RequestReaderTest, EveryDroppedRowHasAReasonAndALine) {
  const auto loaded = load(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,1,1,2,API log\n"
      "6,ChatGPT,-4,1,-3,API log\n"
      "7,ChatGPT,x,1,1,API log\n"
      "4,ChatGPT,1,1,2,API log\n"
      "8,ChatGPT,1,1,3,API log\n"
      "9,ChatGPT,1,1,2\n"
      "nine,ChatGPT,1,1,2,API log\n"
      "10,ChatGPT,1,1,2,API log\n\n");
  EXPECT_EQ(loaded.tally.rows(), 8);
  EXPECT_EQ(loaded.tally.kept(), 2);
  EXPECT_EQ(loaded.tally.dropped(), 6);
  std::vector<std::string> seen;
  for (const RowReason& reason : loaded.tally.drops()) {
    EXPECT_EQ(reason.rows, 1);
    seen.push_back(fmt::format("{}:{}", reason.lines.at(0), reason.name));
  }
  EXPECT_THAT(seen, ElementsAre("3:negative number in 'Request tokens'",
                                "4:not a number in 'Request tokens'", "5:time goes backwards",
                                "6:'Total tokens' is not the sum of 'Request tokens' and "
                                "'Response tokens'",
                                "7:5 cells instead of 6", "8:not a number in 'Timestamp'"));
}

TEST_F(RequestReaderTest, StrictReadingStopsAtTheFirstBadRow) {
  const auto path = write("trace",
                          "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                          "2023-11-16 18:15:46.6805900,374,44\r\n"
                          "2023-11-16 18:15:46,374,-1");
  const auto loaded = load_requests(path, {.strict = true});
  ASSERT_FALSE(loaded.has_value());
  EXPECT_THAT(loaded.error().message, HasSubstr("line 3: negative number in 'GeneratedTokens'"));
}

TEST_F(RequestReaderTest, AzureDatesByteOrderMarkAndMissingLastLineEnd) {
  const auto loaded = load(
      "\xEF\xBB\xBFTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:15:46.6805900,374,44\r\n"
      "2024-05-10 00:00:00.009930+00:00,396,109");
  ASSERT_EQ(loaded.trace.rows.size(), 2U);
  EXPECT_EQ(loaded.trace.rows[0].time_ns, 0);
  EXPECT_EQ(format_date_time(*loaded.trace.zero_unix_ns), "2023-11-16 18:15:46.680590000");
  EXPECT_EQ(format_date_time(*loaded.trace.zero_unix_ns + loaded.trace.rows[1].time_ns),
            "2024-05-10 00:00:00.009930000");
}

TEST_F(RequestReaderTest, MissingColumnIsNamedAndUnknownOnesAreNoted) {
  const auto missing = load_requests(write("a.csv", "Timestamp,Model,Request tokens\n1,a,2\n"),
                                     {.format = "burstgpt"});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, HasSubstr("there is no column 'Response tokens'"));
  const auto extra =
      load("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00,1,2,3\n");
  EXPECT_THAT(extra.tally.notes(), ElementsAre("column 'NumImages' is not used"));
}

TEST_F(RequestReaderTest, WrongBlockSizeIsRefused) {
  const std::string row =
      R"({"timestamp": 1500, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]})";
  const auto loaded = load(row + "\n");
  EXPECT_EQ(loaded.trace.block_tokens, 512U);
  EXPECT_EQ(loaded.trace.rows[0].time_ns, 1'500'000'000);
  EXPECT_THAT(std::vector<std::uint64_t>(loaded.trace.block_ids), ElementsAre(7, 8));
  const auto wrong = load_requests(write("b", row), {.block_tokens = 16});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_THAT(wrong.error().message, HasSubstr("blocks of 16 tokens need 63"));
}

TEST_F(RequestReaderTest, BailianTurnsFollowTheirParents) {
  const auto loaded = load(
      R"({"chat_id": 10, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 17, "output_length": 3, "type": "text", "turn": 1, "hash_ids": [1, 2]}
{"chat_id": 11, "parent_chat_id": -1, "timestamp": 0.75, "input_length": 5, "output_length": 3, "type": "search", "turn": 1, "hash_ids": [3]}
{"chat_id": 12, "parent_chat_id": 10, "timestamp": 2, "input_length": 30, "output_length": 3, "type": "text", "turn": 2, "hash_ids": [1, 2]}
)");
  ASSERT_EQ(loaded.trace.rows.size(), 3U);
  EXPECT_EQ(loaded.trace.format, "bailian");
  EXPECT_EQ(loaded.trace.rows[0].session, loaded.trace.rows[2].session);
  EXPECT_NE(loaded.trace.rows[0].session, loaded.trace.rows[1].session);
  EXPECT_THAT(loaded.trace.labels, ElementsAre("text", "search"));
}

TEST_F(RequestReaderTest, RagPulseHalvesAreSorted) {
  const std::string text =
      R"({"timestamp": "82", "input_length": 31, "output_length": 19, "hash_ids": {"sys_prompt": [8, 1], "passages_ids": [7], "history": [], "web_search": [], "user_input": [2]}, "session_id": "a"}
{"timestamp": "9", "input_length": 31, "output_length": 19, "hash_ids": {"sys_prompt": [8]}, "session_id": "b"}
)";
  const auto loaded = load(text);
  ASSERT_EQ(loaded.trace.rows.size(), 2U);
  EXPECT_EQ(loaded.trace.rows[0].time_ns, 9 * kNsPerSecond);
  EXPECT_EQ(loaded.trace.rows[1].block_count, 4U);
  ASSERT_EQ(loaded.tally.repairs().size(), 1U);
  EXPECT_EQ(loaded.tally.repairs()[0].lines.at(0), 2);
  EXPECT_EQ(load(text, {.order = TimeOrder::kDrop}).tally.dropped(), 1);
}

TEST_F(RequestReaderTest, EachAnswerOfAConversationIsARequest) {
  const std::string text = R"([
  {"id": "x", "conversations": [{"from": "human", "value": "12345678"},
    {"from": "gpt", "value": "a \"{[ b"}, {"from": "human", "value": "1234"},
    {"from": "gpt", "value": "123456789012"}]},
  {"id": "empty", "conversations": []},
  {"messages": [{"role": "user", "content": "1234"}, {"role": "assistant", "content": "12"}]}
])";
  const auto loaded = load(text);
  EXPECT_EQ(loaded.trace.format, "sharegpt");
  EXPECT_FALSE(loaded.trace.has_times);
  ASSERT_EQ(loaded.trace.rows.size(), 3U);
  EXPECT_EQ(loaded.trace.rows[0].input_tokens, 2U);
  EXPECT_EQ(loaded.trace.rows[0].output_tokens, 2U);
  EXPECT_EQ(loaded.trace.rows[1].input_tokens, 5U);
  EXPECT_EQ(loaded.trace.rows[1].output_tokens, 3U);
  EXPECT_THAT(loaded.trace.sessions, ElementsAre("x", "c3"));
  ASSERT_EQ(loaded.tally.drops().size(), 1U);
  EXPECT_EQ(loaded.tally.drops()[0].name, "no answer in the conversation");
  EXPECT_THAT(loaded.tally.drops()[0].lines, ElementsAre(2));
  EXPECT_EQ(
      load(text, {.count_tokens =
                      [](std::string_view s) { return static_cast<std::uint32_t>(s.size()); }})
          .trace.rows[0]
          .input_tokens,
      8U);
  const auto cut = load_requests(write("cut", text.substr(0, 60)));
  ASSERT_FALSE(cut.has_value());
  EXPECT_THAT(cut.error().message, HasSubstr("conversation 1 is cut off"));
}

TEST_F(RequestReaderTest, MillisecondsReadAsSecondsAreNoted) {
  std::string text = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("{},1,1\n", i * 7000);
  EXPECT_THAT(load(text).tally.notes(), ElementsAre(HasSubstr("another unit")));
}

TEST_F(RequestReaderTest, WrittenRowsReadBackEqual) {
  const auto first = load(kBurst3);
  for (const char* format : {"weft", "burstgpt"}) {
    const auto path = dir_ / format;
    ASSERT_TRUE(write_requests(first.trace, format, path).has_value());
    const auto again = load_requests(path);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->trace.labels, first.trace.labels) << format;
    EXPECT_EQ(again->trace.sessions, first.trace.sessions);
    ASSERT_EQ(again->trace.rows.size(), first.trace.rows.size());
    for (std::size_t i = 0; i < first.trace.rows.size(); ++i) {
      EXPECT_EQ(again->trace.rows[i].time_ns, first.trace.rows[i].time_ns);
      EXPECT_EQ(again->trace.rows[i].output_tokens, first.trace.rows[i].output_tokens);
      EXPECT_EQ(again->trace.rows[i].session, first.trace.rows[i].session);
      EXPECT_EQ(again->trace.rows[i].elapsed_s, first.trace.rows[i].elapsed_s);
    }
  }
  std::vector<std::string> lost;
  ASSERT_TRUE(write_requests(first.trace, "azure", dir_ / "z", &lost).has_value());
  EXPECT_THAT(lost, ElementsAre("sessions of 2 rows", "labels of 3 rows"));
}

TEST_F(RequestReaderTest, RealMooncakeRoundTripIsIdentical) {
  WEFT_NEED_DATA(file, "serving-traces/mooncake/conversation_trace.jsonl");
  const auto first = load_requests(file);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(first->tally.rows(), 12'031);
  EXPECT_EQ(first->tally.dropped(), 0);
  ASSERT_TRUE(write_requests(first->trace, "weft", dir_ / "w").has_value());
  ASSERT_TRUE(write_requests(first->trace, "mooncake", dir_ / "m").has_value());
  for (const char* name : {"w", "m"}) {
    const auto again = load_requests(dir_ / name);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->trace.block_ids, first->trace.block_ids);
    EXPECT_EQ(again->trace.block_tokens, 512U);
    for (std::size_t i = 0; i < first->trace.rows.size(); ++i) {
      ASSERT_EQ(again->trace.rows[i].time_ns, first->trace.rows[i].time_ns);
      ASSERT_EQ(again->trace.rows[i].input_tokens, first->trace.rows[i].input_tokens);
    }
  }
}

TEST_F(RequestReaderTest, UnknownAndEmptyFilesAreNamed) {
  for (const char* text : {"", "hello,world\n1,2\n", "{\"a\": 1}\n", "\0\1\2"}) {
    const auto loaded = load_requests(write("odd", text));
    ASSERT_FALSE(loaded.has_value());
    EXPECT_THAT(loaded.error().message, HasSubstr("odd"));
  }
  EXPECT_EQ(load_requests(dir_ / "none").error().code, ErrorCode::kNotFound);
  const auto newer = load_requests(write("n", "#weft-requests 2 {}\ntime_s\n"));
  EXPECT_THAT(newer.error().message, HasSubstr("version 1"));
}

TEST(FieldText, TimesAreExact) {
  std::int64_t ns = 0;
  EXPECT_EQ(parse_decimal_time("28943983.0", 1, ns), NumberProblem::kNone);
  EXPECT_EQ(ns, 28'943'983'000'000'000);
  EXPECT_EQ(parse_decimal_time("0.1234567894", 1, ns), NumberProblem::kNone);
  EXPECT_EQ(ns, 123'456'789);
  EXPECT_EQ(parse_decimal_time("27482.5", 1000, ns), NumberProblem::kNone);
  EXPECT_EQ(ns, 27'482'500'000);
  EXPECT_EQ(parse_decimal_time("1e3", 1, ns), NumberProblem::kNone);
  EXPECT_EQ(ns, 1'000'000'000'000);
  for (const char* bad : {"", "1.2.3", "a", "1e400", "99999999999999999999", "--1", "nan"}) {
    EXPECT_NE(parse_decimal_time(bad, 1, ns), NumberProblem::kNone) << bad;
  }
  for (const char* bad :
       {"2023-13-01 00:00:00", "2023-02-30 00:00:00", "2023-01-01", "x", "2023-01-01 25:00:00",
        "2023-01-01 00:00:00 CET", "9999-01-01 00:00:00"}) {
    EXPECT_FALSE(parse_date_time(bad, ns)) << bad;
  }
  EXPECT_TRUE(parse_date_time("2026-06-01T05:40:20.151+02:00", ns));
  EXPECT_EQ(format_date_time(ns), "2026-06-01 03:40:20.151000000");
}

TEST(FieldText, CsvQuotes) {
  std::vector<std::string_view> cells;
  std::string scratch;
  ASSERT_TRUE(split_csv(R"(a,"b,""c""",,"d")", cells, scratch));
  EXPECT_THAT(cells, ElementsAre("a", "b,\"c\"", "", "d"));
  EXPECT_FALSE(split_csv("a,\"b", cells, scratch));
  EXPECT_FALSE(split_csv("\"a\"b,c", cells, scratch));
  ASSERT_TRUE(split_csv("a,", cells, scratch));
  EXPECT_THAT(cells, ElementsAre("a", ""));
}

}  // namespace
}  // namespace weft::workload
