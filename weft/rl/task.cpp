#include "weft/rl/task.h"

#include "weft/rl/file_tasks.h"
#include "weft/rl/words_task.h"

namespace weft::rl {

const InputProblems& Task::input_problems() const {
  static const InputProblems kNone;
  return kNone;
}

Result<std::unique_ptr<Task>> make_task(std::string_view spec, const FileTaskOptions& options,
                                        const VerifierOptions& verifier) {
  const std::size_t colon = spec.find(':');
  const std::string_view kind = spec.substr(0, colon);
  const std::string_view file = colon == std::string_view::npos ? "" : spec.substr(colon + 1);
  if (is_char_task(spec)) return make_char_task(spec, options.seed);
  if (spec == "words") return make_words_task(options.seed, options.format);
  if (kind == "gsm8k") return make_gsm8k_task(file, options);
  if (kind == "jsonl") return make_jsonl_task(file, options, verifier);
  return fail(ErrorCode::kInvalidArgument, "no task '{}'", spec);
}

Result<std::vector<model::TokenId>> encode_prompt(const PromptFormat& format,
                                                  std::string_view user) {
  if (!format.chat_template) return format.tokenizer->encode(user);
  Json message = Json::object();
  message["role"] = "user";
  message["content"] = std::string(user);
  Json extra = Json::object();
  const model::Tokenizer& tokenizer = *format.tokenizer;
  if (tokenizer.bos() >= 0) extra["bos_token"] = tokenizer.token_bytes(tokenizer.bos());
  if (!tokenizer.eos().empty()) extra["eos_token"] = tokenizer.token_bytes(tokenizer.eos().front());
  WEFT_ASSIGN(const std::string text,
              format.chat_template->render(Json::array({message}), true, extra));
  return format.tokenizer->encode(text, {.add_special = false, .parse_special = true});
}

}  // namespace weft::rl
