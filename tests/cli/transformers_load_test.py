"""Directories that `weft rl`, `weft train` and `weft model convert` save, loaded by transformers'
AutoModelForCausalLM and AutoTokenizer: equal ids and texts, log-probabilities within 1e-3 of ours
(f32 arithmetic on both sides). Needs the peers' Python, which has PyTorch (make peers)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

TOLERANCE = 1e-3
SMOLLM2 = "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"


# --- in the peers' Python ------------------------------------------------------------

def in_transformers(cases):
    """What transformers makes of each case: ids of the prompt, text of the reply, log-probabilities
    of its tokens and of the listed alternatives, logits of whole sequences."""
    import torch
    import transformers
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    answers = []
    for case in cases:
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            case["folder"], dtype=torch.float32, output_loading_info=True)
        faults = {key: sorted(map(str, names)) for key, names in loading.items() if names}
        answer = {"faults": faults, "dtype": model.config.dtype and str(transformers.AutoConfig.from_pretrained(
            case["folder"]).dtype), "model": type(model).__name__}
        with torch.inference_mode():
            if "sequence" in case:
                answer["logits"] = model(torch.tensor([case["sequence"]])).logits[0][case["positions"]].tolist()
            else:
                tokenizer = transformers.AutoTokenizer.from_pretrained(case["folder"])
                prompt = tokenizer(case["prompt"])["input_ids"]
                rows = model(torch.tensor([prompt + case["ids"]])).logits[0].double().log_softmax(-1)
                rows = rows[len(prompt) - 1:-1]
                answer |= {
                    "prompt_ids": prompt,
                    "text": tokenizer.decode(case["ids"], skip_special_tokens=True),
                    "logprobs": rows[torch.arange(len(rows)), torch.tensor(case["ids"])].tolist(),
                    "top": [row[torch.tensor(top)].tolist() for row, top in zip(rows, case["top"])],
                    "best": rows.max(-1).values.tolist(),
                    "eos": tokenizer.eos_token_id, "model_eos": model.generation_config.eos_token_id,
                }
        answers.append(answer)
    return answers


# --- here ------------------------------------------------------------------------------

def weft(*arguments):
    done = subprocess.run([os.environ["WEFT"], *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def reply_case(name, folder, prompt, tokens=16):
    """One greedy reply of ours with its log-probabilities."""
    reply = json.loads(weft("generate", folder, "--prompt", prompt, "--max-tokens", tokens, "--ignore-eos", "--json",
                            "--logprobs", 5, "--compute", "f32", "-q"))
    ids = json.loads(weft("model", "tokenize", folder, "--text", prompt, "--json"))
    return {"name": name, "folder": str(folder), "prompt": prompt, "prompt_ids": ids, "ids": reply["ids"],
            "text": reply["text"], "logprobs": [t["logprob"] for t in reply["logprobs"]],
            "top": [[t["id"] for t in token["top"]] for token in reply["logprobs"]],
            "top_logprobs": [[t["logprob"] for t in token["top"]] for token in reply["logprobs"]]}


def train_config(folder, name, **fields):
    text = folder / "text.txt"
    text.write_text("".join(f"{a} plus {b} is {a + b}.\n" for a in range(20) for b in range(20)))
    tables = {"data.files": [str(text)], "train.steps": 4, "train.sequence_length": 48, "train.batch": 4,
              "sample.prompt": "1 plus", "sample.tokens": 4, "run.directory": str(folder / name), **fields}
    path = folder / f"{name}.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in tables.items()))
    return path


def latest(run):
    return run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()


def cases_of(root, cache, data):
    """Every kind of directory that holds a model of ours."""
    cases = []
    weft("rl", "--task", "modadd", "--steps", 2, "--prompts", 2, "--group", 2, "--run", root / "modadd", "--quiet")
    cases.append(reply_case("rl/modadd/model", root / "modadd/model", "3+4=", 4))
    weft("rl", "--task", "copy", "--algo", "ppo", "--steps", 2, "--prompts", 2, "--group", 2, "--run", root / "copy",
         "--quiet", "--compute", "bf16")
    cases.append(reply_case("rl/copy/checkpoint/BF16", latest(root / "copy"), "12>", 4))
    weft("train", train_config(root, "scratch", **{"model.hidden": 64, "model.layers": 2, "model.heads": 4,
                                                   "model.kv_heads": 2}), "--quiet")
    cases.append(reply_case("train/scratch", latest(root / "scratch"), "3 plus 4"))
    stories = data / "models/stories260K/stories260K.bin"
    if stories.exists():
        weft("train", train_config(root, "stories", **{"model.from": str(stories)}), "--quiet")
        cases.append(reply_case("train/stories260K", latest(root / "stories"), "Once upon a time,  the naïve 猫", 48))
    if (cache / SMOLLM2).exists():
        weft("rl", "--task", "words", "--model", cache / SMOLLM2, "--compute", "f32", "--steps", 1, "--prompts", 2,
             "--group", 2, "--max-tokens", 4, "--eval-every", 1000, "--checkpoint-every", -1, "--run", root / "words",
             "--quiet")
        cases.append(reply_case("rl/words/model/SmolLM2", root / "words/model",
                                "Write a short story about a naïve cat 猫🙂.\n\nOnce", 32))
    else:
        print("SmolLM2 is not fetched: its directory is not compared")
    fixtures = pathlib.Path(__file__).parent.parent / "fixtures/families"
    for fixture in sorted(fixtures.iterdir()):
        weft("model", "convert", fixture, root / fixture.name, "--type", "F32")
        expected = json.loads((fixture / "expected.json").read_text())
        cases.append({"name": f"convert/{fixture.name}", "folder": str(root / fixture.name),
                      "sequence": expected["ids"], "positions": expected["positions"], "expected": expected["logits"]})
    return cases


def far(ours, theirs):
    flat = lambda x: [v for part in x for v in flat(part)] if isinstance(x, list) else [x]
    a, b = flat(ours), flat(theirs)
    assert len(a) == len(b) and a, (len(a), len(b))
    return max(abs(x - y) for x, y in zip(a, b))


def main():
    cache = pathlib.Path(os.environ.get("WEFT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft"))
    data = pathlib.Path(os.environ.get("WEFT_DATA") or "../shared/data")
    python = cache / "deps/peers/bin/python"
    if not python.exists():
        print("skipped: transformers with PyTorch is not installed (make peers)")
        return 77
    with tempfile.TemporaryDirectory(prefix="weft-transformers-") as folder:
        cases = cases_of(pathlib.Path(folder), cache, data)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run([python, __file__, "--peer"], input=json.dumps(cases), capture_output=True, text=True,
                              timeout=600, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
        answers = json.loads(done.stdout.splitlines()[-1])
    for case, answer in zip(cases, answers, strict=True):
        name = case["name"]
        assert not answer["faults"], (name, answer["faults"])
        if "sequence" in case:
            assert far(case["expected"], answer["logits"]) < TOLERANCE, name
            continue
        assert answer["dtype"] == ("torch.bfloat16" if name.endswith("BF16") else "torch.float32"), (name, answer)
        assert answer["prompt_ids"] == case["prompt_ids"], (name, answer["prompt_ids"], case["prompt_ids"])
        assert answer["text"] == case["text"], (name, answer["text"], case["text"])
        assert answer["eos"] is not None and answer["eos"] in (
            answer["model_eos"] if isinstance(answer["model_eos"], list) else [answer["model_eos"]]), (name, answer)
        worst = max(far(case["logprobs"], answer["logprobs"]), far(case["top_logprobs"], answer["top"]))
        # Greedy: what we took is the best of transformers' too, ties aside.
        short = far(answer["best"], answer["logprobs"])
        print(f"{name}: {answer['model']}, {len(case['ids'])} tokens, largest difference {worst:.1e}")
        assert worst < TOLERANCE and short < TOLERANCE, (name, worst, short)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--peer"]:
        print(json.dumps(in_transformers(json.load(sys.stdin))))
        sys.exit(0)
    sys.exit(main())
