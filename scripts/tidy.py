"""clang-tidy over the files that build/release compiles, in parallel; files whose text, headers,
command and checks were found clean before are passed over.

Usage: scripts/tidy.py [FILE.cpp...]   (default: every .cpp in git)

A clean file leaves an empty mark, named by the digest of all that it was checked with, in
$XDG_CACHE_HOME/weft/tidy; clones share them. Needs a build: the headers of a file are taken from
ninja's record of its last compilation. JOBS=n sets the number of processes.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

BUILD = "build/release"
TIDY = "clang-tidy-19"
# GCC's own options and its precompiled headers mean nothing to clang.
FOREIGN = r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -Wno-(restrict|stringop-overflow|maybe-uninitialized|dangling-pointer)"


def clang_command(command):
    text = re.sub(r"^\S*ccache\s+", "", command)
    return re.sub(FOREIGN, "", text) + " -Wno-unknown-warning-option"


def headers_of_objects():
    """Object file -> files of this repository that its compilation read."""
    listing = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    root = os.path.realpath(".") + os.sep
    found, headers = {}, []
    for line in listing.splitlines():
        if line.startswith("    "):
            path = os.path.realpath(os.path.join(BUILD, line.strip()))
            if path.startswith(root) and not path.startswith(root + "build" + os.sep):
                headers.append(os.path.relpath(path))
        elif ": #deps" in line:
            headers = found[line.split(": #deps")[0]] = []
    return found


def digest(command, files):
    h = hashlib.sha256()
    for text in (VERSION, open(".clang-tidy", encoding="utf-8").read(), command.replace(os.path.realpath("."), "")):
        h.update(text.encode() + b"\0")
    for path in sorted(set(files)):
        h.update(path.encode() + b"\0" + open(path, "rb").read() + b"\0")
    return h.hexdigest()


def check(path):
    done = subprocess.run([TIDY, "-p", "build/tidy", "--quiet", path], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + ("" if done.returncode == 0 else done.stderr)


VERSION = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout


def main():
    wanted = sys.argv[1:] or subprocess.run(["git", "ls-files", "*.cpp"], capture_output=True, text=True, check=True).stdout.split()
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft", "tidy")
    os.makedirs(cache, exist_ok=True)
    os.makedirs("build/tidy", exist_ok=True)
    commands = json.load(open(f"{BUILD}/compile_commands.json", encoding="utf-8"))
    for c in commands:
        c["command"] = clang_command(c["command"])
    with open("build/tidy/compile_commands.json", "w", encoding="utf-8") as out:
        json.dump(commands, out)
    of = {os.path.relpath(c["file"]): c for c in commands}
    headers = headers_of_objects()
    todo, clean = {}, 0
    for path in wanted:
        if not path.endswith(".cpp") or os.path.relpath(path) not in of:
            continue
        c = of[os.path.relpath(path)]
        mark = os.path.join(cache, digest(c["command"], [path, *headers.get(re.search(r" -o (\S+)", c["command"]).group(1), [])]))
        if os.path.exists(mark):
            clean += 1
        else:
            todo[path] = mark
    print(f"lint: clang-tidy on {len(todo)} files; {clean} are unchanged since they were clean", flush=True)
    failed = []
    jobs = int(os.environ.get("JOBS") or os.cpu_count())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(check, path): path for path in todo}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            path = running[future]
            good, text = future.result()
            if good:
                open(todo[path], "w").close()
            else:
                failed.append(path)
                print(text, end="", flush=True)
            if number % 20 == 0:
                print(f"lint: {number} of {len(todo)}", flush=True)
    if failed:
        sys.exit(f"lint: clang-tidy has findings in {len(failed)} files: {' '.join(sorted(failed))}")
    print("lint: clang-tidy has no warnings")


main()
