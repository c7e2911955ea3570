"""The modadd task from random weights. By default a short GRPO run to a lower bar; with WEFT_SLOW=1
every algorithm to its level of the specification, within 1,500 steps and 5 minutes on 2 cores, and
the entropy alarm on RLOO without the bonus.

From our initial weights RLOO without the bonus learns the task at the default learning rate (entropy
falls as the replies become right, which is no collapse); at four times that rate it collapses, and the
bonus prevents it."""

import json
import os
import subprocess
import sys
import tempfile
import time

WEFT = os.environ["WEFT"]
SLOW = os.environ.get("WEFT_SLOW", "0") not in ("", "0")


def train(root, name, steps, *args):
    begin = time.time()
    run = f"{root}/{name}"
    done = subprocess.run(
        [WEFT, "rl", "--task", "modadd", "--steps", str(steps), "--run", run, "--json", "--quiet",
         "--checkpoint-every", "-1", *map(str, args)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    summary = rows[-1]
    assert summary["logp_mismatch_max"] == 0
    for row in rows[:-1]:  # dynamic sampling may find nothing left to learn
        assert not row["skipped"] or "dynamic sampling" in row["skip_reason"], row
    seconds = time.time() - begin
    print(f"{name}: best greedy exact {summary['best_evaluation']['exact']:.3f} at step "
          f"{summary['best_evaluation']['step']}, {seconds:.0f} s, alarm at {summary['entropy_alarm_step']}", flush=True)
    return summary, rows[:-1], seconds


def main():
    with tempfile.TemporaryDirectory() as root:
        if not SLOW:
            summary, rows, _ = train(root, "grpo", 150, "--algo", "grpo")
            assert summary["best_evaluation"]["exact"] >= 0.25, summary
            assert rows[-1]["reward_mean"] > rows[0]["reward_mean"] + 0.15, (rows[0], rows[-1])
            return
        bars = [
            ("grpo", 0.95, ["--algo", "grpo"]),
            ("dapo", 0.95, ["--algo", "dapo"]),
            ("rloo", 0.95, ["--algo", "rloo", "--entropy", 0.02]),
            ("drgrpo", 0.90, ["--algo", "drgrpo", "--entropy", 0.02]),
            ("gspo", 0.90, ["--algo", "gspo", "--entropy", 0.01]),
        ]
        failed = []
        for name, bar, args in bars:
            summary, _, seconds = train(root, name, 1500, *args)
            if summary["best_evaluation"]["exact"] < bar:
                failed.append(f"{name}: {summary['best_evaluation']['exact']} is below {bar}")
            if seconds > 300:
                failed.append(f"{name}: {seconds:.0f} s")
        fast = ["--algo", "rloo", "--lr", 2e-3]
        alone, _, _ = train(root, "rloo-fast", 400, *fast)
        helped, _, _ = train(root, "rloo-fast-bonus", 400, *fast, "--entropy", 0.05)
        if alone["entropy_alarm_step"] == 0:
            failed.append("rloo without a bonus: no entropy alarm")
        if helped["entropy_alarm_step"] != 0:
            failed.append("rloo with a bonus: a false entropy alarm")
        if helped["best_evaluation"]["exact"] < alone["best_evaluation"]["exact"] + 0.2:
            failed.append(f"the bonus does not help: {alone['best_evaluation']} {helped['best_evaluation']}")
        assert not failed, failed


main()
sys.exit(0)
