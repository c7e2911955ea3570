"""PyTorch (eager) and transformers behind the benchmark's line protocol.

usage: torch_peer.py MODEL_DIRECTORY THREADS [ISA]

ISA is what ours runs at: below amx, oneDNN is kept from AMX too
(ONEDNN_MAX_CPU_ISA), and the version says so.

Requests: {"kind": "train", "seqs": n, "length": l, "mode": "autocast"|"bf16"|"f32"}
            seconds of one step: forward, cross-entropy over all positions,
            backward, clipping, AdamW. autocast: f32 weights, products in bf16
            (the numerics of ours); bf16: weights and moments in bf16 too.
          {"kind": "generate", "seqs": n, "prompt": p, "new": k, "mode": "bf16"|"f32"}
            seconds of model.generate: n prompts of p tokens, k new tokens each,
            sampled at temperature 1
"""

import os
import sys
import time

import torch
import transformers
from line_protocol import serve


class Peer:
    def __init__(self, path):
        self.path = path
        self.models = {}
        self.optimizers = {}

    def model(self, dtype):
        if dtype not in self.models:
            self.models.clear()  # one at a time: memory
            self.optimizers.clear()
            self.models[dtype] = transformers.AutoModelForCausalLM.from_pretrained(
                self.path, dtype=dtype)
        return self.models[dtype]

    def tokens(self, rows, columns):
        generator = torch.Generator().manual_seed(1)
        return torch.randint(1000, 40000, (rows, columns), generator=generator)

    def train(self, request):
        mode = request["mode"]
        dtype = torch.bfloat16 if mode == "bf16" else torch.float32
        model = self.model(dtype)
        model.train()
        if dtype not in self.optimizers:
            self.optimizers[dtype] = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
        optimizer = self.optimizers[dtype]
        ids = self.tokens(request["seqs"], request["length"])
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
            logits = model(input_ids=ids, use_cache=False).logits
            # Next-token loss; written out because the model's own makes an f32 copy
            # of all logits.
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"seconds": time.perf_counter() - begin}

    def generate(self, request):
        model = self.model(torch.bfloat16 if request["mode"] == "bf16" else torch.float32)
        model.eval()
        ids = self.tokens(request["seqs"], request["prompt"])
        begin = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0,
                min_new_tokens=request["new"], max_new_tokens=request["new"],
                pad_token_id=0)
        seconds = time.perf_counter() - begin
        if out.shape[1] != request["prompt"] + request["new"]:
            raise RuntimeError(f"generate gave {tuple(out.shape)}")
        return {"seconds": seconds}


def main(arguments):
    path, threads, *rest = arguments
    cap = {"avx512": "AVX512_CORE_BF16", "avx2": "AVX2", "scalar": "SSE41"}.get("".join(rest))
    if cap:
        os.environ["ONEDNN_MAX_CPU_ISA"] = cap  # oneDNN reads it at its first operator
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    peer = Peer(path)
    version = f"PyTorch {torch.__version__} eager, transformers {transformers.__version__}"
    if cap:
        version += f", ONEDNN_MAX_CPU_ISA={cap}"
    serve(version, {"train": peer.train, "generate": peer.generate})


if __name__ == "__main__":
    main(sys.argv[1:])
