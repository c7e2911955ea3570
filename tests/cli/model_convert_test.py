#!/usr/bin/env python3
"""weft model convert and inspect against the packages gguf, safetensors and transformers.

A small random Llama, a small random GPT-2 and (where they are here) stories260K and
SmolLM2 go through every format and type. Quantised blocks must equal those of
gguf.quants byte for byte, and llama.cpp's where the peers are installed.
"""
import ctypes
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

WEFT = os.environ["WEFT"]
try:
    import gguf
    import numpy as np
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; run deps/install.sh test")
    sys.exit(77)

Q = gguf.GGMLQuantizationType
PLAIN = ["F32", "F16", "BF16"]
TYPES = PLAIN + ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"]
CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft"))
DATA = pathlib.Path(os.environ.get("WEFT_DATA") or "../shared/data")


def weft(*arguments, code=0):
    done = subprocess.run([WEFT, "model", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def convert(source, target, kind, *more):
    return json.loads(weft("convert", source, target, "--type", kind, "--json", *more).stdout)


def tensors(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def values(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])


# --- a small Llama, written by the gguf package -------------------------------------

def random_llama(path, width=256, layers=2, heads=4, kv_heads=2, hidden=512, vocabulary=96):
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)

    def add(name, *shape):
        data = rng.standard_normal(shape).astype(np.float32) * rng.uniform(0.01, 3)
        if len(shape) == 2:     # what quantisers find hard: empty rows, outliers, one sign, constants
            data[0] = 0
            data[1] *= np.where(rng.uniform(size=shape[1]) < 0.02, 50, 1).astype(np.float32)
            data[2] = np.abs(data[2])
            data[3] = -np.abs(data[3])
            data[4] = 0.125
            data[5] *= np.float32(1e-6)
            data[6, ::2] = 0
        writer.add_tensor(name, data)

    add("token_embd.weight", vocabulary, width)
    add("output.weight", vocabulary, width)
    add("output_norm.weight", width)
    kv = width // heads * kv_heads
    for i in range(layers):
        b = f"blk.{i}."
        add(b + "attn_norm.weight", width)
        add(b + "ffn_norm.weight", width)
        add(b + "attn_q.weight", width, width)
        add(b + "attn_k.weight", kv, width)
        add(b + "attn_v.weight", kv, width)
        add(b + "attn_output.weight", width, width)
        add(b + "ffn_gate.weight", hidden, width)
        add(b + "ffn_up.weight", hidden, width)
        add(b + "ffn_down.weight", width, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp_quantiser():
    for path in glob.glob(str(CACHE / "deps/peers/lib/python3*/site-packages/llama_cpp/lib/libggml-base.so")):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            print(f"llama.cpp's quantiser is not compared: {error}")
            return None
        chunk = library.ggml_quantize_chunk
        chunk.restype = ctypes.c_size_t
        chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                          ctypes.c_int64, ctypes.c_void_p]
        return chunk
    print("llama.cpp's quantiser is not compared: the peers are not installed (make peers)")
    return None


def check_types(root):
    source = root / "random.gguf"
    random_llama(source)
    before = tensors(source)
    llama_cpp = llama_cpp_quantiser()
    for kind in TYPES:
        target = root / f"random-{kind}.gguf"
        report = convert(source, target, kind)
        assert not report["fallbacks"], report
        after = tensors(target)
        assert list(after) and set(after) == set(before)
        for name, tensor in after.items():
            plain = values(before[name])
            if plain.ndim == 1:
                assert tensor.tensor_type == Q.F32, name
            if tensor.tensor_type.name in TYPES[:6]:   # the package dequantises K types only
                wanted = gguf.quants.quantize(plain, tensor.tensor_type)
                assert tensor.data.tobytes() == wanted.tobytes(), (kind, name)
            if llama_cpp is not None and plain.ndim == 2 and kind not in PLAIN:
                rows = np.ascontiguousarray(plain)
                out = np.zeros(tensor.data.nbytes, dtype=np.uint8)
                size = llama_cpp(int(tensor.tensor_type), rows.ctypes.data, out.ctypes.data, 0, rows.shape[0],
                                 rows.shape[1], None)
                assert size == out.nbytes, (kind, name)
                assert tensor.data.tobytes() == out.tobytes(), (kind, name, "differs from llama.cpp")
        # A few bits for the output matrix, as llama.cpp.
        few = kind in ("Q4_0", "Q4_1", "Q4_K", "Q5_K")
        assert after["output.weight"].tensor_type == (Q.Q6_K if few else Q[kind]), kind
        # Back to F32: exactly the reference's dequantised values.
        back = root / f"back-{kind}.gguf"
        convert(target, back, "F32")
        for name, tensor in tensors(back).items():
            assert np.array_equal(values(tensor), values(after[name])), (kind, name)
        # The same type again keeps every byte.
        again = root / f"again-{kind}.gguf"
        convert(target, again, kind)
        assert again.read_bytes() == target.read_bytes(), kind
    return source


def half_split(rows, heads):
    """GGUF's interleaved rows in the order of transformers."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def check_folder(root, source):
    """GGUF -> safetensors folder (sharded) -> GGUF, and the meaning of the folder's tensors."""
    folder = root / "folder"
    convert(source, folder, "F32", "--shard-gib", "0.002")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = {name: load_file(folder / name) for name in set(index["weight_map"].values())}
    assert len(shards) > 1
    held = {name: shards[shard][name] for name, shard in index["weight_map"].items()}
    file = tensors(source)
    q = half_split(values(file["blk.1.attn_q.weight"]), 4)
    k = half_split(values(file["blk.1.attn_k.weight"]), 2)
    assert np.array_equal(held["model.layers.1.self_attn.q_proj.weight"], q)
    assert np.array_equal(held["model.layers.1.self_attn.k_proj.weight"], k)
    assert np.array_equal(held["model.layers.0.mlp.down_proj.weight"], values(file["blk.0.ffn_down.weight"]))
    back = root / "from-folder.gguf"
    convert(folder, back, "F32")
    for name, tensor in tensors(back).items():
        assert np.array_equal(values(tensor), values(file[name])), name
    info = json.loads(weft("inspect", folder, "--json", "--verify").stdout)
    assert info["format"] == "safetensors" and info["verify"]["digest"] == "unknown"


def check_gpt2(root):
    """Transformers' GPT-2 (fused, transposed matrices) through GGUF and back."""
    rng = np.random.default_rng(3)
    width, layers, vocabulary, positions = 64, 2, 80, 32
    held = {"transformer.wte.weight": (vocabulary, width), "transformer.wpe.weight": (positions, width),
            "transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,)}
    for i in range(layers):
        h = f"transformer.h.{i}."
        held.update({h + "ln_1.weight": (width,), h + "ln_1.bias": (width,), h + "ln_2.weight": (width,),
                     h + "ln_2.bias": (width,), h + "attn.c_attn.weight": (width, 3 * width),
                     h + "attn.c_attn.bias": (3 * width,), h + "attn.c_proj.weight": (width, width),
                     h + "attn.c_proj.bias": (width,), h + "mlp.c_fc.weight": (width, 4 * width),
                     h + "mlp.c_fc.bias": (4 * width,), h + "mlp.c_proj.weight": (4 * width, width),
                     h + "mlp.c_proj.bias": (width,)})
    held = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in held.items()}
    folder = root / "gpt2"
    folder.mkdir()
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers, "n_head": 4,
        "n_positions": positions, "vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 0}))
    convert(folder, root / "gpt2.gguf", "F32")
    file = tensors(root / "gpt2.gguf")
    fused = values(file["blk.1.attn_qkv.weight"])
    assert np.array_equal(fused, held["transformer.h.1.attn.c_attn.weight"].T)
    convert(root / "gpt2.gguf", root / "gpt2-back", "F32")
    back = load_file(root / "gpt2-back" / "model.safetensors")
    assert set(back) == set(held), set(back) ^ set(held)
    for name, data in held.items():
        assert np.array_equal(back[name], data), name
    convert(folder, root / "gpt2-q8.gguf", "Q8_0")
    assert tensors(root / "gpt2-q8.gguf")["position_embd.weight"].tensor_type == Q.F32


def check_stories(root):
    source = DATA / "models/stories260K/stories260K.bin"
    if not source.exists():
        print(f"skipped stories260K: no {source}")
        return
    convert(source, root / "stories.gguf", "F32")
    convert(root / "stories.gguf", root / "stories", "F32")
    convert(root / "stories", root / "stories.bin", "F32")
    tables = 2 * 512 * 4 * 4
    assert (root / "stories.bin").read_bytes()[:-tables] == source.read_bytes()[:-tables]
    convert(source, root / "copy.bin", "F32")
    assert (root / "tok512.bin").read_bytes() == (source.parent / "tok512.bin").read_bytes()
    fields = gguf.GGUFReader(root / "stories.gguf").fields
    assert fields["tokenizer.ggml.model"].contents() == "llama"
    good = json.loads(weft("inspect", source, "--verify", "--json").stdout)
    assert good["verify"] == {"published_file": "stories260K.bin (karpathy/tinyllamas)", "digest": "intact",
                              "findings": [], "ok": True}, good["verify"]
    assert good["parameters"] == 260032
    damaged = root / "damaged"
    damaged.mkdir()
    shutil.copy(DATA / "models/damaged/stories260K.bin", damaged)
    shutil.copy(source.parent / "tok512.bin", damaged)
    bad = weft("inspect", damaged / "stories260K.bin", "--verify", code=3)
    assert "DIFFERS" in bad.stdout and "damaged" in bad.stderr, (bad.stdout, bad.stderr)


def check_smollm2(root):
    source = CACHE / "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not source.exists():
        print("skipped SmolLM2: not fetched")
        return
    info = json.loads(weft("inspect", source, "--json").stdout)
    assert info["parameters"] == 134515008 and info["kv_elements_per_token"] == 11520, info
    file = tensors(source)
    folder = root / "smollm2"
    convert(source, folder, "BF16")
    held = load_file_bf16(folder / "model.safetensors")
    q = half_split(values(file["blk.29.attn_q.weight"]), 9)
    wanted = gguf.quants.quantize(np.ascontiguousarray(q), Q.BF16)
    assert held["model.layers.29.self_attn.q_proj.weight"] == wanted.tobytes()
    # Columns of 576 are not whole blocks of 256: shown, and another type taken.
    report = convert(source, root / "k.gguf", "Q4_K")
    assert len(report["fallbacks"]) == 180 and "Q8_0" in report["fallbacks"][0], len(report["fallbacks"])
    assert report["tensor_types"] == {"F32": 61, "Q4_K": 30, "Q8_0": 181}, report["tensor_types"]
    # The file's own types: nothing but general.file_type may change.
    convert(source, root / "same.gguf", "Q4_1")
    same = tensors(root / "same.gguf")
    for name, tensor in file.items():
        assert same[name].data.tobytes() == tensor.data.tobytes(), name

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError as error:
        print(f"transformers is not compared: {error}")
        return
    config = AutoConfig.from_pretrained(folder)
    assert config.model_type == "llama" and config.num_key_value_heads == 3 and config.tie_word_embeddings
    assert config.rope_parameters["rope_theta"] == 100000.0, config.rope_parameters
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Hello, world! 12345 naïve 你好\n\tx"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text and len(tokenizer) == 49152
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False,
                                         add_generation_prompt=True)
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"), chat


def load_file_bf16(path):
    """Raw bytes by name (numpy has no bfloat16)."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    data = content[8 + size:]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


def check_refusals(root, source):
    """Each failure says why and leaves nothing behind."""
    before = sorted(p.name for p in root.iterdir())
    for target, kind, says in [("new.bin", "F16", "F32"), ("new-folder", "Q8_0", "safetensors folder holds"),
                               ("new.gguf", "Q7", "--type Q7"), ("new.pt", "F32", "Weft writes"),
                               ("random.gguf", "F32", "the model itself"), ("random-Q4_0.gguf", "F32", "--overwrite"),
                               ("absent/new.gguf", "F32", "no folder")]:
        done = weft("convert", source, root / target, "--type", kind, code=2)
        assert says in done.stderr, (target, done.stderr)
    done = weft("convert", root / "gpt2", root / "new.bin", "--type", "F32", code=2)
    assert "gpt2" in done.stderr, done.stderr
    done = weft("inspect", root / "nothing.gguf", code=2)
    assert "no file or directory" in done.stderr
    assert sorted(p.name for p in root.iterdir()) == before
    # NaN among the weights: no quantised form, and --verify says where.
    broken = bytearray(source.read_bytes())
    broken[-256:] = b"\xff" * 256
    (root / "nan.gguf").write_bytes(broken)
    done = weft("convert", root / "nan.gguf", root / "nan-q8.gguf", "--type", "Q8_0", code=2)
    assert "nan" in done.stderr and not (root / "nan-q8.gguf").exists(), done.stderr
    done = weft("inspect", root / "nan.gguf", "--verify", code=3)
    assert "64 NaN" in done.stdout, done.stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        source = check_types(root)
        check_folder(root, source)
        check_gpt2(root)
        check_refusals(root, source)
        check_stories(root)
        check_smollm2(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
