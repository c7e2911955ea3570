"""Batch dumps of `weft rl` against numpy: advantages, objectives and their gradients, written
again from the formulas in double precision, with gradients by central
differences of the objective itself. Also `weft rl replay`: equal to the bit, damage is found."""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError:
    print("needs numpy and safetensors (deps/install.sh test)")
    sys.exit(77)

WEFT = os.environ["WEFT"]


def weft(*args, expect=0):
    done = subprocess.run([WEFT, *map(str, args)], capture_output=True, text=True, timeout=280)
    assert done.returncode == expect, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def read(path):
    with safe_open(path, "np") as f:
        meta = f.metadata()
        return meta, {k: f.get_tensor(k) for k in f.keys()}


def kl(kind, d):
    k = {"k1": d, "k2": d * d / 2, "k3": np.exp(-d) + d - 1}[kind]
    return np.clip(k, -10, 10)


def advantages(c, t):
    """[tokens] from rewards, groups and values."""
    off, g, r = t["offsets"], t["group"], t["reward"].astype(np.float64)
    lengths = np.diff(off)
    n = off[-1]
    cost = np.zeros(n)
    if c["kl"] > 0 and c["kl_in"] == "reward":
        cost = c["kl"] * kl(c["kl_estimator"], t["logp_old"].astype(np.float64) - t["logp_reference"])
    if c["advantage"] == "gae":
        a = np.zeros(n)
        v = t["value_old"].astype(np.float64)
        for i in range(len(g)):
            lo, hi = off[i], off[i + 1]
            rewards = -cost[lo:hi]
            rewards[-1] += r[i]
            nxt = np.append(v[lo + 1 : hi], 0.0)
            delta = rewards + c["gamma"] * nxt - v[lo:hi]
            powers = (c["gamma"] * c["lambda"]) ** np.arange(hi - lo)
            for k in range(hi - lo):
                a[lo + k] = np.dot(powers[: hi - lo - k], delta[k:])
        return (a - a.mean()) / np.sqrt(a.var(ddof=1) + 1e-8)
    r = r - np.array([cost[off[i] : off[i + 1]].sum() for i in range(len(g))])
    a = np.zeros_like(r)
    for k in np.unique(g):
        m = g == k
        x = r[m]
        if c["advantage"] == "grpo":
            a[m] = (x - x.mean()) / (x.std(ddof=1) + 1e-6)
        elif c["advantage"] == "rloo":
            a[m] = x - (x.sum() - x) / (len(x) - 1)
        else:
            a[m] = x - x.mean()
    a = np.repeat(a, lengths)
    if c["advantage"] == "reinforce-baseline":
        a = (a - a.mean()) / np.sqrt(a.var(ddof=1) + 1e-8)
    return a


def objective(c, a, off, logp, frozen, old, ref, entropy, value, value_old, returns):
    """J as a function of logp, entropy and value; stop-gradients see `frozen`."""
    lengths = np.diff(off)
    seq = np.repeat(np.arange(len(lengths)), lengths)
    low, high = 1 - c["clip_low"], 1 + c["clip_high"]

    def surrogate(rho):
        s = np.minimum(rho * a, np.clip(rho, low, high) * a)
        return np.where(a < 0, np.maximum(s, c["dual_clip"] * a), s) if c["dual_clip"] > 0 else s

    rho = np.exp(np.clip(logp - old, -20, 20))
    if c["objective"] == "ppo-clip":
        term = surrogate(rho)
    elif c["objective"] == "gspo":
        mean = np.bincount(seq, frozen - old) / lengths
        term = surrogate(np.exp(np.minimum(mean[seq], 10)) * np.exp(logp - frozen))
    elif c["objective"] == "cispo":
        term = np.clip(np.exp(frozen - old), low, high) * a * logp
    else:
        tau = np.where(a > 0, 1.0, 1.05)
        term = 4 / tau / (1 + np.exp(-tau * (rho - 1))) * a
    if c["kl"] > 0 and c["kl_in"] == "loss":
        term = term - c["kl"] * kl(c["kl_estimator"], logp - ref)
    if c["entropy"] > 0:
        term = term + c["entropy"] * entropy
    if value is not None:
        near = value_old + np.clip(value - value_old, -c["value_clip"], c["value_clip"])
        term = term - c["value_coefficient"] / 2 * np.maximum((value - returns) ** 2, (near - returns) ** 2)
    n = len(lengths)
    weight = {
        "token-mean": np.full(len(seq), 1 / len(seq)),
        "seq-mean-token-mean": 1 / (n * lengths[seq]),
        "seq-mean-token-sum": np.full(len(seq), 1 / n),
        "token-sum-over-constant": np.full(len(seq), 1 / (n * c["max_tokens"])),
    }[c["aggregation"]]
    return float((weight * term).sum())


def check(path):
    meta, t = read(path)
    c = json.loads(meta["config"])
    a = advantages(c, t)
    assert np.allclose(t["advantage"], a, atol=1e-5), (path, np.abs(t["advantage"] - a).max())
    worst = 0.0
    for k, u in enumerate(json.loads(meta["updates"])):
        b, e = u["begin"], u["end"]
        off = t["offsets"][b : e + 1] - t["offsets"][b]
        span = slice(t["offsets"][b], t["offsets"][e])

        def part(name):
            return t[name][span].astype(np.float64) if name in t else None

        x = t[f"update{k}.logp"].astype(np.float64)
        h = t[f"update{k}.entropy"].astype(np.float64)
        v = t[f"update{k}.value"].astype(np.float64) if f"update{k}.value" in t else None

        def value_of(x_, h_, v_):
            return objective(c, t["advantage"][span].astype(np.float64), off, x_, x, part("logp_old"),
                             part("logp_reference"), h_, v_, part("value_old"), part("returns"))

        def slope(which, i):
            d = 1e-6
            out = []
            for s in (d, -d):
                args = [x.copy(), h.copy(), None if v is None else v.copy()]
                args[which][i] += s
                out.append(value_of(*args))
            return (out[0] - out[1]) / (2 * d)

        rng = np.random.default_rng(k)
        for i in rng.choice(len(x), size=min(24, len(x)), replace=False):
            pairs = [("logp", 0)]
            if c["entropy"] > 0:
                pairs.append(("entropy", 1))
            if v is not None:
                pairs.append(("value", 2))
            for name, which in pairs:
                got = float(t[f"update{k}.gradient.{name}"][i])
                worst = max(worst, abs(got - slope(which, i)))
    assert worst < 1e-5, (path, worst)
    return worst


def main():
    with tempfile.TemporaryDirectory() as root:
        runs = [
            ("grpo", ["--kl", 0.05, "--kl-estimator", "k3"]),
            ("drgrpo", ["--entropy", 0.02]),
            ("dapo", []),
            ("rloo", ["--kl", 0.05, "--kl-in", "reward", "--kl-estimator", "k1"]),
            ("gspo", ["--entropy", 0.01]),
            ("ppo", ["--gamma", 0.99, "--lambda", 0.95]),
            ("cispo", []),
            ("sapo", ["--kl", 0.02, "--kl-estimator", "k2"]),
            ("reinforce", []),
        ]
        for algo, extra in runs:
            run = f"{root}/{algo}"
            # Several updates a batch at a high rate, so that ratios leave 1 and clips bite.
            weft("rl", "--task", "copy", "--algo", algo, "--steps", 2, "--prompts", 4, "--group", 4,
                 "--mini-batches", 2, "--epochs", 2, "--lr", 0.01, "--dump-steps", 2, "--eval-every", 100,
                 "--checkpoint-every", -1, "--seed", 3, "--run", run, "--quiet", *extra)
            for step in (1, 2):
                path = f"{run}/dumps/step-{step:08d}.safetensors"
                worst = check(path)
                answer = json.loads(weft("rl", "replay", path, "--json"))
                assert answer["different"] == 0 and answer["values"] > 100, answer
            print(f"{algo}: largest difference {worst:.1e}")

        path = f"{root}/grpo/dumps/step-00000001.safetensors"
        meta, tensors = read(path)
        tensors["advantage"][1] += np.float32(0.25)
        damaged = f"{root}/damaged.safetensors"
        save_file(tensors, damaged, metadata=meta)
        answer = json.loads(weft("rl", "replay", damaged, "--json", expect=3))
        assert answer["different"] == 1 and "advantage[1]" in answer["first_difference"], answer
        del tensors["reward"]
        save_file(tensors, damaged, metadata=meta)
        weft("rl", "replay", damaged, expect=2)
        with open(damaged, "wb") as f:
            f.write(b"\x08\0\0\0\0\0\0\0garbage!")
        weft("rl", "replay", damaged, expect=2)


main()
