#!/usr/bin/env bash
# clang-format and clang-tidy over our own files, without warnings.
# Usage: scripts/lint.sh [FILE.cpp...]   (default: every file in git)
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

if (($#)); then
  files=("$@")
else
  mapfile -t files < <(git ls-files '*.h' '*.cpp')
fi
clang-format-19 --dry-run -Werror "${files[@]}"
echo "lint: ${#files[@]} files are formatted"

# Only files that this configuration compiles can be checked. GCC's own options
# and its precompiled headers mean nothing to clang.
/usr/bin/python3 - build/release/compile_commands.json build/tidy <<'PY'
import json, os, re, sys
source, folder = sys.argv[1:]
commands = json.load(open(source, encoding="utf-8"))
for command in commands:
    text = re.sub(r"^\S*ccache\s+", "", command["command"])
    text = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -Wno-(restrict|stringop-overflow|maybe-uninitialized|dangling-pointer)", "", text)
    command["command"] = text + " -Wno-unknown-warning-option"
os.makedirs(folder, exist_ok=True)
json.dump(commands, open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8"))
PY
/usr/bin/python3 - "${files[@]}" <<'PY' | xargs -r -d '\n' -P "$jobs" -n 2 clang-tidy-19 -p build/tidy --quiet
import json, os, sys
compiled = {os.path.realpath(c["file"]) for c in json.load(open("build/tidy/compile_commands.json"))}
for path in sys.argv[1:]:
    if path.endswith(".cpp") and os.path.realpath(path) in compiled:
        print(path)
PY
echo "lint: clang-tidy has no warnings"
