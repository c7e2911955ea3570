#include "weft/model/pre_tokenizer.h"

#include <optional>

namespace weft::model {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuationPattern =
    R"([\x{21}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{60}\x{7b}-\x{7e}\p{P}])";

}  // namespace

Result<PreTokenizer> PreTokenizer::make(const std::vector<PreTokenizerSpec>& specs,
                                        std::string_view where) {
  PreTokenizer made;
  Status failed;
  const auto add_split = [&](std::string_view pattern, bool is_regex, SplitBehavior behavior,
                             bool invert) {
    Step step{.kind = StepKind::kSplit, .behavior = behavior, .invert = invert};
    if (is_regex) {
      auto compiled = SplitPattern::regex(pattern, where);
      if (!compiled) {
        failed = std::unexpected(compiled.error());
        return;
      }
      step.pattern.push_back(std::move(*compiled));
    } else {
      step.pattern.push_back(SplitPattern::literal(pattern));
    }
    made.steps_.push_back(std::move(step));
  };
  for (const PreTokenizerSpec& spec : specs) {
    using Kind = PreTokenizerSpec::Kind;
    switch (spec.kind) {
      case Kind::kByteLevel:
        if (spec.add_prefix_space) {
          made.steps_.push_back({.kind = StepKind::kPrefixSpace});
        }
        if (spec.use_regex) add_split(kGpt2Pattern, true, SplitBehavior::kIsolated, false);
        // Steps after it (Falcon's) see the bytes as characters of the alphabet.
        if (&spec != &specs.back() && !made.in_alphabet_) {
          made.steps_.push_back({.kind = StepKind::kToAlphabet});
          made.in_alphabet_ = true;
        }
        break;
      case Kind::kSplit:
        add_split(spec.pattern, spec.is_regex, spec.behavior, spec.invert);
        break;
      case Kind::kDigits:
        if (spec.individual_digits) {
          add_split("\\p{N}", true, SplitBehavior::kIsolated, false);
        } else {
          add_split("\\p{N}", true, SplitBehavior::kContiguous, false);
        }
        break;
      case Kind::kPunctuation:
        add_split(kPunctuationPattern, true, spec.behavior, false);
        break;
      case Kind::kWhitespace:
        add_split(R"(\w+|[^\w\s]+)", true, SplitBehavior::kRemoved, true);
        break;
      case Kind::kWhitespaceSplit:
        add_split(R"(\s)", true, SplitBehavior::kRemoved, false);
        break;
      case Kind::kMetaspace:
        made.steps_.push_back({.kind = StepKind::kMetaspace,
                               .pattern = {SplitPattern::literal(spec.content)},
                               .behavior = SplitBehavior::kMergedWithNext,
                               .content = spec.content,
                               .prepend = spec.prepend,
                               .split = spec.split});
        break;
      case Kind::kBert:
        add_split(R"(\s)", true, SplitBehavior::kRemoved, false);
        add_split(kPunctuationPattern, true, SplitBehavior::kIsolated, false);
        break;
    }
    if (!failed) return std::unexpected(failed.error());
  }
  return made;
}

void PreTokenizer::split(std::string_view text, bool first, WordSink& sink) const {
  run(0, text, first, sink);
}

void PreTokenizer::run(std::size_t index, std::string_view text, bool first, WordSink& sink) const {
  if (text.empty()) return;
  if (index == steps_.size()) {
    if (in_alphabet_) {
      sink.word(alphabet_to_bytes(text).value_or(std::string(text)));
    } else {
      sink.word(text);
    }
    return;
  }
  const Step& step = steps_[index];
  switch (step.kind) {
    case StepKind::kSplit:
      run_split(index, text, first, sink);
      return;
    case StepKind::kPrefixSpace: {
      if (text.starts_with(' ')) {
        run(index + 1, text, first, sink);
        return;
      }
      std::string prefixed;
      prefixed.reserve(text.size() + 1);
      prefixed += ' ';
      prefixed += text;
      run(index + 1, prefixed, first, sink);
      return;
    }
    case StepKind::kToAlphabet: {
      const std::string mapped = bytes_to_alphabet(text);
      run(index + 1, mapped, first, sink);
      return;
    }
    case StepKind::kMetaspace: {
      std::string replaced;
      replaced.reserve(text.size() + text.size() / 2);
      if (step.prepend == PrependScheme::kAlways ||
          (step.prepend == PrependScheme::kFirst && first)) {
        if (!text.starts_with(step.content) && !text.starts_with(' ')) replaced += step.content;
      }
      for (const char c : text) {
        if (c == ' ') {
          replaced += step.content;
        } else {
          replaced += c;
        }
      }
      if (step.split) {
        run_split(index, replaced, first, sink);
      } else {
        run(index + 1, replaced, first, sink);
      }
      return;
    }
  }
}

void PreTokenizer::run_split(std::size_t index, std::string_view text, bool first,
                             WordSink& sink) const {
  const Step& step = steps_[index];
  const auto pass_on = [&](std::size_t begin, std::size_t end) {
    run(index + 1, text.substr(begin, end - begin), first && begin == 0, sink);
  };
  // What is held back until the next range says whether they belong together.
  std::optional<PatternMatch> held;
  bool held_is_match = false;
  const auto flush = [&] {
    if (held) pass_on(held->begin, held->end);
    held.reset();
  };
  const auto range = [&](std::size_t begin, std::size_t end, bool is_match) {
    if (begin == end) return;
    bool joins = false;
    switch (step.behavior) {
      case SplitBehavior::kIsolated:
        pass_on(begin, end);
        return;
      case SplitBehavior::kRemoved:
        if (!is_match) pass_on(begin, end);
        return;
      case SplitBehavior::kContiguous:
        joins = held && held_is_match == is_match;
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins = held && is_match && !held_is_match;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = held && held_is_match && !is_match;
        break;
    }
    if (joins) {
      held->end = end;
    } else {
      flush();
      held = PatternMatch{begin, end};
    }
    held_is_match = is_match;
  };
  Search search(step.pattern.front(), text);
  PatternMatch match;
  std::size_t at = 0;
  while (search.next(match)) {
    range(at, match.begin, step.invert);
    range(match.begin, match.end, !step.invert);
    at = match.end;
  }
  range(at, text.size(), step.invert);
  flush();
}

}  // namespace weft::model
