#!/usr/bin/env bash
# What `make test` runs after building: the model that the tests use (where it
# can be fetched), a short fuzz run, then ctest.
#
# WEFT_SLOW=1       also the slow tests
# WEFT_FUZZ_SECONDS seconds for each fuzz target (default here 3; 0 skips them)
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

model=${WEFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}/models/smollm2-135m-instruct
if ! compgen -G "$model/*.gguf" >/dev/null; then
  echo "test: fetching smollm2-135m-instruct (105 MB); without it the tests that need it are skipped"
  build/release/weft model fetch smollm2-135m-instruct ||
    echo "test: could not fetch the model; going on without it" >&2
fi

if [[ ${WEFT_FUZZ_SECONDS:-3} != 0 ]]; then
  WEFT_FUZZ_SECONDS=${WEFT_FUZZ_SECONDS:-3} scripts/fuzz.sh
fi

ctest --preset release -j "$jobs" --output-on-failure
