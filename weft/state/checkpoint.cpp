#include "weft/state/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>

#include "weft/base/file.h"
#include "weft/base/hash.h"
#include "weft/model/huggingface.h"
#include "weft/model/safetensors.h"
#include "weft/model/tensor_source.h"

namespace weft::state {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kManifest = "MANIFEST.json";
constexpr std::string_view kStateFile = "training_state.safetensors";
constexpr std::string_view kTrainerFile = "trainer.json";
constexpr std::string_view kStepPrefix = "step-";
constexpr int kVersion = 1;

std::unexpected<Error> io_error(std::string_view what, const fs::path& path, std::error_code code) {
  return fail(ErrorCode::kIo, "cannot {} {}: {}", what, path.string(), code.message());
}

// Makes names that were added to a directory survive a power cut.
Status sync_directory(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("open", path, {errno, std::generic_category()});
  const int result = ::fsync(fd);
  const std::error_code code(errno, std::generic_category());
  ::close(fd);
  if (result != 0) return io_error("sync", path, code);
  return {};
}

Status make_directory(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) return io_error("create", path, code);
  return {};
}

Status move(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) return io_error("rename", from, code);
  return {};
}

// Swaps two existing paths at once, so that neither name is ever absent.
Status exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) {
    return io_error("exchange", a, std::error_code(errno, std::generic_category()));
  }
  return {};
}

// Directories that a killed writer left, and checkpoints on their way out.
bool is_leftover(std::string_view name) { return name.starts_with(".tmp-"); }

// Out of sight first, so that no reader meets a half-deleted checkpoint.
Status remove_checkpoint(const fs::path& path) {
  fs::path gone = path;
  if (!is_leftover(path.filename().string())) {
    gone = path.parent_path() / fmt::format(".tmp-old-{}-{}", path.filename().string(), ::getpid());
    std::error_code ignored;
    fs::remove_all(gone, ignored);
    WEFT_TRY(move(path, gone));
  }
  std::error_code code;
  fs::remove_all(gone, code);
  if (code) return io_error("remove", gone, code);
  return {};
}

struct Entry {
  std::int64_t step = 0;
  fs::path path;
};

// The complete checkpoints under root, the oldest first.
std::vector<Entry> list(const fs::path& root) {
  std::vector<Entry> entries;
  std::error_code code;
  for (const auto& item : fs::directory_iterator(root, code)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with(kStepPrefix) || !item.is_directory(code)) continue;
    Entry entry{.step = 0, .path = item.path()};
    const char *first = name.data() + kStepPrefix.size(), *last = name.data() + name.size();
    const auto parsed = std::from_chars(first, last, entry.step);
    if (parsed.ec == std::errc() && parsed.ptr == last) entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &Entry::step);
  return entries;
}

Status write_json(const fs::path& path, const Json& json) {
  return write_file_atomic(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// Size and digest of every file in `directory`.
Result<Json> describe_files(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code code;
  for (const auto& item : fs::directory_iterator(directory, code)) paths.push_back(item.path());
  if (code) return io_error("list", directory, code);
  std::ranges::sort(paths);
  Json files = Json::array();
  for (const fs::path& path : paths) {
    WEFT_ASSIGN(const MappedFile file, MappedFile::open(path));
    Json entry = Json::object();
    entry["name"] = path.filename().string();
    entry["bytes"] = file.bytes().size();
    entry["xxh3_128"] = xxh3_128(file.bytes()).hex();
    files.push_back(std::move(entry));
  }
  return files;
}

std::string self_digest(Json manifest) {
  manifest.erase("digest");
  return xxh3_128(bytes_of(dump_json(manifest))).hex();
}

Status write_manifest(const fs::path& directory, std::int64_t step) {
  Json manifest = Json::object();
  manifest["format"] = "weft-checkpoint";
  manifest["version"] = kVersion;
  manifest["step"] = step;
  WEFT_ASSIGN(manifest["files"], describe_files(directory));
  manifest["digest"] = self_digest(manifest);
  return write_json(directory / kManifest, manifest);
}

// Checks every file of the checkpoint; gives the manifest.
Result<Json> verify(const fs::path& directory) {
  const fs::path path = directory / kManifest;
  WEFT_ASSIGN(const std::string text, read_file(path));
  const auto corrupt = [&](std::string_view why) {
    return fail(ErrorCode::kCorrupt, "{} {}; use another checkpoint", path.string(), why);
  };
  auto parsed = parse_json(text, path.string());
  if (!parsed) return corrupt(fmt::format("is damaged ({})", parsed.error().message));
  const Json& manifest = *parsed;
  WEFT_ASSIGN(const std::string format, json_field<std::string>(manifest, "format"));
  if (format != "weft-checkpoint") return corrupt("is not the manifest of a checkpoint");
  WEFT_ASSIGN(const std::int64_t version, json_field<std::int64_t>(manifest, "version"));
  if (version != kVersion) {
    return fail(ErrorCode::kUnsupported, "{} has version {}; this program reads version {}",
                path.string(), version, kVersion);
  }
  WEFT_ASSIGN(const std::string digest, json_field<std::string>(manifest, "digest"));
  if (digest != self_digest(manifest)) return corrupt("does not match its own digest");
  if (!manifest.contains("files") || !manifest["files"].is_array())
    return corrupt("lists no files");
  for (const Json& entry : manifest["files"]) {
    WEFT_ASSIGN(const std::string name, json_field<std::string>(entry, "name"));
    WEFT_ASSIGN(const std::int64_t bytes, json_field<std::int64_t>(entry, "bytes"));
    WEFT_ASSIGN(const std::string expected, json_field<std::string>(entry, "xxh3_128"));
    if (name.empty() || name.find('/') != std::string::npos) {
      return corrupt(fmt::format("names the file \"{}\"", name));
    }
    const fs::path file_path = directory / name;
    if (!fs::exists(file_path)) {
      return fail(ErrorCode::kNotFound, "{} is missing; use another checkpoint",
                  file_path.string());
    }
    WEFT_ASSIGN(const MappedFile file, MappedFile::open(file_path));
    if (static_cast<std::int64_t>(file.bytes().size()) != bytes) {
      return fail(ErrorCode::kCorrupt, "{} has {} bytes where the manifest says {}",
                  file_path.string(), file.bytes().size(), bytes);
    }
    if (xxh3_128(file.bytes()).hex() != expected) {
      return fail(ErrorCode::kCorrupt, "{} does not match its digest in the manifest",
                  file_path.string());
    }
  }
  return parsed;
}

}  // namespace

Status write_model_directory(const fs::path& directory, const CheckpointContent& content) {
  if (content.weight_type != DType::kF32 && content.weight_type != DType::kBF16) {
    return fail(ErrorCode::kUnsupported, "a model directory holds F32 or BF16 weights, not {}",
                to_string(content.weight_type));
  }
  WEFT_TRY(make_directory(directory));
  model::WeightSet weights;
  for (const model::NamedTensor& tensor : content.weights) weights.add(tensor, nullptr);
  WEFT_ASSIGN(std::vector<model::TensorSource> sources,
              model::huggingface_tensors(content.config, weights, content.weight_type));
  WEFT_TRY(model::write_safetensors(directory / "model.safetensors", std::move(sources),
                                    {{"format", "pt"}}));
  return model::write_huggingface_files(directory, content.config, content.weight_type,
                                        content.tokenizer.get(), content.chat_template);
}

Result<fs::path> write_checkpoint(const fs::path& root, std::int64_t step,
                                  const CheckpointContent& content, std::int64_t keep_last) {
  if (step < 0 || step > 99999999) {
    return fail(ErrorCode::kOutOfRange, "step {} of a checkpoint is outside 0..99999999", step);
  }
  WEFT_TRY(make_directory(root));
  std::error_code code;
  std::vector<fs::path> leftovers;
  for (const auto& item : fs::directory_iterator(root, code)) {
    if (is_leftover(item.path().filename().string())) leftovers.push_back(item.path());
  }
  for (const fs::path& path : leftovers) WEFT_TRY(remove_checkpoint(path));

  const std::string name = fmt::format("{}{:08}", kStepPrefix, step);
  const fs::path temporary = root / fmt::format(".tmp-{}-{}", name, ::getpid());
  WEFT_TRY(write_model_directory(temporary, content));
  if (!content.training_state.empty()) {
    std::vector<model::TensorSource> sources;
    for (const model::NamedTensor& tensor : content.training_state) {
      sources.push_back(model::source_of(tensor.name, tensor.view));
    }
    WEFT_TRY(model::write_safetensors(temporary / kStateFile, std::move(sources), {}));
  }
  WEFT_TRY(write_json(temporary / kTrainerFile, content.trainer));
  WEFT_TRY(write_manifest(temporary, step));
  WEFT_TRY(sync_directory(temporary));

  const fs::path final_path = root / name;
  if (fs::exists(final_path)) {
    // A step written again: the old one stays until the new one is in its place.
    WEFT_TRY(exchange(temporary, final_path));
    WEFT_TRY(remove_checkpoint(temporary));
  } else {
    WEFT_TRY(move(temporary, final_path));
  }
  WEFT_TRY(sync_directory(root));
  WEFT_TRY(write_file_atomic(root / "latest", name + "\n"));

  if (keep_last > 0) {
    std::vector<Entry> entries = list(root);
    std::erase_if(entries, [&](const Entry& entry) { return entry.step == step; });
    const auto keep = static_cast<std::size_t>(keep_last - 1);
    for (std::size_t i = 0; i + keep < entries.size(); ++i) {
      WEFT_TRY(remove_checkpoint(entries[i].path));
    }
  }
  return final_path;
}

Result<fs::path> latest_checkpoint(const fs::path& root) {
  const fs::path pointer = root / "latest";
  if (!fs::exists(pointer)) {
    return fail(ErrorCode::kNotFound, "{} has no checkpoint", root.string());
  }
  WEFT_ASSIGN(std::string name, read_file(pointer, 4096));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (!name.starts_with(kStepPrefix) || name.find('/') != std::string::npos) {
    return fail(ErrorCode::kCorrupt, "{} does not name a checkpoint", pointer.string());
  }
  const fs::path path = root / name;
  if (!fs::is_directory(path)) {
    return fail(ErrorCode::kNotFound, "{} names {}, which does not exist", pointer.string(), name);
  }
  return path;
}

Result<Checkpoint> read_checkpoint(const fs::path& directory) {
  WEFT_ASSIGN(const Json manifest, verify(directory));
  Checkpoint checkpoint;
  checkpoint.path = directory;
  WEFT_ASSIGN(checkpoint.step, json_field<std::int64_t>(manifest, "step"));

  const fs::path config_path = directory / "config.json";
  WEFT_ASSIGN(const std::string config_text, read_file(config_path));
  WEFT_ASSIGN(const Json config, parse_json(config_text, config_path.string()));
  WEFT_ASSIGN(checkpoint.config, model::config_from_json(config, config_path.string()));

  const fs::path trainer_path = directory / kTrainerFile;
  WEFT_ASSIGN(const std::string trainer_text, read_file(trainer_path));
  WEFT_ASSIGN(checkpoint.trainer, parse_json(trainer_text, trainer_path.string()));

  const fs::path state_path = directory / kStateFile;
  if (fs::exists(state_path)) {
    WEFT_ASSIGN(const std::shared_ptr<const model::SafetensorsFile> file,
                model::SafetensorsFile::open(state_path));
    for (const model::NamedTensor& tensor : file->tensors()) {
      checkpoint.training_state.add(tensor, file);
    }
  }
  return checkpoint;
}

Result<Checkpoint> read_newest_checkpoint(const fs::path& root, std::vector<std::string>& skipped) {
  std::vector<Entry> entries = list(root);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    Result<Checkpoint> checkpoint = read_checkpoint(entry->path);
    if (checkpoint) return checkpoint;
    skipped.push_back(checkpoint.error().message);
  }
  if (!skipped.empty()) {
    return fail(ErrorCode::kCorrupt, "no checkpoint in {} is intact; the newest: {}", root.string(),
                skipped.front());
  }
  return fail(ErrorCode::kNotFound, "{} has no checkpoint", root.string());
}

}  // namespace weft::state
