#include "weft/model/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "weft/model/unicode_text.h"

namespace weft::model {
namespace {

constexpr std::string_view kSpaceSymbol = "\u2581";
// Real files replace a space by three bytes; a hostile one must not exhaust memory.
constexpr std::size_t kMostGrowth = 1024;

std::string unicode_map(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  if (length < 0) return text;  // only for invalid UTF-8 or lack of memory
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
  std::free(mapped);
  return out;
}

// Calls change(code point, out) for each character.
template <class Change>
std::string each_character(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    change(point.value, out);
    at += point.length;
  }
  return out;
}

void append_lowercase(char32_t c, std::string& out) {
  if (c == 0x130) {  // the only one that becomes two (SpecialCasing.txt)
    out += "i\u0307";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_mark(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
         kind == UTF8PROC_CATEGORY_ME;
}

// The ranges of BERT's published tokenizer (google-research/bert, tokenization.py).
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_white(char32_t c) { return (CharClasses()(c) & kSpace) != 0; }

std::string bert(const NormalizerSpec& spec, std::string text) {
  if (spec.clean_text) {
    text = each_character(text, [](char32_t c, std::string& out) {
      if (c == 0 || c == kReplacement) return;
      // Controls go first: a vertical tab is removed, not made a space.
      const utf8proc_category_t kind = category(c);
      const bool control = kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
                           kind == UTF8PROC_CATEGORY_CO;
      if (c != '\t' && c != '\n' && c != '\r') {
        if (control) return;
        if (!is_white(c)) {
          append_utf8(out, c);
          return;
        }
      }
      out += ' ';
    });
  }
  if (spec.chinese_chars) {
    text = each_character(text, [](char32_t c, std::string& out) {
      if (is_chinese(c)) {
        out += ' ';
        append_utf8(out, c);
        out += ' ';
      } else {
        append_utf8(out, c);
      }
    });
  }
  if (spec.strip_accents.value_or(spec.lowercase)) {
    text = unicode_map(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    text = each_character(text, [](char32_t c, std::string& out) {
      if (category(c) != UTF8PROC_CATEGORY_MN) append_utf8(out, c);
    });
  }
  if (spec.lowercase) text = each_character(text, append_lowercase);
  return text;
}

std::string strip(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = 0, last = 0;
  bool started = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    at += point.length;
    if (is_white(point.value)) continue;
    if (!started) begin = at - point.length;
    started = true;
    last = at;
  }
  end = right ? last : text.size();
  if (!started) return left || right ? std::string() : std::string(text);
  if (!left) begin = 0;
  return std::string(text.substr(begin, end - begin));
}

std::string replace(const SplitPattern& pattern, std::string_view text, std::string_view by) {
  Search search(pattern, text);
  PatternMatch match;
  std::size_t at = 0;
  std::string out;
  while (search.next(match)) {
    out.append(text, at, match.begin - at);
    out += by;
    at = match.end;
  }
  out.append(text, at);
  return out;
}

// sentencepiece's rule set "nmt": controls go, odd spaces become spaces.
std::string nmt(std::string_view text) {
  return each_character(text, [](char32_t c, std::string& out) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F) {
      return;
    }
    const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    append_utf8(out, space ? U' ' : c);
  });
}

// `tokenizers` maps a short grapheme as a whole, and what is left character by
// character.
std::string precompiled(const CharacterMap& map, std::string_view text) {
  std::string out;
  const auto map_whole = [&](std::string_view part) {
    std::string_view replacement;
    // It takes the first hit, which is the shortest mapped prefix, for the whole part.
    if (map.find(part, 0, false, replacement) == 0) return false;
    out += replacement;
    return true;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    CodePoint point = decode_utf8(text, begin);
    std::size_t end = begin + point.length;
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      const CodePoint next = decode_utf8(text, end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(point.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state)) {
        break;
      }
      end += next.length;
      point = next;
    }
    const std::string_view grapheme = text.substr(begin, end - begin);
    begin = end;
    if (grapheme.size() < 6 && map_whole(grapheme)) continue;
    for (std::size_t at = 0; at < grapheme.size();) {
      const CodePoint c = decode_utf8(grapheme, at);
      const std::string_view part = grapheme.substr(at, c.length);
      if (!map_whole(part)) out += part;
      at += c.length;
    }
  }
  return out;
}

}  // namespace

bool is_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~') || (c >= 0x80 && (CharClasses()(c) & kPunctuation) != 0);
}

Result<CharacterMap> CharacterMap::parse(std::string_view blob, std::string_view where) {
  CharacterMap map;
  if (blob.empty()) return map;
  std::uint32_t bytes = 0;
  if (blob.size() < sizeof bytes) {
    return fail(ErrorCode::kCorrupt, "{}: the character map ends inside its header", where);
  }
  std::memcpy(&bytes, blob.data(), sizeof bytes);
  blob.remove_prefix(sizeof bytes);
  if (bytes == 0 || bytes % 4 != 0 || bytes > blob.size()) {
    return fail(ErrorCode::kCorrupt, "{}: the character map's trie has {} bytes of {} left", where,
                bytes, blob.size());
  }
  map.trie_.resize(bytes / 4);
  std::memcpy(map.trie_.data(), blob.data(), bytes);
  map.texts_ = blob.substr(bytes);
  map.texts_ += '\0';
  return map;
}

std::size_t CharacterMap::find(std::string_view text, std::size_t at, bool longest,
                               std::string_view& replacement) const {
  if (trie_.empty()) return 0;
  // darts-clone: bits 10..30 offset (bit 9: times 256), bit 8 has-leaf, bits 0..7
  // and 31 label; a leaf's low 31 bits are the value.
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); };
  std::size_t node = offset(trie_[0]);
  std::size_t best = 0;
  for (std::size_t position = at; position < text.size(); ++position) {
    const auto byte = static_cast<unsigned char>(text[position]);
    node ^= byte;
    if (node >= trie_.size()) break;
    const std::uint32_t unit = trie_[node];
    if ((unit & 0x800000FFU) != byte) break;
    node ^= offset(unit);
    if (node >= trie_.size()) break;
    if (unit >> 8 & 1) {
      const std::size_t value = trie_[node] & 0x7FFFFFFF;
      if (value >= texts_.size()) break;
      best = position + 1 - at;
      replacement = std::string_view(texts_.data() + value);
      if (!longest) break;
    }
  }
  return best;
}

Result<Normalizer> Normalizer::make(const std::vector<NormalizerSpec>& specs,
                                    std::vector<std::string> user_defined, std::string_view where) {
  Normalizer normalizer;
  std::size_t growth = 1;
  for (const NormalizerSpec& spec : specs) {
    Step step{spec, nullptr, nullptr};
    if (spec.content.size() > kMostGrowth && spec.kind == NormalizerSpec::Kind::kPrepend) {
      return fail(ErrorCode::kUnsupported,
                  "{}: a normalizer prepends {} bytes; at most {} are read", where,
                  spec.content.size(), kMostGrowth);
    }
    if (spec.kind == NormalizerSpec::Kind::kReplace) {
      const std::size_t shortest =
          spec.is_regex ? 1 : std::max<std::size_t>(spec.pattern.size(), 1);
      growth *= std::max<std::size_t>((spec.content.size() + shortest - 1) / shortest, 1);
      if (spec.content.size() > kMostGrowth || growth > kMostGrowth) {
        return fail(ErrorCode::kUnsupported,
                    "{}: the normalizers could make a text over {} times longer", where,
                    kMostGrowth);
      }
      if (spec.is_regex) {
        WEFT_ASSIGN(SplitPattern pattern, SplitPattern::regex(spec.pattern, where));
        step.pattern = std::make_shared<const SplitPattern>(std::move(pattern));
      } else {
        step.pattern = std::make_shared<const SplitPattern>(SplitPattern::literal(spec.pattern));
      }
    }
    if (spec.kind == NormalizerSpec::Kind::kPrecompiled ||
        spec.kind == NormalizerSpec::Kind::kSentencePiece) {
      WEFT_ASSIGN(CharacterMap map, CharacterMap::parse(spec.content, where));
      step.map = std::make_shared<const CharacterMap>(std::move(map));
    }
    normalizer.steps_.push_back(std::move(step));
  }
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  for (const std::string& symbol : user_defined) entries.emplace_back(symbol, 0);
  normalizer.user_defined_ = ByteTrie(std::move(entries));
  return normalizer;
}

std::string Normalizer::apply(std::string_view input) const {
  std::string text(input);
  for (const Step& step : steps_) {
    using Kind = NormalizerSpec::Kind;
    switch (step.spec.kind) {
      case Kind::kNfc:
        text = unicode_map(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        break;
      case Kind::kNfd:
        text = unicode_map(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
        break;
      case Kind::kNfkc:
        text = unicode_map(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
        break;
      case Kind::kNfkd:
        text = unicode_map(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
        break;
      case Kind::kLowercase:
        text = each_character(text, append_lowercase);
        break;
      case Kind::kPrepend:
        if (!text.empty()) text.insert(0, step.spec.content);
        break;
      case Kind::kReplace:
        text = replace(*step.pattern, text, step.spec.content);
        break;
      case Kind::kStrip:
        text = strip(text, step.spec.left, step.spec.right);
        break;
      case Kind::kStripAccents:
        text = each_character(text, [](char32_t c, std::string& out) {
          if (!is_mark(c)) append_utf8(out, c);
        });
        break;
      case Kind::kBert:
        text = bert(step.spec, std::move(text));
        break;
      case Kind::kNmt:
        text = nmt(text);
        break;
      case Kind::kPrecompiled:
        text = precompiled(*step.map, text);
        break;
      case Kind::kSentencePiece:
        text = sentencepiece(step, text);
        break;
    }
  }
  return text;
}

// After sentencepiece's description of NormalizerSpec: the longest mapped prefix is
// replaced, an invalid byte becomes U+FFFD, spaces are collapsed and escaped.
std::string Normalizer::sentencepiece(const Step& step, std::string_view text) const {
  const NormalizerSpec& spec = step.spec;
  std::string_view prefix;
  const auto next_prefix = [&](std::size_t at) -> std::size_t {
    std::int32_t ignored = 0;
    if (const std::size_t length = user_defined_.longest(text, at, ignored)) {
      prefix = text.substr(at, length);
      return length;
    }
    if (const std::size_t length = step.map->find(text, at, true, prefix)) return length;
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid) {
      prefix = kReplacementUtf8;
      return 1;
    }
    prefix = text.substr(at, point.length);
    return point.length;
  };
  std::size_t at = 0;
  if (spec.remove_extra_spaces) {
    while (at < text.size()) {
      const std::size_t length = next_prefix(at);
      if (prefix != " ") break;
      at += length;
    }
  }
  if (at == text.size()) return {};
  const std::string_view space = spec.escape_spaces ? kSpaceSymbol : std::string_view(" ");
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  if (!spec.space_as_suffix && spec.add_dummy_prefix) out += space;
  bool after_space = spec.remove_extra_spaces;
  while (at < text.size()) {
    at += next_prefix(at);
    while (after_space && prefix.starts_with(' ')) prefix.remove_prefix(1);
    if (!prefix.empty()) {
      for (const char c : prefix) {
        if (c == ' ') {
          out += space;
        } else {
          out += c;
        }
      }
      after_space = prefix.back() == ' ';
    }
    if (!spec.remove_extra_spaces) after_space = false;
  }
  if (spec.remove_extra_spaces) {
    while (out.ends_with(space)) out.resize(out.size() - space.size());
  }
  if (spec.space_as_suffix && spec.add_dummy_prefix) out += space;
  return out;
}

}  // namespace weft::model
