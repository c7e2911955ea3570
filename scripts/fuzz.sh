#!/usr/bin/env bash
# Builds the fuzz targets (clang, libFuzzer, address and undefined-behaviour
# sanitizers) and runs each, starting from its seeds in tests/fuzz/corpus.
# Usage: scripts/fuzz.sh [TARGET...]
#
# WEFT_FUZZ_SECONDS  seconds for each target (default 10)
#
# Inputs found on the way stay in build/fuzz/corpus and are used by the next
# run; an input that fails is left in build/fuzz/failures and named.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${WEFT_FUZZ_SECONDS:-10}
jobs=${JOBS:-$(nproc)}
export CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

if (($#)); then
  targets=("$@")
else
  targets=()
  for source in tests/fuzz/*_fuzz.cpp; do targets+=("$(basename "$source" _fuzz.cpp)"); done
fi

[[ -f build/fuzz/build.ninja ]] || cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$jobs" --target "${targets[@]/%/_fuzz}"

# run_target NAME: runs one target and says what it did, or where it failed.
run_target() {
  local name=$1 found=build/fuzz/corpus/$1 seeds=tests/fuzz/corpus/$1 log=build/fuzz/$1.log
  mkdir -p "$found" build/fuzz/failures
  local inputs=("$found")
  [[ -d $seeds ]] && inputs+=("$seeds")
  # Also in the environment of the undefined-behaviour sanitizer: stop at the first.
  if UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1 \
    "build/fuzz/tests/${name}_fuzz" -max_total_time="$seconds" -rss_limit_mb=2048 -malloc_limit_mb=1024 \
    -timeout=10 -max_len=65536 -verbosity=1 -print_final_stats=1 -use_value_profile=1 \
    -artifact_prefix="build/fuzz/failures/$name-" "${inputs[@]}" >"$log" 2>&1; then
    echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs in ${seconds} s, no failure"
  else
    echo "fuzz: $name FAILED; the end of $log:" >&2
    tail -40 "$log" >&2
    return 1
  fi
}
export -f run_target
export seconds

printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run_target "$1"' _ {}
