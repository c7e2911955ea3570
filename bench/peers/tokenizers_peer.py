"""The `tokenizers` wheel behind the benchmark's line protocol, on one thread.

usage: tokenizers_peer.py TOKENIZER.json TEXT DOCUMENT_BYTES

Requests: {"kind": "encode"}
            seconds of encode_batch_fast (no offsets) over the text in documents of
            whole lines; the number of tokens, and a sum over them that says whether
            they are ours
"""

import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402
from line_protocol import serve  # noqa: E402


def documents(content, size):
    """As bench/text.cpp cuts them."""
    pieces = []
    while content:
        end = -1 if len(content) <= size else content.find(b"\n", size)
        end = len(content) if end < 0 else end + 1
        pieces.append(content[:end].decode())
        content = content[end:]
    return pieces


def main(arguments):
    file, text, size = arguments
    tokenizer = tokenizers.Tokenizer.from_file(file)
    with open(text, "rb") as opened:
        pieces = documents(opened.read(), int(size))

    def encode(_):
        begin = time.perf_counter()
        encodings = tokenizer.encode_batch_fast(pieces)
        seconds = time.perf_counter() - begin
        ids = [i for encoding in encodings for i in encoding.ids]
        return {"seconds": seconds, "tokens": len(ids),
                "sum": sum(((n + 1) % 1000 + 1) * i for n, i in enumerate(ids))}

    serve(f"tokenizers {tokenizers.__version__}", {"encode": encode})


if __name__ == "__main__":
    main(sys.argv[1:])
