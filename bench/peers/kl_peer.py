"""llama.cpp's divergence from its own F32 result, behind the benchmark's line protocol.

usage: kl_peer.py F32.gguf TEXT BYTES THREADS

Requests: {"kind": "kl", "file": FILE.gguf}
            mean Kullback-Leibler divergence, in nats, of the file's distribution from
            that of F32.gguf, over the first 4 windows of 512 tokens of the text's first
            BYTES bytes, every prediction scored; perplexity; how many were scored
"""

import pathlib
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "tests/fixtures"))
import llama_oracle  # noqa: E402
from line_protocol import serve  # noqa: E402

WINDOW, WINDOWS = 512, 4


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


class Peer:
    def __init__(self, f32, text, size, threads):
        self.f32, self.threads, self.bases, self.windows = f32, threads, None, None
        self.text = pathlib.Path(text).read_bytes()[:size].decode(errors="ignore")

    def rows(self, path):
        """Log-probabilities of every prediction, window by window."""
        session = llama_oracle.Session(path, context=WINDOW, threads=self.threads)
        for tokens in self.windows:
            session.reset()
            yield log_softmax(session.decode(tokens, every=True)[:-1])
        session.close()

    def kl(self, request):
        if self.bases is None:
            session = llama_oracle.Session(self.f32, context=WINDOW)
            ids = session.tokenize(self.text)
            session.close()
            self.windows = [ids[i * WINDOW:(i + 1) * WINDOW] for i in range(WINDOWS)]
            self.bases = list(self.rows(self.f32))
        kl, nll, count = 0.0, 0.0, 0
        for tokens, base, model in zip(self.windows, self.bases, self.rows(request["file"])):
            kl += float((numpy.exp(base) * (base - model)).sum())
            nll -= float(model[numpy.arange(len(model)), tokens[1:]].sum())
            count += len(model)
        return {"mean_kl": kl / count, "perplexity": float(numpy.exp(nll / count)), "tokens": count}


def main(arguments):
    f32, text, size, threads = arguments
    peer = Peer(pathlib.Path(f32), text, int(size), int(threads))
    serve(f"llama.cpp of llama-cpp-python {llama_oracle.llama_cpp.__version__}", {"kl": peer.kl})


if __name__ == "__main__":
    main(sys.argv[1:])
