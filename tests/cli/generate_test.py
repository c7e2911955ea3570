"""weft generate and weft model eval, end to end on stories260K."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import serve_process

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = os.environ.get("WEFT", str(ROOT / "build/release/weft"))
DATA = pathlib.Path(os.environ.get("WEFT_DATA", ROOT.parent / "shared/data"))
MODEL = DATA / "models/stories260K/stories260K.bin"
DAMAGED = DATA / "models/damaged/stories260K.bin"
TOKENIZER = DATA / "models/stories260K/tok512.bin"
# expected_stdout of karpathy/llama2.c:test_all.py, 200 greedy tokens from the BOS.
GOLDEN = "beeb5cb46785efee81a8545300b31e396b595e5ce6f3b77db201545501981d14"


def weft(*arguments, text=None, code=0, command="generate"):
    words = command.split()
    run = subprocess.run([WEFT, *words, *map(str, arguments)], input=text, capture_output=True,
                         text=True, timeout=120)
    assert run.returncode == code, (arguments, run.returncode, run.stderr)
    return run


def objects(*arguments, **options):
    return [json.loads(line) for line in weft(*arguments, "--json", **options).stdout.splitlines()]


def golden_story():
    run = weft(MODEL, "--prompt", "", "--max-tokens", 200)
    assert hashlib.sha256(run.stdout.removesuffix("\n").encode()).hexdigest() == GOLDEN, run.stdout
    assert "tokens/s" in run.stderr
    assert weft(MODEL, "--prompt", "", "--max-tokens", 200, "-q").stderr == ""


def served_over_http_it_is_the_same_story():
    ours = weft(MODEL, "--prompt", "", "--max-tokens", 200).stdout.removesuffix("\n")
    request = {"model": "stories260K", "prompt": "", "max_tokens": 200, "temperature": 0}
    with serve_process.serving(str(MODEL)) as server:
        request["model"] = json.loads(server.request("GET", "/v1/models")[2])["data"][0]["id"]
        whole = server.post("/v1/completions", request)
        status, _, stream = server.request("POST", "/v1/completions", {**request, "stream": True})
    assert whole["choices"][0]["text"] == ours
    assert hashlib.sha256(ours.encode()).hexdigest() == GOLDEN
    assert whole["usage"]["completion_tokens"] == 200, whole["usage"]
    events = [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data: ")]
    assert status == 200 and events[-1] == "[DONE]"
    assert "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) == ours


def text_continues_the_prompt():
    run = weft(MODEL, "--prompt", "Once upon a time", "--max-tokens", 8)
    assert run.stdout.startswith(", there was"), run.stdout
    assert weft(MODEL, "--max-tokens", 8, text="Once upon a time").stdout == run.stdout
    # A character that the prompt spells with several tokens is no part of the reply.
    (one,) = objects(MODEL, "--prompt", "Once upon a time, a 猫", "--max-tokens", 8)
    assert "\ufffd" not in one["text"] and "猫" not in one["text"], one


def json_says_what_was_sampled():
    (one,) = objects(MODEL, "--prompt", "Once", "--max-tokens", 12, "--logprobs", 3)
    assert set(one) == {"text", "ids", "finish_reason", "logprobs"}, one
    assert len(one["ids"]) == 12 and one["finish_reason"] == "length"
    for id_, entry in zip(one["ids"], one["logprobs"]):
        assert entry["id"] == id_ and entry["logprob"] <= 0
        assert len(entry["top"]) == 3 and entry["top"][0]["id"] == id_  # greedy
    (bare,) = objects(MODEL, "--prompt", "Once", "--max-tokens", 12)
    assert bare["logprobs"] is None and bare["ids"] == one["ids"]


def seeds_reproduce_and_batches_do_not_matter():
    options = ["--max-tokens", 30, "--temperature", 1, "--seed", 5]
    (alone,) = objects(MODEL, "--prompt", "One day", *options)
    assert objects(MODEL, "--prompt", "One day", *options) == [alone]
    (other,) = objects(MODEL, "--prompt", "One day", *options[:-1], 6)
    assert other["ids"] != alone["ids"]
    several = objects(MODEL, "--prompt", "One day", "-n", 5, *options)
    assert several[0]["ids"] == alone["ids"] and several[1]["ids"] != alone["ids"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write('The cat\n{"prompt": "One day"}\nLily and Ben\n')
        file.flush()
        batch = objects(MODEL, "--prompts", file.name, *options, "--batch-tokens", 3,
                        "--threads", 1)
        assert [one["prompt"] for one in batch] == [0, 1, 2]
        assert batch[1]["ids"] == alone["ids"]
        lines = weft(MODEL, "--prompts", file.name, "--max-tokens", 5).stdout.splitlines()
        assert len(lines) == 3, lines


def stops_before_the_stop_string():
    full = weft(MODEL, "--prompt", "Once upon a time", "--max-tokens", 40).stdout
    cut = objects(MODEL, "--prompt", "Once upon a time", "--max-tokens", 40, "--stop", "girl")[0]
    assert cut["finish_reason"] == "stop"
    assert cut["text"] == full[: full.index("girl")], cut


def errors_say_what_to_do():
    missing = weft("smollm2-135m-instruct", "--prompt", "x", code=2,
                   command="generate") if not fetched() else None
    if missing:
        assert "weft model fetch smollm2-135m-instruct" in missing.stderr, missing.stderr
    assert "nosuch" in weft("nosuch.gguf", "--prompt", "x", code=2).stderr
    assert "top_p" in weft(MODEL, "--prompt", "x", "--top-p", 7, code=2).stderr
    assert "chat template" in weft(MODEL, "--prompt", "x", "--chat", code=2).stderr
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write('Fine\n{"promt": "x"}\n')
        file.flush()
        assert f"{file.name}:2" in weft(MODEL, "--prompts", file.name, code=2).stderr


def fetched():
    cache = pathlib.Path(os.environ.get("WEFT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "weft"))
    return (cache / "models/smollm2-135m-instruct").exists()


def eval_tells_a_damaged_file():
    good = json.loads(weft(MODEL, "--json", command="model eval").stdout)
    assert good["perplexity"] < 20 and not good["worse_than_guessing"], good
    if not DAMAGED.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "stories260K.bin"
        copy.write_bytes(DAMAGED.read_bytes())
        (pathlib.Path(folder) / "tok512.bin").write_bytes(TOKENIZER.read_bytes())
        run = weft(copy, "--json", command="model eval", code=3)
        assert json.loads(run.stdout)["worse_than_guessing"]
        assert "damaged" in run.stderr
    same = json.loads(weft(MODEL, "--reference", MODEL, "--json", command="model eval").stdout)
    assert same["mean_kl"] == 0 and same["same_best"] == 1


def main():
    if not MODEL.exists():
        print(f"skipped: no file {MODEL}")
        sys.exit(77)
    for test in (golden_story, served_over_http_it_is_the_same_story, text_continues_the_prompt, json_says_what_was_sampled,
                 seeds_reproduce_and_batches_do_not_matter, stops_before_the_stop_string,
                 errors_say_what_to_do, eval_tells_a_damaged_file):
        test()
        print("ok", test.__name__)


if __name__ == "__main__":
    main()
