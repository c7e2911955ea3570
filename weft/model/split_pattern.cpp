#include "weft/model/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>

#include "weft/model/unicode_text.h"
#include "weft/model/word_scanner.h"

namespace weft::model {
namespace {

// Bounds the work of one match attempt on hostile text, in PCRE2's units.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;

constexpr std::string_view kWhiteSpaceRanges =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

// Spells the classes whose meaning differs between Oniguruma and PCRE2.
std::string to_pcre2(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < expression.size() && expression[i + 1] == '^') out += expression[++i];
      if (i + 1 < expression.size() && expression[i + 1] == ']') out += expression[++i];
      continue;
    }
    if (c == ']' && in_class) in_class = false;
    if (c != '\\' || i + 1 == expression.size()) {
      out += c;
      continue;
    }
    const char escaped = expression[++i];
    const auto ranges = [&](std::string_view set, bool negated) {
      if (!in_class) out += negated ? "[^" : "[";
      out += set;
      if (!in_class) out += ']';
    };
    if (escaped == 's' || (escaped == 'S' && !in_class)) {
      ranges(kWhiteSpaceRanges, escaped == 'S');
    } else if (escaped == 'w' || (escaped == 'W' && !in_class)) {
      // Below U+0100 Oniguruma counts superscripts and fractions as word characters.
      ranges("\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}",
             escaped == 'W');
    } else {
      out += '\\';
      out += escaped;
    }
  }
  return out;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct DataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

class SplitPattern::Matcher {
 public:
  std::optional<WordScanner> scanner;
  std::string literal;
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  CharClasses classes;
};

struct Search::State {
  std::unique_ptr<pcre2_match_data, DataDeleter> data;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context;
};

Result<SplitPattern> SplitPattern::regex(std::string_view expression, std::string_view where,
                                         bool allow_scanner) {
  auto matcher = std::make_shared<Matcher>();
  if (allow_scanner) matcher->scanner = scanner_of(expression);
  if (!matcher->scanner) {
    const std::string translated = to_pcre2(expression);
    int error = 0;
    PCRE2_SIZE offset = 0;
    matcher->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                      translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                                      nullptr));
    if (!matcher->code) {
      unsigned char message[200] = {};
      pcre2_get_error_message(error, message, sizeof message);
      return fail(ErrorCode::kUnsupported, "{}: the pattern \"{}\" does not compile: {} at {}",
                  where, expression, reinterpret_cast<const char*>(message), offset);
    }
    // Without JIT the pattern still works, only slower.
    pcre2_jit_compile(matcher->code.get(), PCRE2_JIT_COMPLETE);
  }
  SplitPattern pattern;
  pattern.matcher_ = std::move(matcher);
  return pattern;
}

SplitPattern SplitPattern::literal(std::string_view text) {
  auto matcher = std::make_shared<Matcher>();
  matcher->literal = text;
  SplitPattern pattern;
  pattern.matcher_ = std::move(matcher);
  return pattern;
}

bool SplitPattern::is_handwritten() const { return matcher_->scanner.has_value(); }

Search::Search(const SplitPattern& pattern, std::string_view text)
    : matcher_(*pattern.matcher_), text_(text) {
  if (!matcher_.code) return;
  state_ = std::make_unique<State>();
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  WEFT_CHECK(state_->data && state_->context, "out of memory");
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
}

Search::~Search() = default;

bool Search::next(PatternMatch& match) {
  if (at_ >= text_.size()) return false;
  if (matcher_.scanner) {
    if (!scan_word(*matcher_.scanner, matcher_.classes, text_, at_, match.begin, match.end)) {
      at_ = text_.size();
      return false;
    }
    at_ = match.end;
    return true;
  }
  if (!matcher_.code) {
    const std::size_t found =
        matcher_.literal.empty() ? std::string_view::npos : text_.find(matcher_.literal, at_);
    if (found == std::string_view::npos) {
      at_ = text_.size();
      return false;
    }
    match = {found, found + matcher_.literal.size()};
    at_ = match.end;
    return true;
  }
  const auto run = [&](std::uint32_t options) {
    return pcre2_match(matcher_.code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()),
                       text_.size(), at_, options | PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                       state_->data.get(), state_->context.get());
  };
  int found = run(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);
  if (found < 0) {
    at_ = text_.size();
    return false;
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data.get());
  match = {bounds[0], bounds[1]};
  if (match.end <= at_ || match.begin < at_) {  // \K and the like: no progress
    at_ = text_.size();
    return false;
  }
  at_ = match.end;
  return true;
}

}  // namespace weft::model
