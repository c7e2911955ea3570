// The steps that cut a text into words, which the model then encodes one by one.
#pragma once

#include <string_view>
#include <vector>

#include "weft/model/split_pattern.h"
#include "weft/model/tokenizer_spec.h"

namespace weft::model {

class WordSink {
 public:
  virtual ~WordSink() = default;
  // `word` is not empty and valid only during the call.
  virtual void word(std::string_view word) = 0;
};

// Immutable; may be used from many threads. Works depth first, so that the memory
// it needs does not grow with the text.
class PreTokenizer {
 public:
  static Result<PreTokenizer> make(const std::vector<PreTokenizerSpec>& specs,
                                   std::string_view where);
  // `text` is valid UTF-8. `first`: it begins the whole input.
  void split(std::string_view text, bool first, WordSink& sink) const;

 private:
  enum class StepKind { kSplit, kPrefixSpace, kMetaspace, kToAlphabet };
  struct Step {
    StepKind kind;
    std::vector<SplitPattern> pattern = {};  // one, or none
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    std::string content = {};
    PrependScheme prepend = PrependScheme::kAlways;
    bool split = true;
  };
  void run(std::size_t step, std::string_view text, bool first, WordSink& sink) const;
  void run_split(std::size_t step, std::string_view text, bool first, WordSink& sink) const;

  std::vector<Step> steps_;
  bool in_alphabet_ = false;  // words leave the last step in GPT-2's alphabet
};

}  // namespace weft::model
