// config.json of Hugging Face: read, written back, refused by name.
#include "tests/support/data.h"
#include "weft/base/file.h"
#include "weft/model/config.h"

namespace weft::model {
namespace {

Json parse(std::string_view text) { return parse_json(text, "test").value(); }

Json small_llama() {
  return parse(R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"max_position_embeddings":512,
    "rms_norm_eps":1e-5,"hidden_act":"silu","bos_token_id":1,"eos_token_id":[2,3],"rope_theta":500000.0})");
}

void expect_round_trip(const ModelConfig& config) {
  const auto back = config_from_json(config_to_json(config), "back");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(*back == config) << dump_json(config_to_json(config)) << "\n"
                               << dump_json(config_to_json(*back));
}

TEST(ConfigJson, EveryRotaryScalingIsReadAndWrittenBack) {
  for (
      const char* scaling :
      {R"(null)", R"({"rope_type":"default"})", R"({"type":"linear","factor":4.0})",
       R"({"rope_type":"dynamic","factor":2.0})",
       R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":256})",
       R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":128,"beta_fast":32,"beta_slow":1})",
       R"({"type":"yarn","factor":4.0,"original_max_position_embeddings":128,"mscale":1.0,"mscale_all_dim":0.5})"}) {
    Json json = small_llama();
    json["rope_scaling"] = parse(scaling);
    const auto config = config_from_json(json, "test");
    ASSERT_TRUE(config) << scaling << ": " << config.error().message;
    expect_round_trip(*config);
  }
  // The form of transformers 5.
  Json json = small_llama();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_theta", 250000.0}, {"rope_type", "linear"}, {"factor", 2.0}};
  const auto config = config_from_json(json, "test");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rope.theta, 250000.0);
  EXPECT_EQ(config->rope.scaling, RopeScaling::kLinear);
  json["rope_parameters"]["rope_type"] = "longrope";
  EXPECT_EQ(config_from_json(json, "test").error().code, ErrorCode::kUnsupported);
}

TEST(ConfigJson, SlidingWindowsFollowTheFamily) {
  Json mistral = small_llama();
  mistral["model_type"] = "mistral";
  EXPECT_EQ(config_from_json(mistral, "test")->sliding_window, 4096);  // the class's default
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(config_from_json(mistral, "test")->sliding_window, 0);
  Json qwen = small_llama();
  qwen["model_type"] = "qwen2";
  qwen["sliding_window"] = 128;
  EXPECT_EQ(config_from_json(qwen, "test")->sliding_window, 0);  // not used unless asked
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 1;
  auto config = config_from_json(qwen, "test");
  EXPECT_EQ(config->sliding_window, 128);
  EXPECT_EQ(config->sliding_layers, (std::vector<bool>{false, true}));
  expect_round_trip(*config);
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  config = config_from_json(qwen, "test");
  EXPECT_EQ(config->sliding_layers, (std::vector<bool>{true, false}));
  expect_round_trip(*config);
}

TEST(ConfigJson, Gpt2IsReadAndWrittenBack) {
  const auto config = config_from_json(
      parse(
          R"({"architectures":["GPT2LMHeadModel"],"n_embd":64,"n_layer":2,"n_head":4,"n_positions":128,
        "vocab_size":100,"n_inner":null,"eos_token_id":50,"bos_token_id":50})"),
      "test");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->intermediate, 256);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_EQ(config->activation, Activation::kGeluTanh);
  expect_round_trip(*config);
}

TEST(ConfigJson, RealConfigurationsAreReadOrRefusedByName) {
  WEFT_NEED_DATA(folder, "models/configs");
  int read = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto json = parse_json(read_file(entry.path()).value(), entry.path().string());
    ASSERT_TRUE(json) << json.error().message;
    const auto config = config_from_json(*json, entry.path().string());
    if (config) {
      ++read;
      EXPECT_EQ(config->family, Family::kQwen3) << entry.path();
      EXPECT_EQ(config->head_dim, 128);
      EXPECT_TRUE(config->qk_norm);
      EXPECT_EQ(count(*config).parameters, 8190735360);  // Qwen3-8B's published 8.2B
      expect_round_trip(*config);
    } else {
      ++refused;
      EXPECT_EQ(config.error().code, ErrorCode::kUnsupported) << config.error().message;
      EXPECT_NE(config.error().message.find("model_type"), std::string::npos)
          << config.error().message;
    }
  }
  EXPECT_EQ(read, 1);
  EXPECT_EQ(refused, 5);
}

TEST(ConfigJson, WrongFieldsAreNamed) {
  const std::vector<std::pair<std::string, Json>> cases = {
      {"hidden_size", "wide"},
      {"num_key_value_heads", 3},
      {"num_hidden_layers", -1},
      {"vocab_size", 0},
      {"hidden_act", "relu"},
      {"rms_norm_eps", -1.0},
      {"eos_token_id", {"x"}},
      {"bos_token_id", 100},
      {"quantization_config", {{"quant_method", "gptq"}}},
      {"num_local_experts", 8},
      {"model_type", "mamba"}};
  for (const auto& [field, value] : cases) {
    Json json = small_llama();
    json[field] = value;
    const auto config = config_from_json(json, "bad/config.json");
    ASSERT_FALSE(config) << field;
    EXPECT_TRUE(config.error().message.starts_with("bad/config.json: ")) << config.error().message;
  }
  for (const char* field :
       {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"}) {
    Json json = small_llama();
    json.erase(field);
    const auto config = config_from_json(json, "bad/config.json");
    ASSERT_FALSE(config) << field;
    EXPECT_EQ(config.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(config.error().message.find(field), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace weft::model
