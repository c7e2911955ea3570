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
          {"kind": "prefill", "prompt": p, "mode": "bf16"|"f32"}
            seconds of one pass over p tokens that keeps keys and values, logits of the last
          {"kind": "rl", "prompts": n, "group": g, "prompt": p, "new": k, "mode": "f32"}
            seconds of one GRPO step: g sampled replies of up to k tokens to each of n
            prompts of p tokens, a reward for digits, group advantages, one pass over
            prompts and replies with logits of the replies alone, backward, clipping,
            AdamW; and how many tokens were sampled
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

    def prefill(self, request):
        model = self.model(torch.bfloat16 if request["mode"] == "bf16" else torch.float32)
        model.eval()
        ids = self.tokens(1, request["prompt"])
        begin = time.perf_counter()
        with torch.inference_mode():
            model(input_ids=ids, use_cache=True, logits_to_keep=1)
        return {"seconds": time.perf_counter() - begin}

    def rl(self, request):
        model = self.model(torch.float32)
        if torch.float32 not in self.optimizers:
            self.optimizers[torch.float32] = torch.optim.AdamW(
                model.parameters(), lr=1e-5, foreach=True)
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.path)
        optimizer, group, new = self.optimizers[torch.float32], request["group"], request["new"]
        prompts = self.questions(request["prompts"], request["prompt"])
        eos = self.tokenizer.eos_token_id
        begin = time.perf_counter()
        model.eval()
        with torch.no_grad():
            ids = model.generate(
                prompts.repeat_interleave(group, 0), do_sample=True, temperature=1.0, top_k=0,
                attention_mask=torch.ones(len(prompts) * group, prompts.shape[1], dtype=torch.long),
                max_new_tokens=new, pad_token_id=eos)
        replies = ids[:, prompts.shape[1]:]
        mask = ((replies == eos).cumsum(1) - (replies == eos).long() == 0).float()
        texts = self.tokenizer.batch_decode(replies, skip_special_tokens=True)
        reward = torch.tensor([sum(c.isdigit() for c in t) / max(1, len(t)) for t in texts])
        reward = reward.view(-1, group)
        advantage = ((reward - reward.mean(1, keepdim=True)) /
                     (reward.std(1, keepdim=True) + 1e-6)).view(-1, 1)
        model.train()
        logits = model(input_ids=ids, use_cache=False,
                       logits_to_keep=replies.shape[1] + 1).logits[:, :-1]
        logp = -torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), replies.reshape(-1),
            reduction="none").view(replies.shape)
        ratio = (logp - logp.detach()).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = -((surrogate * mask).sum(1) / mask.sum(1)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"seconds": time.perf_counter() - begin, "tokens": float(mask.sum())}

    def questions(self, count, length):
        """Sums of two digits in the chat template, as the task `words` asks them."""
        rows = []
        for a in range(count):
            text = f"What is {a} + {9 - a % 7}? Reply with the number only."
            ids = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False)
            rows.append(ids)
        rows = torch.tensor(rows)
        if rows.shape[1] != length:
            raise RuntimeError(f"prompts of {rows.shape[1]} tokens, ours have {length}")
        return rows


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
    serve(version, {"train": peer.train, "generate": peer.generate, "prefill": peer.prefill,
                    "rl": peer.rl})


if __name__ == "__main__":
    main(sys.argv[1:])
