"""Drives headless Chromium through its DevTools protocol, with the standard library only."""
import base64
import http.client
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """One browser with one page. `with Page(url) as page:`"""

    def __init__(self, url, width=900, height=700):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-port=0", f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", url],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.id = 0
        self.link = self._connect(time.time() + 120)

    def _connect(self, deadline):
        where = pathlib.Path(self.profile.name) / "DevToolsActivePort"
        while time.time() < deadline:
            time.sleep(0.2)
            try:
                port = int(where.read_text().split()[0])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request("GET", "/json/list")
                pages = [t for t in json.loads(connection.getresponse().read()) if t["type"] == "page"]
                path = "/" + pages[0]["webSocketDebuggerUrl"].split("/", 3)[3]
                link = socket.create_connection(("127.0.0.1", port), timeout=60)
                key = base64.b64encode(os.urandom(16)).decode()
                link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
                self.file = link.makefile("rb")
                assert b" 101 " in self.file.readline()
                while self.file.readline().strip():
                    pass
                return link
            except (OSError, ValueError, IndexError, KeyError):
                continue
        raise AssertionError("chromium does not answer")

    def call(self, method, **parameters):
        self.id += 1
        data = json.dumps({"id": self.id, "method": method, "params": parameters}).encode()
        mask = os.urandom(4)
        size = struct.pack("!BB", 0x81, 0x80 | len(data)) if len(data) < 126 else struct.pack("!BBH", 0x81, 0xfe, len(data))
        self.link.sendall(size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        while True:
            message = json.loads(self._receive())
            if message.get("id") == self.id:
                assert "error" not in message, message
                return message["result"]

    def _receive(self):
        out = b""
        while True:
            first, length = self.file.read(2)
            if length == 126:
                length = struct.unpack("!H", self.file.read(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self.file.read(8))[0]
            out += self.file.read(length)
            if first & 0x80:
                return out

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    def wait_for(self, expression, seconds=120):
        deadline = time.time() + seconds
        while not self.evaluate(expression):
            assert time.time() < deadline, f"waited {seconds} s for {expression}; the page is {self.evaluate('document.body.innerText')!r}"
            time.sleep(0.1)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.profile.cleanup()
