// A writer that is killed, or a file that is damaged, costs at most the newest
// checkpoint, and the error names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <list>
#include <optional>

#include "weft/base/file.h"
#include "weft/state/checkpoint.h"

namespace weft::state {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = (fs::temp_directory_path() / "weft-checkpoint-XXXXXX").string();
    root_ = mkdtemp(name.data());
    config_.vocab_size = 8;
    config_.hidden = 4;
    config_.layers = 1;
    config_.heads = config_.kv_heads = 1;
    config_.head_dim = 4;
    config_.intermediate = 4;
    config_.max_position = 16;
    config_.tie_embeddings = true;
  }
  ~CheckpointTest() override { fs::remove_all(root_); }

  // Every weight and every training tensor holds `value`.
  CheckpointContent content(float value) {
    CheckpointContent c;
    c.config = config_;
    for (const model::TensorSpec& spec : model::tensor_specs(config_)) {
      std::int64_t count = 1;
      for (const std::int64_t d : spec.shape) count *= d;
      storage_.push_back(std::vector<float>(static_cast<std::size_t>(count), value));
      const TensorView view{reinterpret_cast<const std::byte*>(storage_.back().data()), DType::kF32,
                            spec.shape};
      c.weights.push_back({spec.name, view});
      c.training_state.push_back({"master/" + spec.name, view});
    }
    c.trainer = {{"step", value}};
    return c;
  }
  fs::path write(std::int64_t step, std::int64_t keep = 0) {
    auto path = write_checkpoint(root_, step, content(static_cast<float>(step)), keep);
    EXPECT_TRUE(path.has_value()) << path.error().message;
    return path.value_or(fs::path());
  }
  static float first_value(const Checkpoint& checkpoint) {
    return *reinterpret_cast<const float*>(checkpoint.training_state.tensors().front().view.data);
  }

  fs::path root_;
  model::ModelConfig config_;
  std::list<std::vector<float>> storage_;
};

TEST_F(CheckpointTest, ReadsBackWhatWasWritten) {
  const fs::path path = write(12);
  EXPECT_EQ(path.filename(), "step-00000012");
  EXPECT_EQ(*latest_checkpoint(root_), path);
  const auto read = read_checkpoint(path);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->step, 12);
  EXPECT_EQ(read->config.hidden, config_.hidden);
  EXPECT_EQ(read->trainer["step"], 12.0);
  EXPECT_EQ(first_value(*read), 12.0F);
}

TEST_F(CheckpointTest, EqualContentGivesEqualBytes) {
  const fs::path a = write(1);
  const std::string first = *read_file(a / "MANIFEST.json");
  EXPECT_EQ(*read_file(write(1) / "MANIFEST.json"), first);
}

TEST_F(CheckpointTest, AnyFileMissingTruncatedOrChangedIsFoundByName) {
  const fs::path good = write(1), bad = write(2);
  std::vector<fs::path> files;
  for (const auto& item : fs::directory_iterator(bad)) files.push_back(item.path());
  ASSERT_GE(files.size(), 5U);
  for (const fs::path& file : files) {
    const std::string bytes = *read_file(file);
    std::string changed = bytes;
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
    const std::vector<std::optional<std::string>> faults = {
        std::nullopt, "", bytes.substr(0, bytes.size() / 2), changed, bytes + "x"};
    for (std::size_t i = 0; i < faults.size(); ++i) {
      if (faults[i]) {
        ASSERT_TRUE(write_file_atomic(file, *faults[i]).has_value());
      } else {
        fs::remove(file);
      }
      const auto read = read_checkpoint(bad);
      ASSERT_FALSE(read.has_value()) << file << " fault " << i;
      EXPECT_THAT(read.error().message, testing::HasSubstr(file.filename().string()));
      std::vector<std::string> skipped;
      const auto newest = read_newest_checkpoint(root_, skipped);
      ASSERT_TRUE(newest.has_value());
      EXPECT_EQ(newest->path, good);
      EXPECT_EQ(skipped.size(), 1U);
      ASSERT_TRUE(write_file_atomic(file, bytes).has_value());
    }
  }
  EXPECT_TRUE(read_checkpoint(bad).has_value());
}

// A killed writer has made some prefix of its writes: temporary directories with some of
// the files, or a complete one that `latest` does not name yet.
TEST_F(CheckpointTest, AWriterKilledAtAnyPointLeavesThePreviousCheckpoint) {
  const fs::path good = write(1);
  const fs::path next = write(2);
  std::vector<fs::path> files;
  for (const auto& item : fs::directory_iterator(next)) files.push_back(item.path().filename());
  const fs::path whole = root_ / "whole";
  fs::rename(next, whole);
  for (std::size_t written = 0; written <= files.size(); ++written) {
    const fs::path partial = root_ / ".tmp-step-00000002-99";
    fs::create_directories(partial);
    for (std::size_t i = 0; i < written; ++i) fs::copy(whole / files[i], partial / files[i]);
    ASSERT_TRUE(write_file_atomic(root_ / "latest", "step-00000001\n").has_value());
    std::vector<std::string> skipped;
    const auto newest = read_newest_checkpoint(root_, skipped);
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->path, good);
    EXPECT_TRUE(skipped.empty());
    EXPECT_EQ(*latest_checkpoint(root_), good);
    // The next writer clears it away and succeeds.
    const fs::path again = write(2);
    EXPECT_FALSE(fs::exists(partial));
    EXPECT_EQ(first_value(*read_checkpoint(again)), 2.0F);
    fs::remove_all(again);
  }
}

TEST_F(CheckpointTest, AKilledProcessLeavesAUsableDirectory) {
  write(1);
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (std::int64_t step = 2;; ++step) {
        const auto made = write_checkpoint(root_, step, content(static_cast<float>(step)), 3);
        if (!made) _exit(1);
      }
    }
    usleep(3000 + 7000 * round);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    std::vector<std::string> skipped;
    const auto newest = read_newest_checkpoint(root_, skipped);
    ASSERT_TRUE(newest.has_value()) << newest.error().message;
    EXPECT_TRUE(skipped.empty());
    EXPECT_EQ(first_value(*newest), static_cast<float>(newest->step));
    const auto latest = latest_checkpoint(root_);
    ASSERT_TRUE(latest.has_value()) << latest.error().message;
    EXPECT_TRUE(read_checkpoint(*latest).has_value());
  }
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  for (std::int64_t step = 1; step <= 5; ++step) write(step, 2);
  EXPECT_FALSE(fs::exists(root_ / "step-00000003"));
  EXPECT_TRUE(fs::exists(root_ / "step-00000004"));
  EXPECT_TRUE(fs::exists(root_ / "step-00000005"));
  EXPECT_EQ((*latest_checkpoint(root_)).filename(), "step-00000005");
}

TEST_F(CheckpointTest, AnEmptyDirectoryHasNone) {
  std::vector<std::string> skipped;
  EXPECT_EQ(read_newest_checkpoint(root_, skipped).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(latest_checkpoint(root_).error().code, ErrorCode::kNotFound);
  std::ofstream(root_ / "latest") << "../../etc\n";
  EXPECT_EQ(latest_checkpoint(root_).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace weft::state
