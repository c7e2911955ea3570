// Any text is a configuration or a list of errors; an accepted one dumps to a
// text that is accepted and dumps the same. A second text, after a line of
// "---", is an override.
#include <cstdint>

#include "weft/base/config.h"

namespace {

struct Values {
  bool flag = false;
  int small = 1;
  std::int64_t steps = 10;
  float rate = 0.5F;
  double decay = 0.25;
  std::string text;
  std::vector<std::int64_t> sizes;
  std::vector<double> betas;
  std::vector<std::string> names;
};

void declare(weft::ConfigSchema& schema, Values& values) {
  schema.field("text", &values.text);
  schema.field("train.flag", &values.flag);
  schema.field("train.small", &values.small).range(-3, 3);
  schema.field("train.steps", &values.steps);
  schema.field("train.rate", &values.rate);
  schema.field("train.decay", &values.decay).range(0, 1);
  schema.field("data.sizes", &values.sizes);
  schema.field("data.betas", &values.betas);
  schema.field("data.names", &values.names).choices({"a", "b"});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto split = input.find("\n---\n");
  std::vector<std::string> overrides;
  if (split != input.npos) overrides.emplace_back(input.substr(split + 5));
  Values values;
  weft::ConfigSchema schema;
  declare(schema, values);
  const auto status = schema.read_text(input.substr(0, split), "input", overrides);
  const std::string dumped = schema.dump();
  if (!status) WEFT_CHECK(!status.error().message.empty());
  Values again;
  weft::ConfigSchema schema2;
  declare(schema2, again);
  const auto second = schema2.read_text(dumped, "dump");
  WEFT_CHECK(second.has_value(), "{}\n{}", second.error().message, dumped);
  WEFT_CHECK(schema2.dump() == dumped, "{}", dumped);
  return 0;
}
