#include "weft/state/run_identity.h"

#include "weft/base/file.h"
#include "weft/base/json.h"

namespace weft::state {

Result<RunId> identify_run(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "run.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    const RunId id = RunId::fresh();
    WEFT_TRY(write_file_atomic(file, Json{{"run_id", id.str()}}.dump(2) + "\n"));
    return id;
  }
  WEFT_ASSIGN(const std::string text, read_file(file));
  WEFT_ASSIGN(const Json json, parse_json(text, file.string()));
  auto name = json_field<std::string>(json, "run_id");
  if (!name) return std::unexpected(name.error().in(file.string()));
  auto id = RunId::parse(*name);
  if (!id)
    return fail(ErrorCode::kCorrupt, "{}: {}; remove the file to give the run a new identity",
                file.string(), id.error().message);
  return *id;
}

}  // namespace weft::state
