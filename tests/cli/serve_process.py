"""A `weft serve` process for the tests: starts it, talks to it, stops it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = os.environ.get("WEFT", str(ROOT / "build/release/weft"))
DATA = pathlib.Path(os.environ.get("WEFT_DATA", ROOT / "../shared/data"))
CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or
                     os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft"))
SMOLLM2 = CACHE / "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
STORIES = DATA / "models/stories260K/stories260K.bin"


def pick_model(prefer_small=False):
    """A model that is here: SmolLM2 (chats) or stories260K (does not); ends with 77 without any."""
    order = [STORIES, SMOLLM2] if prefer_small else [SMOLLM2, STORIES]
    for path in order:
        if path.exists():
            return str(path), path == SMOLLM2
    print("skipped: neither SmolLM2 is fetched (weft model fetch smollm2-135m-instruct) nor", STORIES, "is here")
    sys.exit(77)


class Server:
    def __init__(self, model, *arguments):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(
            [WEFT, "serve", model, *([] if "--port" in arguments else ["--port", "0"]), "--kv-bytes", "256mb", *arguments],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = None
        timer = threading.Timer(120, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        found = re.search(r"weft: serving (\S+) at http://(\S+):(\d+) \(ready in [\d.]+ s\)", line)
        if not found:
            self.process.wait(10)
            raise AssertionError(f"no ready line but {line!r}; {self.errors()}")
        self.model, self.port = found[1], int(found[3])
        self.url = f"http://127.0.0.1:{self.port}"

    def errors(self):
        with open(self.log.name) as file:
            return file.read()

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers, body as text) of one request on its own connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode()
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read().decode()
        finally:
            connection.close()

    def post(self, path, body, **options):
        status, _, text = self.request("POST", path, body, **options)
        assert status == 200, (status, text)
        return json.loads(text)

    def metric(self, name):
        text = self.request("GET", "/metrics")[2]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if re.match(re.escape(name) + r"[ {]", line))

    def threads(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"Threads:\s+(\d+)", file.read())[1])

    def wait_until(self, condition, what, seconds=60):
        deadline = time.time() + seconds
        while not condition():
            assert self.process.poll() is None, f"the server died: {self.errors()}"
            assert time.time() < deadline, f"waited {seconds} s for {what}"
            time.sleep(0.05)

    def stop(self, how=signal.SIGTERM, seconds=60):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(seconds)


@contextlib.contextmanager
def serving(model, *arguments):
    """A server that must still be alive at the end, and must end with 0 when asked to."""
    server = Server(model, *arguments)
    try:
        yield server
        assert server.process.poll() is None, f"the server died: {server.errors()}"
        code = server.stop()
        assert code == 0, (code, server.errors())
    except BaseException:
        print(server.errors()[-4000:], file=sys.stderr)
        raise
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
