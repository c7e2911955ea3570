"""`weft train`: a run killed with SIGKILL at any moment and resumed gives the bytes of
the run that was left alone; SIGTERM saves and exits with 130."""
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WEFT = os.environ.get("WEFT", "build/release/weft")


def text():
    """Sums in words, from one seed: something a tiny model can learn a little of."""
    rng = random.Random(5)
    lines = []
    for _ in range(400):
        a, b = rng.randrange(10), rng.randrange(10)
        lines.append(f"{a} plus {b} is {a + b}.")
    return "\n".join(lines) + "\n"


def config(folder, name, steps=40):
    path = folder / f"{name}.toml"
    path.write_text(f"""
[data]
files = ["{folder}/text.txt"]
[model]
hidden = 32
layers = 2
heads = 2
[train]
steps = {steps}
sequence_length = 48
batch = 8
checkpoint_every = 3
eval_every = 20
seed = 3
[sample]
prompt = "1 plus 2"
tokens = 12
[run]
directory = "{folder}/{name}"
""")
    return path


def run(*arguments):
    return subprocess.run([WEFT, "train", *map(str, arguments), "--threads", "1"],
                          capture_output=True, text=True, timeout=300)


def digests(run_directory):
    checkpoint = run_directory / "checkpoints" / (run_directory / "checkpoints/latest").read_text().strip()
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(checkpoint.iterdir())}


def losses(run_directory):
    rows = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def main():
    folder = Path(tempfile.mkdtemp(prefix="weft-train-"))
    (folder / "text.txt").write_text(text())

    whole = run(config(folder, "whole"), "--json")
    assert whole.returncode == 0, whole.stderr
    summary = json.loads(whole.stdout)
    assert summary["steps"] == 40 and summary["train_loss"] < 2.9, summary
    expected = digests(folder / "whole")
    assert {"model.safetensors", "training_state.safetensors", "config.json", "tokenizer.json",
            "MANIFEST.json"} <= set(expected), expected

    # Killed again and again, at moments that fall anywhere in a step or a checkpoint.
    path, rng, kills = config(folder, "killed"), random.Random(9), 0
    while True:
        process = subprocess.Popen([WEFT, "train", str(path), "--resume", "--threads", "1"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=rng.uniform(0.3, 1.0) if kills < 6 else 300)
            assert process.returncode == 0, process.stderr.read()
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert digests(folder / "killed") == expected
    assert losses(folder / "killed") == losses(folder / "whole")

    # SIGTERM saves where it stands; the rest follows with --resume.
    path = config(folder, "stopped", steps=4000)
    process = subprocess.Popen([WEFT, "train", str(path), "--threads", "1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = folder / "stopped" / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.read_text().count("\n") > 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    latest = (folder / "stopped/checkpoints/latest").read_text().strip()
    assert int(latest.removeprefix("step-")) >= 3, latest

    # Mistakes are refused with a sentence that says what to do.
    again = run(config(folder, "whole"))
    assert again.returncode == 2 and "--resume" in again.stderr, again.stderr
    other = run(config(folder, "whole"), "--resume", "--set", "model.hidden=64")
    assert other.returncode == 2 and "model.hidden" in other.stderr, other.stderr
    typo = run(config(folder, "typo"), "--set", "train.stpes=3")
    assert typo.returncode == 2 and "train.steps" in typo.stderr, typo.stderr
    missing = run(config(folder, "missing"), "--set", 'data.files=["nowhere.txt"]')
    assert missing.returncode == 2 and "nowhere.txt" in missing.stderr, missing.stderr

    # transformers reads the configuration and the tokenizer, safetensors the weights.
    try:
        from safetensors.numpy import load_file
        from transformers import AutoConfig, AutoTokenizer
    except ImportError:
        print("oracles are absent: the checkpoint was not read with transformers")
        return 0
    checkpoint = folder / "whole/checkpoints/step-00000040"
    loaded = AutoConfig.from_pretrained(checkpoint)
    assert loaded.hidden_size == 32 and loaded.num_hidden_layers == 2
    weights = load_file(checkpoint / "model.safetensors")
    assert weights["model.layers.1.self_attn.q_proj.weight"].shape == (32, 32)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    assert tokenizer.decode(tokenizer.encode("3 plus 4", add_special_tokens=False)) == "3 plus 4"
    return 0


if __name__ == "__main__":
    sys.exit(main())
