#!/usr/bin/env bash
# Installs what Weft needs: Debian packages from apt*.txt and pinned wheels.
# Usage: deps/install.sh build|test|lint|peers
#
# Everything that is not a Debian package lives in a per-user cache whose
# folders are named by the digest of the list they were made from, so clones
# share them and a changed list makes a new folder. A stamp makes a second call
# return at once.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-build}
cache=${WEFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}
mkdir -p "$cache/deps"
# One at a time for each cache; a second caller finds the work done.
exec 9>"$cache/deps/.lock"
flock 9

digest() { cat "$@" | sha256sum | cut -c1-16; }

# apt LIST: installs the packages of one list that are not there yet.
apt_list() {
  local list=$1 stamp missing=()
  stamp="$cache/deps/apt-$(digest "$list").ok"
  if [[ -f $stamp && $stamp -nt /var/lib/dpkg/status ]]; then return; fi
  local name
  while read -r name; do
    [[ -z $name || $name == \#* ]] && continue
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done < "$list"
  if ((${#missing[@]})); then
    echo "deps: installing ${#missing[@]} Debian packages: ${missing[*]}"
    local sudo=''
    if [[ $(id -u) != 0 ]]; then
      command -v sudo >/dev/null || { echo "deps: need root (or sudo) to install: ${missing[*]}" >&2; exit 1; }
      sudo=sudo
    fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
  touch "$stamp"
}

# wheels LIST DIR-PREFIX: unpacks pinned wheels into one folder, atomically.
wheels() {
  local list=$1 prefix=$2 dir
  dir="$cache/deps/$prefix-$(digest "$list")"
  if [[ ! -f $dir/.ok ]]; then
    echo "deps: installing $(grep -c -- --hash "$list") wheels of $list into $dir"
    rm -rf "$dir.part" "$dir"
    /usr/bin/python3 -m pip install --quiet --no-deps --require-hashes --no-compile --target "$dir.part" -r "$list"
    touch "$dir.part/.ok"
    mv "$dir.part" "$dir"
  fi
  ln -sfn "$dir" "$cache/deps/$prefix"
}

case $kind in
  build) apt_list deps/apt.txt; wheels deps/wheels.txt torch ;;
  test)  apt_list deps/apt-test.txt; wheels deps/oracles.txt oracles ;;
  lint)  apt_list deps/apt-lint.txt ;;
  peers)
    apt_list deps/apt-peers.txt
    apt_list deps/apt-peers-mpi.txt
    dir="$cache/deps/peers-$(digest deps/peers.txt deps/apt-peers.txt)"
    if [[ ! -f $dir/.ok ]]; then
      echo "deps: building the peers into $dir (llama.cpp from source: about 5 minutes on 2 cores)"
      rm -rf "$dir"
      /usr/bin/python3 -m venv "$dir"
      # AMX is left off: with it this llama.cpp crashes while it loads Q4_1.
      flags="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"
      if grep -q avx512_bf16 /proc/cpuinfo; then
        flags="$flags -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON -DGGML_AVX512_VBMI=ON"
      fi
      CMAKE_ARGS="$flags" "$dir/bin/pip" install --quiet --require-hashes --no-binary llama-cpp-python -r deps/peers.txt
      touch "$dir/.ok"
    fi
    ln -sfn "$dir" "$cache/deps/peers" ;;
  *) echo "usage: deps/install.sh build|test|lint|peers" >&2; exit 2 ;;
esac
