"""Mean KL divergence of quantised files from their F32 original, ours and llama.cpp's.

Runs in the peers' environment, with the path of the built binary in WEFT:
    WEFT=build/release/weft ~/.cache/weft/deps/peers/bin/python bench/kl.py TEXT

TEXT is a file such as WikiText-2's. The files are made from SmolLM2's Q4_1 file by
llama.cpp's quantiser. Each program is compared with its own result on the F32 file,
over the first 4 windows of 512 tokens (every prediction scored; a number after TEXT
skips so many at the start of each window). KL_TYPES, KL_COMPUTE (our arithmetic: bf16,
f32, int8) and KL_THREADS (llama.cpp's) narrow or widen the run. One JSON object a
line: {"case", "unit", "ours", "peer", "peer_version", "ratio", ...}.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests/fixtures"))
import llama_oracle  # noqa: E402

WINDOW, WINDOWS = 512, 4
THREADS = int(os.environ.get("KL_THREADS", "2"))
TYPES = os.environ.get("KL_TYPES", "BF16,Q8_0,Q4_1,Q4_0").split(",")
COMPUTES = os.environ.get("KL_COMPUTE", "bf16").split(",")


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


def scored_rows(path, windows, first):
    """Log-probabilities of the scored positions of each window."""
    session = llama_oracle.Session(path, context=WINDOW, threads=THREADS)
    for tokens in windows:
        session.reset()
        yield log_softmax(session.decode(tokens, every=True)[first:-1])
    session.close()


def peer(path, bases, windows, first):
    kl, nll, count = 0.0, 0.0, 0
    for tokens, model, base in zip(windows, scored_rows(path, windows, first), bases):
        kl += float((numpy.exp(base) * (base - model)).sum())
        nll -= float(model[numpy.arange(len(model)), tokens[first + 1:]].sum())
        count += len(model)
    return {"mean_kl": kl / count, "perplexity": float(numpy.exp(nll / count)), "tokens": count}


def ours(path, reference, text, first, compute):
    command = [os.environ["WEFT"], "model", "eval", str(path), "--reference", str(reference),
               "--text", text, "--window", str(WINDOW), "--windows", str(WINDOWS), "--skip",
               str(first), "--compute", compute, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    text = sys.argv[1]
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    source = llama_oracle.smollm2()
    f32 = llama_oracle.requantized(source, "F32")
    session = llama_oracle.Session(f32, context=WINDOW)
    head = pathlib.Path(text).read_text()[: WINDOW * WINDOWS * 16]
    ids = session.tokenize(head)
    session.close()
    windows = [ids[i * WINDOW:(i + 1) * WINDOW] for i in range(WINDOWS)]
    bases = list(scored_rows(f32, windows, first))
    for kind in TYPES:
        path = llama_oracle.requantized(source, kind)
        theirs = peer(path, bases, windows, first)
        for compute in ["f32"] if kind == "F32" else COMPUTES:
            mine = ours(path, f32, text, first, compute)
            print(json.dumps({
                "case": f"kl/{kind}/{compute}", "unit": "nats",
                "ours": round(mine["mean_kl"], 7), "peer": round(theirs["mean_kl"], 7),
                "peer_version": f"llama-cpp-python {llama_oracle.llama_cpp.__version__}",
                "ratio": round(mine["mean_kl"] / theirs["mean_kl"], 4) if theirs["mean_kl"] else None,
                "ours_perplexity": round(mine["perplexity"], 4),
                "peer_perplexity": round(theirs["perplexity"], 4), "tokens": theirs["tokens"],
            }), flush=True)


if __name__ == "__main__":
    main()
