#include "weft/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto result = parse_json(text, "file.json");
  return result ? "no error" : result.error().message;
}

TEST(Json, KeepsTypesAndTheOrderOfKeys) {
  const auto json =
      parse_json(R"({"z": 1, "a": [true, null, -2, 1.5, "\u00e9"], "m": {}})", "x").value();
  EXPECT_EQ(dump_json(json), "{\"z\":1,\"a\":[true,null,-2,1.5,\"é\"],\"m\":{}}");
}

TEST(Json, AnErrorGivesLineAndColumn) {
  EXPECT_THAT(error_of("{\n  \"a\": 1,\n  oops\n}"), HasSubstr("file.json:3:3: "));
  EXPECT_THAT(error_of(""), HasSubstr("file.json:1:1: "));
  EXPECT_THAT(error_of("[1] x"), HasSubstr("file.json:1:5: "));
  EXPECT_THAT(error_of("[\"\xff\"]"), HasSubstr("file.json:1:"));
  EXPECT_THAT(error_of("[\"\\ud800\"]"), HasSubstr("file.json:1:"));
  EXPECT_THAT(error_of("[1e999]"), HasSubstr("file.json:1:"));
}

TEST(Json, RefusesDuplicateKeysAndDeepNesting) {
  EXPECT_THAT(error_of(R"({"a": {"k": 1, "k": 2}})"), HasSubstr("\"k\" occurs twice"));
  EXPECT_THAT(error_of(R"({"a": 1, "b": 100000000000000000000, "a": 2})"),
              HasSubstr("\"a\" occurs twice"));
  const std::string open(512, '[');
  const std::string close(512, ']');
  EXPECT_TRUE(parse_json(open + close, "x").has_value());
  EXPECT_THAT(error_of("[" + open + close + "]"), HasSubstr("deeper than 512"));
  EXPECT_THAT(error_of(std::string(5'000'000, '[')), HasSubstr("deeper than 512"));
}

TEST(Json, IntegersBeyond64BitsBecomeDoubles) {
  // As in the tokenizer_config.json of many models.
  const auto json =
      parse_json(R"({"model_max_length": 1000000000000000019884624838656})", "x").value();
  EXPECT_EQ(json_field<double>(json, "model_max_length").value(), 1e30);
  EXPECT_FALSE(json_field<std::int64_t>(json, "model_max_length").has_value());
}

TEST(Json, FieldsAreTypedAndErrorsNameThem) {
  const auto json = parse_json(R"({"n": 3, "f": 2.5, "w": 4.0, "s": "x", "b": false, "nil": null,
                                   "big": 9000000000, "list": [1]})",
                               "x")
                        .value();
  EXPECT_EQ(json_field<std::int64_t>(json, "n").value(), 3);
  EXPECT_EQ(json_field<std::int64_t>(json, "w").value(), 4);
  EXPECT_EQ(json_field<double>(json, "n").value(), 3.0);
  EXPECT_EQ(json_field<std::string>(json, "s").value(), "x");
  EXPECT_FALSE(json_field<bool>(json, "b").value());
  EXPECT_EQ(json_field_or<int>(json, "nil", 7).value(), 7);
  EXPECT_EQ(json_field_or<int>(json, "absent", 7).value(), 7);
  EXPECT_EQ(json_field<const Json*>(json, "list").value()->size(), 1U);
  EXPECT_THAT(json_field<std::int64_t>(json, "f").error().message, HasSubstr("\"f\""));
  EXPECT_THAT(json_field<std::int64_t>(json, "s").error().message,
              HasSubstr("\"s\" must be an integer, not a string"));
  EXPECT_THAT(json_field<int>(json, "big").error().message, HasSubstr("out of range"));
  EXPECT_THAT(json_field<bool>(json, "nil").error().message, HasSubstr("\"nil\" is missing"));
  EXPECT_THAT(json_field<bool>(json["list"], "k").error().message, HasSubstr("an array"));
}

TEST(Json, DumpReplacesInvalidUtf8) {
  EXPECT_EQ(dump_json(Json("a\xff"
                           "b")),
            "\"a\xef\xbf\xbd"
            "b\"");
}

}  // namespace
}  // namespace weft
