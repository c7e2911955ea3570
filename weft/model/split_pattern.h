// The patterns that cut text into words before merging. Well-known ones have a
// scanner written by hand; any other goes to PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft::model {

struct PatternMatch {
  std::size_t begin = 0, end = 0;
};

// Immutable; may be used from many threads. Copies share the compiled pattern.
class SplitPattern {
 public:
  // A regular expression as Oniguruma reads it (what `tokenizers` uses): \s is the
  // White_Space property, \d is Nd, \w is Alphabetic, M, Nd and Pc.
  // `where` begins errors. `allow_scanner` = false always takes PCRE2 (tests).
  static Result<SplitPattern> regex(std::string_view expression, std::string_view where,
                                    bool allow_scanner = true);
  static SplitPattern literal(std::string_view text);

  bool is_handwritten() const;
  class Matcher;

 private:
  friend class Search;
  std::shared_ptr<const Matcher> matcher_;
};

// Finds the non-empty matches in one valid UTF-8 text, left to right. The text
// must outlive the search. Time is linear for the scanners; PCRE2 stops at a
// match limit, after which no more matches are found.
class Search {
 public:
  Search(const SplitPattern& pattern, std::string_view text);
  ~Search();
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;
  bool next(PatternMatch& match);

  struct State;

 private:
  const SplitPattern::Matcher& matcher_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace weft::model
