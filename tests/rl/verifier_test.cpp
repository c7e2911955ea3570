// A verifier is a real process here: shell and Python, well-behaved and not.
#include "weft/rl/verifier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>

namespace weft::rl {
namespace {

// As weft's main() does: a verifier that is gone must be an error, not a signal.
[[maybe_unused]] const auto kIgnoredPipe = std::signal(SIGPIPE, SIG_IGN);

struct Asked {
  std::vector<Prompt> prompts;
  std::vector<Reply> replies;
};
Asked ask(const std::vector<std::string>& texts) {
  Asked a;
  a.prompts.reserve(texts.size());
  for (const std::string& text : texts) {
    a.prompts.push_back({.cursor = 0, .text = "p", .reference = "7", .tokens = {}});
    a.replies.push_back({.prompt = &a.prompts.back(), .tokens = {}, .text = text, .ended = true});
  }
  return a;
}

constexpr const char* kPython =
    "exec /usr/bin/python3 -u -c \"\n"
    "import sys, json, os, time\n"
    "for line in sys.stdin:\n"
    "    o = json.loads(line)\n"
    "    c = o['completion']\n"
    "    if c == 'die': os._exit(3)\n"
    "    if c == 'sleep': time.sleep(60)\n"
    "    if c == 'nan': print('nan'); continue\n"
    "    if c == 'junk': print('what?'); continue\n"
    "    if c == 'error': print(json.dumps({'error': 'no idea'})); continue\n"
    "    if c == 'memory':\n"
    "        try: b = bytearray(1 << 30); print('0.5')\n"
    "        except MemoryError: print('-1')\n"
    "        continue\n"
    "    print(json.dumps({'reward': 1.0 if c == o['reference'] else 0.25, 'exact': c == "
    "o['reference']}))\n"
    "\"";

TEST(Verifier, ScoresInOrderAndKeepsItsProcess) {
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i)
    texts.push_back(i % 3 == 0 ? "7" : std::string(static_cast<std::size_t>(i), 'x'));
  const Asked a = ask(texts);
  Verifier verifier({.command = kPython});
  const auto scores = verifier.score(a.replies);
  ASSERT_EQ(scores.size(), 500U);
  for (std::size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(scores[i].error, "");
    EXPECT_EQ(scores[i].reward, i % 3 == 0 ? 1.0 : 0.25);
    EXPECT_EQ(scores[i].exact, i % 3 == 0);
  }
  EXPECT_EQ(verifier.restarts(), 0);
}

TEST(Verifier, AnErrorIsNotARewardOfZeroAndTouchesNoOtherSample) {
  const Asked a = ask({"7", "junk", "error", "nan", "7"});
  Verifier verifier({.command = kPython});
  const auto scores = verifier.score(a.replies);
  EXPECT_EQ(scores[0].reward, 1.0);
  EXPECT_NE(scores[1].error.find("what?"), std::string::npos);
  EXPECT_NE(scores[2].error.find("no idea"), std::string::npos);
  EXPECT_NE(scores[3].error, "");
  EXPECT_EQ(scores[4].reward, 1.0);
  EXPECT_EQ(verifier.errors(), 3);
  EXPECT_EQ(verifier.restarts(), 0);
}

TEST(Verifier, DeathAndSilenceRestartItAndCostOnlyTheirOwnSample) {
  const Asked a = ask({"7", "die", "7", "sleep", "7"});
  Verifier verifier({.command = kPython, .reply_seconds = 1.0, .attempts = 2});
  const auto begin = std::chrono::steady_clock::now();
  const auto scores = verifier.score(a.replies);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(scores[0].reward, 1.0);
  EXPECT_NE(scores[1].error.find("died"), std::string::npos);
  EXPECT_EQ(scores[2].reward, 1.0);
  EXPECT_NE(scores[3].error.find("within 1"), std::string::npos);
  EXPECT_EQ(scores[4].reward, 1.0);
  EXPECT_EQ(verifier.restarts(), 4);
}

TEST(Verifier, HasNoMoreMemoryThanAllowed) {
  const Asked a = ask({"memory"});
  Verifier verifier({.command = kPython, .memory_mib = 512});
  EXPECT_EQ(verifier.score(a.replies)[0].reward, -1.0);
}

TEST(Verifier, ACommandThatDoesNotExistIsAnErrorForEverySample) {
  const Asked a = ask({"7", "7"});
  Verifier verifier({.command = "exec /no/such/verifier 2>/dev/null"});
  for (const Score& s : verifier.score(a.replies)) EXPECT_NE(s.error, "");
}

TEST(Verifier, PlainNumbersAreRewards) {
  EXPECT_EQ(parse_verifier_line("0.75").reward, 0.75);
  EXPECT_FALSE(parse_verifier_line("0.75").exact);
  EXPECT_TRUE(parse_verifier_line(" 1\r").exact);
  EXPECT_NE(parse_verifier_line("").error, "");
  EXPECT_NE(parse_verifier_line("{\"reward\": \"x\"}").error, "");
  EXPECT_NE(parse_verifier_line("[1]").error, "");
  EXPECT_NE(parse_verifier_line("inf").error, "");
}

}  // namespace
}  // namespace weft::rl
