#!/usr/bin/env bash
# clang-format and clang-tidy over our own files, without warnings;
# clang-tidy passes over what it has found clean before (scripts/tidy.py).
# Usage: scripts/lint.sh [FILE.cpp...]   (default: every file in git)
set -euo pipefail
cd "$(dirname "$0")/.."

if (($#)); then
  files=("$@")
else
  mapfile -t files < <(git ls-files '*.h' '*.cpp')
fi
clang-format-19 --dry-run -Werror "${files[@]}"
echo "lint: ${#files[@]} files are formatted"

/usr/bin/python3 scripts/tidy.py "${files[@]}"
