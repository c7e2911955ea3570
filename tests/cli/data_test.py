"""weft data ls: says what is present, absent or damaged, and fails on --verify."""

import hashlib
import json
import os
import subprocess
import tempfile

WEFT = os.environ["WEFT"]


def weft(*arguments, **environment):
    return subprocess.run([WEFT, "data", "ls", *arguments], capture_output=True, text=True,
                          check=False, timeout=60,
                          env={"PATH": os.environ["PATH"], **environment})


def entry(path, content):
    return {"path": path, "bytes": len(content), "licence": "MIT",
            "sha256": hashlib.sha256(content).hexdigest()}


def main():
    with tempfile.TemporaryDirectory() as folder:
        def manifest(entries):
            with open(os.path.join(folder, "MANIFEST.json"), "w", encoding="utf-8") as file:
                json.dump(entries, file)

        for name, content in {"good": b"one", "short": b"tw", "other": b"tri"}.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        manifest([entry("good", b"one"), entry("short", b"two"), entry("other", b"six"),
                  entry("gone", b"four")])

        plain = weft("--data", folder)
        assert plain.returncode == 0, plain.stderr
        assert plain.stdout.splitlines()[-1].startswith("1 absent, 2 present, 1 wrong size"), plain
        verified = weft("--verify", "--json", WEFT_DATA=folder)
        assert verified.returncode == 3, verified
        states = {row["path"]: row["state"] for row in map(json.loads, verified.stdout.splitlines())}
        assert states == {"good": "present", "short": "wrong size", "other": "wrong digest",
                          "gone": "absent"}, states
        only = weft("--data", folder, "--under", "goo", "--verify")
        assert only.returncode == 0 and only.stdout.endswith("1 present (3 B present)\n"), only

        manifest([entry("../outside", b"x")])
        outside = weft("--data", folder)
        assert outside.returncode == 2 and "entry 1" in outside.stderr, outside
        nowhere = weft()
        assert nowhere.returncode == 2 and "WEFT_DATA" in nowhere.stderr, nowhere


if __name__ == "__main__":
    main()
