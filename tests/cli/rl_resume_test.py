"""`weft rl` killed with SIGKILL at random moments and resumed ends with the very bits of a run
that was left alone; SIGINT stops it after a step with a checkpoint."""

import glob
import hashlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time

WEFT = os.environ["WEFT"]
ARGS = ["--task", "modadd", "--algo", "grpo", "--steps", "60", "--prompts", "8", "--group", "8",
        "--checkpoint-every", "7", "--eval-every", "20", "--seed", "5", "--quiet"]


def start(run, resume=False):
    args = ["--resume", "--run", run, "--quiet"] if resume else [*ARGS, "--run", run]
    return subprocess.Popen([WEFT, "rl", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, expect=0):
    out, err = process.communicate(timeout=280)
    assert process.returncode == expect, (process.returncode, out, err)


def lines(path):
    try:
        with open(path) as f:
            return f.read().count("\n")
    except FileNotFoundError:
        return 0


def wait_for_lines(process, run, count):
    deadline = time.time() + 120
    while lines(f"{run}/metrics.jsonl") < count and process.poll() is None and time.time() < deadline:
        time.sleep(0.005)


def digest(run):
    """Everything that must be equal: weights, optimizer, metrics and evaluations."""
    result = {}
    for path in glob.glob(f"{run}/model/*") + glob.glob(f"{run}/checkpoints/step-00000060/*"):
        with open(path, "rb") as f:
            result[os.path.relpath(path, run)] = hashlib.sha256(f.read()).hexdigest()
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        rows = []
        with open(f"{run}/{name}") as f:
            for row in f:
                row = json.loads(row)
                row.pop("time", None)
                rows.append(row)
        result[name] = rows
    assert "model/model.safetensors" in result and len(result) > 4, list(result)
    assert [r["step"] for r in result["metrics.jsonl"]] == list(range(1, 61))
    assert max(r["logp_mismatch_max"] for r in result["metrics.jsonl"]) == 0
    return result


def main():
    random.seed(11)
    with tempfile.TemporaryDirectory() as root:
        whole, killed, stopped = f"{root}/whole", f"{root}/killed", f"{root}/stopped"
        finish(start(whole))

        process = start(killed)
        kills = 0
        for _ in range(4):
            wait_for_lines(process, killed, lines(f"{killed}/metrics.jsonl") + random.randint(3, 12))
            time.sleep(random.random() * 0.02)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.communicate(timeout=60)
            process = start(killed, resume=True)
        finish(process)
        assert kills >= 2, kills
        assert digest(killed) == digest(whole), "a killed and resumed run differs"

        process = start(stopped)
        wait_for_lines(process, stopped, 10)
        process.send_signal(signal.SIGINT)
        finish(process, expect=130)
        assert lines(f"{stopped}/metrics.jsonl") < 60
        finish(start(stopped, resume=True))
        assert digest(stopped) == digest(whole), "an interrupted and resumed run differs"

        # A resumed run keeps its configuration.
        bad = subprocess.run([WEFT, "rl", "--resume", "--run", whole, "--lr", "0.1"], capture_output=True, text=True)
        assert bad.returncode == 2 and "keeps its configuration" in bad.stderr, bad
        bad = subprocess.run([WEFT, "rl", *ARGS, "--run", whole], capture_output=True, text=True)
        assert bad.returncode == 2 and "already holds a run" in bad.stderr, bad
    print(f"equal bits after {kills} kills and an interrupt")


main()
