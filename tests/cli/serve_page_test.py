"""The chat page works in a real browser: it sends, streams, stops, shows figures and errors.

WEFT_SCREENSHOT=FILE.png also keeps a picture.
"""
import os
import re
import sys
import tempfile
import urllib.parse

from devtools import CHROMIUM, Page
from serve_process import pick_model, serving

TURNS = "[...document.querySelectorAll('.turn')].map(t => [t.className, t.children[0].textContent, t.children[1].textContent])"
DONE = "document.body && document.body.dataset.replies >= 1"


def main():
    if CHROMIUM is None:
        print("skipped: no chromium; run deps/install.sh test")
        sys.exit(77)
    model, chats = pick_model()
    question = "What is the capital of France? <b>&"
    with serving(model, "--context", "512" if not chats else "2048") as server:
        def page(**query):
            return Page(server.url + "/?" + urllib.parse.urlencode(query))

        with page(prompt=question, temperature=0, max_tokens=40, seed=1) as browser:
            browser.wait_for(DONE)
            shown = browser.evaluate(TURNS)
            assert server.model in browser.evaluate("document.body.innerText")
            assert shown[0][:2] == ["turn user", question], shown
            if not chats:
                assert shown[1][0] == "turn error" and "no chat template" in shown[1][1], shown
                print("an error shows; skipped the answer: SmolLM2 is not fetched")
                return
            expected = server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 40, "seed": 1})
            answer = expected["choices"][0]["message"]["content"]
            assert len(shown) == 2 and shown[1][:2] == ["turn assistant", answer], (shown, answer)
            assert re.search(r"tokens/s, first token after \d+ ms, \d+ tokens", shown[1][2]), shown[1][2]
        with page(prompt="x", temperature=7) as browser:
            browser.wait_for(DONE)
            errors = [text for kind, text, _ in browser.evaluate(TURNS) if kind == "turn error"]
            assert errors and "temperature" in errors[0], errors
        with page(prompt="Write a long story.", temperature=0, max_tokens=1500) as browser:
            browser.wait_for("document.querySelector('.turn.assistant .text')?.textContent.length > 20")
            browser.evaluate("document.getElementById('stop').click()")
            browser.wait_for(DONE, 20)
            assert "stopped" in browser.evaluate(TURNS)[1][2]
            server.wait_until(lambda: server.metric("weft_requests_running") == 0, "the stopped reply to end")
        with tempfile.TemporaryDirectory() as folder, page(prompt="Name three rivers of Europe.", temperature=0, max_tokens=80) as browser:
            browser.wait_for(DONE)
            picture = os.environ.get("WEFT_SCREENSHOT", os.path.join(folder, "chat.png"))
            browser.screenshot(picture)
            assert os.path.getsize(picture) > 5000
        print(f"the page shows {answer!r} ({shown[1][2]}), stops and complains")


main()
