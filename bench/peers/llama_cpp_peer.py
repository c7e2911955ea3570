"""llama.cpp behind the benchmark's line protocol (bench/peer.h).

usage: llama_cpp_peer.py MODEL.gguf THREADS

Requests: {"kind": "decode", "seqs": n, "prompt": p, "new": k}
            seconds of k steps of n sequences after prompts of p tokens
          {"kind": "prefill", "prompt": p}
            seconds of one pass over p tokens, logits of the last
Only llama_decode is timed: picking the next token costs the peer nothing here,
while our own figure includes sampling and detokenising.
"""

import ctypes
import os
import time

from line_protocol import serve
from llama_cpp import llama_cpp as lib

SEQS = 64
CONTEXT = 32768  # cells, shared by all sequences
BATCH = 2048


class Quiet:
    """Keeps llama.cpp's own messages off stderr."""

    def __init__(self):
        self.callback = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.callback, ctypes.c_void_p(0))


class Engine:
    def __init__(self, path, threads):
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(
            path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        params = lib.llama_context_default_params()
        params.n_ctx = CONTEXT
        params.n_batch = BATCH
        params.n_ubatch = 512
        params.n_seq_max = SEQS
        params.n_threads = threads
        params.n_threads_batch = threads
        params.kv_unified = True
        self.context = lib.llama_init_from_model(self.model, params)
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(BATCH, 0, 1)

    def clear(self):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)

    def token(self, sequence, position):
        """Some token of the vocabulary's plain part, other for each place."""
        return 1000 + (sequence * 7919 + position * 104729) % (self.vocabulary - 2000)

    def run(self, rows):
        """One llama_decode of rows (sequence, position, wants logits)."""
        for index, (sequence, position, logits) in enumerate(rows):
            self.batch.token[index] = self.token(sequence, position)
            self.batch.pos[index] = position
            self.batch.n_seq_id[index] = 1
            self.batch.seq_id[index][0] = sequence
            self.batch.logits[index] = 1 if logits else 0
        self.batch.n_tokens = len(rows)
        begin = time.perf_counter()
        status = lib.llama_decode(self.context, self.batch)
        lib.llama_synchronize(self.context)
        seconds = time.perf_counter() - begin
        if status != 0:
            raise RuntimeError(f"llama_decode gave {status}")
        return seconds

    def decode(self, request):
        self.clear()
        seqs, prompt, new = request["seqs"], request["prompt"], request["new"]
        for sequence in range(seqs):
            self.run([(sequence, p, p == prompt - 1) for p in range(prompt)])
        return {"seconds": sum(self.run([(s, prompt + step, True) for s in range(seqs)])
                               for step in range(new))}

    def prefill(self, request):
        self.clear()
        prompt = request["prompt"]
        return {"seconds": self.run([(0, p, p == prompt - 1) for p in range(prompt)])}


def main(arguments):
    path, threads = arguments[0], int(arguments[1])
    quiet = Quiet()
    engine = Engine(path, threads)
    import llama_cpp
    version = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"
    serve(version, {"decode": engine.decode, "prefill": engine.prefill})
    del quiet
    os._exit(0)


if __name__ == "__main__":
    import sys
    main(sys.argv[1:])
