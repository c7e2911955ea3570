#include "weft/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  bool resume = false;
  int workers = 2;
  std::int64_t steps = 100;
  float rate = 0.5F;
  double decay = 0.1;
  std::string model;
  std::string schedule = "constant";
  std::vector<std::int64_t> sizes;
  std::vector<double> betas = {0.9, 0.95};
  std::vector<std::string> files;
};

class Config : public ::testing::Test {
 protected:
  Config() {
    schema.field("seed_text", &values.model).help("any text");
    schema.field("train.resume", &values.resume);
    schema.field("train.workers", &values.workers).range(1, 8);
    schema.field("train.steps", &values.steps).range(1, 1e9).help("optimizer steps");
    schema.field("train.rate", &values.rate).range(0, std::numeric_limits<double>::infinity());
    schema.field("optimizer.decay", &values.decay).range(0, 1);
    schema.field("optimizer.schedule", &values.schedule).choices({"constant", "cosine"});
    schema.field("optimizer.betas", &values.betas).range(0, 1);
    schema.field("data.sizes", &values.sizes);
    schema.field("data.files", &values.files);
  }
  std::string error_of(std::string_view text, std::vector<std::string> overrides = {}) {
    const auto status = schema.read_text(text, "run.toml", overrides);
    return status ? "no error" : status.error().message;
  }

  Values values;
  ConfigSchema schema;
};

TEST_F(Config, ReadsEveryType) {
  ASSERT_EQ(error_of(R"(
seed_text = "héllo"
[train]
resume = true
workers = 3
steps = 1_000
rate = 2
[optimizer]
decay = 0.25
schedule = "cosine"
betas = [0.5, 1]
[data]
sizes = [1, -2]
files = ["a", "b"]
)"),
            "no error");
  EXPECT_EQ(values.model, "héllo");
  EXPECT_TRUE(values.resume);
  EXPECT_EQ(values.workers, 3);
  EXPECT_EQ(values.steps, 1000);
  EXPECT_EQ(values.rate, 2.0F);
  EXPECT_EQ(values.decay, 0.25);
  EXPECT_EQ(values.schedule, "cosine");
  EXPECT_THAT(values.betas, ElementsAre(0.5, 1.0));
  EXPECT_THAT(values.sizes, ElementsAre(1, -2));
  EXPECT_THAT(values.files, ElementsAre("a", "b"));
}

TEST_F(Config, ErrorsGivePlaceKeyExpectedAndGot) {
  EXPECT_EQ(error_of("[train]\nsteps = \"ten\""),
            "run.toml:2:9: train.steps: expected an integer from 1 to 1000000000, got \"ten\"");
  EXPECT_EQ(error_of("[train]\nworkers = 9"),
            "run.toml:2:11: train.workers: expected an integer from 1 to 8, got 9");
  EXPECT_EQ(error_of("[train]\nsteps = 1.5"),
            "run.toml:2:9: train.steps: expected an integer from 1 to 1000000000, got 1.5");
  EXPECT_EQ(error_of("[train]\nrate = -1"),
            "run.toml:2:8: train.rate: expected a number of at least 0, got -1");
  EXPECT_EQ(error_of("[train]\nresume = 1"),
            "run.toml:2:10: train.resume: expected true or false, got 1");
  EXPECT_EQ(error_of("[optimizer]\nschedule = \"linear\""),
            "run.toml:2:12: optimizer.schedule: expected one of \"constant\", \"cosine\", got "
            "\"linear\"");
  EXPECT_EQ(error_of("[optimizer]\nbetas = [0.5, 2.0]"),
            "run.toml:2:9: optimizer.betas: expected a list, each element a number from 0 to 1, "
            "got [ 0.5, 2.0 ]");
  EXPECT_EQ(error_of("[train.steps]\na = 1"),
            "run.toml:1:1: train.steps: expected an integer from 1 to 1000000000, got a table");
  EXPECT_EQ(error_of("[optimizer]\ndecay = nan"),
            "run.toml:2:9: optimizer.decay: expected a number from 0 to 1, got nan");
}

TEST_F(Config, AnUnknownKeyGetsTheNearestName) {
  EXPECT_EQ(error_of("[train]\nstpes = 3"),
            "run.toml:2:1: unknown key train.stpes; did you mean train.steps?");
  EXPECT_EQ(error_of("[trian]\nsteps = 3"),
            "run.toml:2:1: unknown key trian.steps; did you mean train.steps?");
  EXPECT_EQ(error_of("[model]\nschedule = \"cosine\""),
            "run.toml:2:1: unknown key model.schedule; did you mean optimizer.schedule?");
  EXPECT_EQ(error_of("zzzzzzzzzzzz = 1"), "run.toml:1:1: unknown key zzzzzzzzzzzz");
  EXPECT_EQ(error_of("[train]\n[empty_table_here]"), "run.toml:2:2: unknown key empty_table_here");
}

TEST_F(Config, SyntaxErrorsGiveLineAndColumn) {
  EXPECT_THAT(error_of("[train]\nsteps = = 3"), HasSubstr("run.toml:2:9: "));
  EXPECT_THAT(error_of("a = 1\na = 2"), HasSubstr("run.toml:2:"));
}

TEST_F(Config, SeveralMistakesAreReportedTogetherAndNothingChanges) {
  const std::string error = error_of("[train]\nsteps = 7\nworkers = 0\n[optimizer]\ndecy = 1",
                                     {"train.rate=fast", "oops"});
  EXPECT_EQ(error,
            "run.toml:3:11: train.workers: expected an integer from 1 to 8, got 0\n"
            "run.toml:5:1: unknown key optimizer.decy; did you mean optimizer.decay?\n"
            "command line \"train.rate=fast\": train.rate: expected a number of at least 0, got "
            "\"fast\"\n"
            "command line \"oops\": expected key=value");
  EXPECT_EQ(values.steps, 100);
}

TEST_F(Config, OverridesWinAndTakeBareWords) {
  ASSERT_EQ(error_of("[train]\nsteps = 7", {"train.steps=8", "optimizer.schedule=cosine",
                                            "seed_text=135", "data.sizes=[4]"}),
            "no error");
  EXPECT_EQ(values.steps, 8);
  EXPECT_EQ(values.schedule, "cosine");
  EXPECT_EQ(values.model, "135");
  EXPECT_THAT(values.sizes, ElementsAre(4));
  // A value cannot smuggle in another key.
  ASSERT_EQ(error_of("", {"seed_text=1\ntrain.steps=9"}), "no error");
  EXPECT_EQ(values.model, "1\ntrain.steps=9");
}

TEST_F(Config, RequiredFieldsMustBeThere) {
  std::string path;
  schema.field("model.path", &path).required().help("a model file");
  EXPECT_EQ(error_of(""), "run.toml: model.path is missing (a model file)");
  EXPECT_EQ(error_of("", {"model.path=x.gguf"}), "no error");
  EXPECT_EQ(path, "x.gguf");
}

TEST_F(Config, TheDumpReadsBackToTheSameValues) {
  values.model = "quote \" slash \\ line\nend\x01 é";
  values.rate = 0.1F;
  values.decay = 1e-300;
  values.files = {"", "b c"};
  values.betas = {1, 1.0 / 3};
  const Values before = values;
  const std::string text = schema.dump();
  EXPECT_THAT(text, HasSubstr("[train]\nresume = false\n"));
  EXPECT_THAT(text, HasSubstr("steps = 100  # optimizer steps\n"));
  values = Values{};
  ASSERT_EQ(error_of(text), "no error");
  EXPECT_EQ(values.model, before.model);
  EXPECT_EQ(values.rate, before.rate);
  EXPECT_EQ(values.decay, before.decay);
  EXPECT_EQ(values.files, before.files);
  EXPECT_EQ(values.betas, before.betas);
  EXPECT_EQ(schema.dump(), text);
}

}  // namespace
}  // namespace weft
