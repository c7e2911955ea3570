"""Cheap rules of the house: sizes and names of files, what a header begins with,
no paths of one machine. Also shows that it finds what it looks for."""

import os
import re
import subprocess
import sys

LONGEST = 800  # lines; the aim is 600, and a parser in one piece may pass it a little
SOURCES = (".h", ".cpp", ".py", ".sh", ".cmake")
NO_NAMES = re.compile(r"(^|[_/])(utils?|helpers?|common|misc|manager)([_./]|$)")
ONE_MACHINE = re.compile(r"(?<![\w.])/(work|root|home)/\w")
LARGEST = 1 << 20  # bytes; more belongs to fetched data


def check(path, text):
    """What is wrong with one file, as sentences."""
    wrong = []
    if NO_NAMES.search(path):
        wrong.append("the name says nothing about what is inside")
    if len(text) > LARGEST:
        wrong.append(f"has {len(text)} bytes, over {LARGEST}")
    if path.endswith(SOURCES):
        lines = text.decode("utf-8").splitlines()
        if len(lines) > LONGEST:
            wrong.append(f"has {len(lines)} lines, over {LONGEST}; split it")
        if path.startswith("weft/") and path.endswith(".h"):
            if not lines or not lines[0].startswith("//"):
                wrong.append("does not begin with a comment that says what it is")
            if "#pragma once" not in lines:
                wrong.append("lacks #pragma once")
        for number, line in enumerate(lines, 1):
            if ONE_MACHINE.search(line):
                wrong.append(f"line {number} names a path of one machine")
            if line.endswith((" ", "\t")):
                wrong.append(f"line {number} ends in a space")
    return wrong


def check_on_made_up_files():
    """Each rule, broken once, must be found; a good file must pass."""
    good = b"// What it is.\n#pragma once\n"
    assert not check("weft/base/good.h", good)
    for path, text in {
            "weft/base/string_utils.h": good,
            "weft/common/x.h": good,
            "weft/base/a.h": b"#pragma once\n",
            "weft/base/b.h": b"// What it is.\n",
            "weft/base/c.cpp": b"int x;\n" * (LONGEST + 1),
            "scripts/d.sh": b"cd /" + b"root/x\n",
            "weft/base/e.cpp": b"int x; \n",
            "docs/f.bin": b"x" * (LARGEST + 1),
    }.items():
        assert check(path, text), f"{path} should be found"


def main():
    check_on_made_up_files()
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode != 0:
        print("not a git checkout: skipped")
        return 77
    failed = False
    for path in filter(None, listed.stdout.decode().split("\0")):
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            for sentence in check(path, file.read()):
                print(f"{path}: {sentence}")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
