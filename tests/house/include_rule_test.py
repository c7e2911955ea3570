"""The include rule: a room includes only itself and rooms above it, and libtorch
appears only where it may. Also shows that it finds what it looks for."""

import os
import re
import sys
import tempfile

ROOMS = ("base cluster workload model cost plan comm state nn train serve rl "
         "watch boot sched node sim cli web").split()

# Where libtorch's headers may be included. Headers there are private to the
# room: listed too, as a public header would carry libtorch into other rooms.
TORCH_FOLDERS = ("weft/nn/autograd/", "weft/train/", "weft/rl/", "weft/cli/learn/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|at|caffe2)/")


def violations(root):
    """The breaches below root, each "file: sentence"."""
    found = []
    for folder, _, names in os.walk(os.path.join(root, "weft")):
        for name in sorted(names):
            if not name.endswith((".h", ".cpp")):
                continue
            path = os.path.relpath(os.path.join(folder, name), root)
            room = path.split(os.sep)[1]
            if room not in ROOMS:
                found.append(f"{path}: {room} is no room")
                continue
            with open(os.path.join(root, path), encoding="utf-8") as file:
                includes = INCLUDE.findall(file.read())
            for include in includes:
                parts = include.split("/")
                if parts[0] == "weft":
                    if len(parts) < 3 or parts[1] not in ROOMS:
                        found.append(f"{path}: includes {include}, which is in no room")
                    elif ROOMS.index(parts[1]) > ROOMS.index(room):
                        found.append(f"{path}: includes {include}, of a room below")
                elif TORCH.match(include) and not path.startswith(TORCH_FOLDERS):
                    found.append(f"{path}: includes libtorch's {include}")
                elif os.path.exists(os.path.join(folder, include)):
                    found.append(f"{path}: includes {include} by a relative path")
    return found


def torch_reaches(root):
    """Headers outside TORCH_FOLDERS that include libtorch through others."""
    direct = {}
    for folder, _, names in os.walk(os.path.join(root, "weft")):
        for name in names:
            if name.endswith((".h", ".cpp")):
                path = os.path.relpath(os.path.join(folder, name), root)
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    direct[path] = INCLUDE.findall(file.read())
    reach = {path for path, includes in direct.items() if any(map(TORCH.match, includes))}
    grown = True
    while grown:
        more = {path for path, includes in direct.items() if reach.intersection(includes)} - reach
        grown = bool(more)
        reach |= more
    return [f"{path}: gets libtorch's headers through another header"
            for path in sorted(reach) if not path.startswith(TORCH_FOLDERS)]


def check_on_made_up_tree():
    """Each breach, planted, must be found; the good file must pass."""
    planted = {
        "weft/base/good.h": '#include <vector>\n#include "weft/base/result.h"\n',
        "weft/serve/good.cpp": '#include "weft/nn/ops.h"\n#include "weft/base/result.h"\n',
        "weft/train/good.cpp": '#include <torch/torch.h>\n#include "weft/train/private.h"\n',
        "weft/train/private.h": "#include <ATen/ATen.h>\n",
        "weft/model/below.h": '#include "weft/nn/ops.h"\n',
        "weft/base/torch.cpp": "  #  include <torch/torch.h>\n",
        "weft/state/aten.h": '#include "ATen/core/Tensor.h"\n',
        "weft/kitchen/room.h": "\n",
        "weft/nn/nowhere.h": '#include "weft/kitchen/room.h"\n',
        "weft/nn/through.h": '#include "weft/train/private.h"\n',
        "weft/serve/through.cpp": '#include "weft/train/private.h"\n',
        "weft/base/relative.cpp": '#include "good.h"\n',
    }
    with tempfile.TemporaryDirectory() as root:
        for path, text in planted.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = {line.split(":")[0] for line in violations(root) + torch_reaches(root)}
    expected = {"weft/model/below.h", "weft/base/torch.cpp", "weft/state/aten.h",
                "weft/kitchen/room.h", "weft/nn/nowhere.h", "weft/nn/through.h",
                "weft/serve/through.cpp", "weft/base/relative.cpp"}
    assert found == expected, f"planted {sorted(expected)}, found {sorted(found)}"


def main():
    check_on_made_up_tree()
    found = violations(".") + torch_reaches(".")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
