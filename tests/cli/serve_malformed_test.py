"""Bad requests get a useful 4xx and the server lives; it drains, and clients may vanish."""
import json
import random
import signal
import socket
import threading
import time

from serve_process import Server, pick_model, serving


def raw(server, data, wait=10):
    """What comes back for these bytes, until the server closes or says nothing more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as link:
        try:
            link.sendall(data)
            out = b""
            while True:
                part = link.recv(65536)
                if not part:
                    return out
                out += part
        except (socket.timeout, ConnectionError, BrokenPipeError):
            return out


def post(path, body, extra=b"", content_type=b"application/json", length=None):
    length = len(body) if length is None else length
    return (b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + content_type +
            b"\r\nContent-Length: %d\r\n" % length + extra + b"\r\n" + body)


def check_bodies(server):
    """(path, body, status, words of the message)"""
    completions, chat = "/v1/completions", "/v1/chat/completions"
    user = {"role": "user", "content": "x"}
    cases = [
        (completions, "", 400, "empty"),
        (completions, "{", 400, "request body"),
        (completions, '{"prompt": "x", ', 400, "request body"),
        (completions, "[1, 2]", 400, "JSON object"),
        (completions, '"text"', 400, "JSON object"),
        (completions, b'{"prompt": "\xff\xfe"}', 400, "request body"),
        (completions, b"\x00\x01\x02", 400, "request body"),
        (completions, '{"prompt": NaN}', 400, "request body"),
        (completions, '{"prompt": "x", "temperature": NaN}', 400, "request body"),
        (completions, '{"prompt": "x", "temperature": 1e999}', 400, ""),
        (completions, "[" * 100000, 400, "request body"),
        (completions, '{"prompt": ' + "[" * 5000 + "]" * 5000 + "}", 400, "request body"),
        (completions, {}, 400, "'prompt' is missing"),
        (completions, {"prompt": 5}, 400, "'prompt'"),
        (completions, {"prompt": []}, 400, "'prompt'"),
        (completions, {"prompt": [1, "a"]}, 400, "'prompt'"),
        (completions, {"prompt": [-1]}, 400, "'prompt'"),
        (completions, {"prompt": [10**7]}, 400, "vocabulary"),
        (completions, {"prompt": ["x"] * 200}, 400, "'prompt'"),
        (completions, {"prompt": "x", "n": -1}, 400, "'n'"),
        (completions, {"prompt": "x", "n": 0}, 400, "'n'"),
        (completions, {"prompt": "x", "n": 10**9}, 400, "'n'"),
        (completions, {"prompt": "x", "n": 1.5}, 400, "'n'"),
        (completions, {"prompt": "x", "n": "2"}, 400, "'n'"),
        (completions, {"prompt": "x", "max_tokens": -5}, 400, "'max_tokens'"),
        (completions, {"prompt": "x", "max_tokens": 10**30}, 400, "'max_tokens'"),
        (completions, {"prompt": "x", "temperature": -1}, 400, "'temperature'"),
        (completions, {"prompt": "x", "temperature": "hot"}, 400, "'temperature'"),
        (completions, {"prompt": "x", "top_p": 0}, 400, "'top_p'"),
        (completions, {"prompt": "x", "top_p": 2}, 400, "'top_p'"),
        (completions, {"prompt": "x", "seed": 2**70}, 400, "'seed'"),
        (completions, {"prompt": "x", "stop": [""]}, 400, "'stop'"),
        (completions, {"prompt": "x", "stop": 5}, 400, "'stop'"),
        (completions, {"prompt": "x", "stop": ["x"] * 99}, 400, "'stop'"),
        (completions, {"prompt": "x", "logit_bias": {"a": 1}}, 400, "'logit_bias'"),
        (completions, {"prompt": "x", "logit_bias": {"5": 1000}}, 400, "'logit_bias'"),
        (completions, {"prompt": "x", "logprobs": 999}, 400, "'logprobs'"),
        (completions, {"prompt": "x", "stream": "yes"}, 400, "'stream'"),
        (completions, {"prompt": "x", "stream_options": {"include_usage": True}}, 400, "'stream_options'"),
        (completions, {"prompt": "x", "echo": True, "logprobs": 1}, 400, "'echo'"),
        (completions, {"prompt": "x", "suffix": "y"}, 400, "'suffix'"),
        (completions, {"prompt": "x", "model": 7}, 400, "'model'"),
        (completions, {"prompt": "x", "model": "no-such"}, 404, "no-such"),
        (chat, {"messages": []}, 400, "'messages'"),
        (chat, {"messages": "hello"}, 400, "'messages'"),
        (chat, {"messages": [5]}, 400, "messages[0]"),
        (chat, {"messages": [{"content": "x"}]}, 400, "messages[0].role"),
        (chat, {"messages": [{"role": "wizard", "content": "x"}]}, 400, "wizard"),
        (chat, {"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        (chat, {"messages": [{"role": "user", "content": 5}]}, 400, "messages[0].content"),
        (chat, {"messages": [user, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "image_url"),
        (chat, {"messages": [user], "top_logprobs": 3}, 400, "'top_logprobs'"),
        (chat, {"messages": [user], "tools": 5}, 400, "'tools'"),
        (chat, {"messages": [user], "tool_choice": "required"}, 400, "'tool_choice'"),
        (chat, {"messages": [user], "response_format": {"type": "xml"}}, 400, "response_format"),
        (completions, {"prompt": "x", "guided_regex": "(a"}, 400, "regular expression"),
        (completions, {"prompt": "x", "grammar": "root ::= root"}, 400, "left-recursive"),
        ("/tokenize", {}, 400, "'prompt'"),
        ("/detokenize", {"tokens": ["a"]}, 400, "'tokens'"),
        ("/detokenize", {"tokens": [10**8]}, 400, "vocabulary"),
    ]
    for path, body, status, words in cases:
        got, headers, text = server.request("POST", path, body)
        assert got == status, (path, str(body)[:80], got, text)
        error = json.loads(text)["error"]
        assert set(error) == {"message", "type", "param", "code"} and words in error["message"], (str(body)[:80], error)
        assert headers["x-request-id"], headers
    tolerated = {"prompt": "x", "max_tokens": 1, "user": "me", "no_such_field": {"a": [1]}, "stop": None, "logprobs": None, "n": 1.0}
    assert server.request("POST", completions, tolerated)[0] == 200
    print(f"{len(cases)} malformed bodies refused with a message")


def check_http(server, max_body):
    cases = [
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, b"unknown_url"),
        (b"GET /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, b"Allow: POST"),
        (b"DELETE /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, b"Allow: GET"),
        (b"GET /v1/models/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, b"model_not_found"),
        (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 411, b"Content-Length"),
        (post(b"/v1/completions", b'{"prompt": "x"}', content_type=b"text/plain"), 415, b"application/json"),
        (post(b"/v1/completions", b"x", length=max_body + 1), 413, b"--max-body"),
        (post(b"/v1/completions", b"x" * (max_body + 1)), 413, b"--max-body"),
        (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % (max_body + 9) + b"x" * (max_body + 9) + b"\r\n0\r\n\r\n", 413, b"--max-body"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 40000 + b"\r\n\r\n", 431, b"headers"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000)) + b"\r\n", 431, b"headers"),
        (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n", 431, b"headers"),
        (b"hello\r\n\r\n", 400, b"HTTP"),
        (b"GET / HTTP/9.9\r\n\r\n", 400, b"HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls hello\r\n\r\n", 400, b"HTTP"),
        (post(b"/v1/completions", b"{}", extra=b"Content-Length: 5\r\n"), 400, b"HTTP"),
        (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400, b"HTTP"),
        (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, b"HTTP"),
    ]
    for data, status, words in cases:
        out = raw(server, data)
        assert out.startswith(b"HTTP/1.1 %d " % status), (data[:80], out[:300])
        assert words in out, (data[:80], out[:500])
    expect = raw(server, post(b"/tokenize", b'{"prompt": "x"}', extra=b"Expect: 100-continue\r\n"))
    assert expect.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "), expect[:200]
    chunked = raw(server, b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                  b"8\r\n{\"prompt\r\n7\r\n\": \"x\"}\r\n0\r\n\r\n")
    assert chunked.startswith(b"HTTP/1.1 200 "), chunked[:200]
    two = raw(server, (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2) + b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert two.count(b"HTTP/1.1 200 ") == 3, two
    old = raw(server, b"GET /health HTTP/1.0\r\n\r\n")
    assert b" 200 " in old[:20], old
    own = raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-request-id: mine-1\r\n\r\n")
    assert b"x-request-id: mine-1" in own, own
    head = raw(server, b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n"), head[-100:]
    print(f"{len(cases)} malformed HTTP requests refused; chunked, pipelined, 1.0, HEAD and 100-continue answered")


def stream_request(tokens, prompt="Once upon a time"):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 1}).encode()
    return post(b"/v1/completions", body)


def check_slow(server):
    """--header-timeout 2: a client that drips is cut off, and holds nobody up."""
    begin = time.time()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as link:
        link.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        cut = False
        while time.time() - begin < 20:
            try:
                link.sendall(b"X-Slow: 1\r\n")
                link.settimeout(0.3)
                cut = link.recv(100) == b""
            except socket.timeout:
                continue
            except OSError:
                cut = True
            if cut:
                break
        assert cut and time.time() - begin < 15, time.time() - begin
    assert server.request("GET", "/health")[0] == 200
    print(f"a slow-loris client is cut off after {time.time() - begin:.1f} s")


def check_vanishing(server):
    rng = random.Random(5)
    links = []
    for _ in range(12):
        link = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        link.sendall(stream_request(400))
        links.append(link)
    server.wait_until(lambda: server.metric("weft_requests_running") + server.metric("weft_requests_waiting") >= 1, "running requests")
    for link in links:
        if rng.random() < 0.5:
            link.recv(300)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0" if rng.random() < 0.5 else b"\0" * 8)
        link.close()
    for cut in (10, 60, 120, 200):   # in the middle of the request
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as link:
            link.sendall(stream_request(5)[:cut])
    server.wait_until(lambda: server.metric("weft_requests_running") == 0 and server.metric("weft_requests_waiting") == 0,
                      "the cancelled requests to end")
    assert server.metric("weft_generations_cancelled_total") >= 1
    assert server.metric("weft_kv_pages_used") == 0
    print("clients that vanish are cancelled; no page of the pool stays held")


def check_idle(server):
    before = server.threads()
    links = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(200)]
    for link in links[:100]:
        link.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    for link in links[:100]:
        assert b" 200 " in link.recv(4096)
    assert server.threads() == before, (before, server.threads())
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})["choices"]
    for link in links:
        link.close()
    print(f"200 idle connections, {before} threads as before")


def check_queue(model):
    with serving(model, "--context", "512", "--max-queue", "2") as server:
        statuses, lock = [], threading.Lock()

        def ask():
            status, headers, _ = server.request("POST", "/v1/completions", {"prompt": "x", "n": 8, "max_tokens": 200, "ignore_eos": True})
            with lock:
                statuses.append(status)
                if status == 429:
                    assert int(headers["Retry-After"]) >= 1, headers
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 429 in statuses and set(statuses) <= {200, 429}, statuses
        server.wait_until(lambda: server.metric("weft_requests_running") == 0, "the queue to empty")
        assert server.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})[0] == 200
    print(f"a full queue answers 429 with Retry-After ({statuses.count(429)} of 8)")


def read_rest(link):
    out = b""
    while True:
        part = link.recv(65536)
        if not part:
            return out
        out += part


def check_drain(model):
    server = Server(model, "--context", "512")
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as link, \
            socket.create_connection(("127.0.0.1", server.port), timeout=120) as idle:
        link.sendall(stream_request(40))
        first = link.recv(4096)
        assert b"200 OK" in first, first
        server.process.send_signal(signal.SIGTERM)
        out = first + read_rest(link)
        assert b"data: [DONE]" in out and out.endswith(b"0\r\n\r\n"), out[-300:]
        assert idle.recv(100) == b"", "idle connections close"
    assert server.process.wait(60) == 0, server.errors()
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=2)
        raise AssertionError("the port must be closed")
    except OSError:
        pass
    # Past the deadline the stream ends with an error, not in silence.
    server = Server(model, "--context", "512", "--drain-seconds", "0")
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as link:
        link.sendall(stream_request(480) if "stories" in model else stream_request(500))
        first = link.recv(4096)
        server.process.send_signal(signal.SIGINT)
        out = first + read_rest(link)
        assert b"data: [DONE]" in out or b'"draining"' in out, out[-300:]
    assert server.process.wait(60) == 0, server.errors()
    print("SIGTERM drains: streams end whole, then exit 0; past the deadline with an error")


def check_kill(model):
    rng = random.Random(11)
    for _ in range(3):
        server = Server(model, "--context", "512")
        links = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(4)]
        for link in links:
            link.sendall(stream_request(400))
        time.sleep(rng.random() * 0.5)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        port = server.port
        again = Server(model, "--context", "512", "--port", str(port))
        assert again.port == port and again.request("GET", "/health")[0] == 200, "the port is free at once"
        assert again.stop() == 0
        for link in links:
            link.close()
    print("killed at random three times, started again on the same port")


def main():
    model, _ = pick_model(prefer_small=True)
    max_body = 300000
    with serving(model, "--context", "512", "--max-body", str(max_body), "--header-timeout", "2") as server:
        check_bodies(server)
        check_http(server, max_body)
        check_slow(server)
        check_vanishing(server)
        check_idle(server)
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})["choices"]
    check_queue(model)
    check_drain(model)
    check_kill(model)


main()
