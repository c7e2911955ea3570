"""The peers' half of bench/peer.h: one JSON object a line, in and out.

At the start a peer prints {"version": "..."}; then it answers each request with
what its function returns, or with {"error": "..."}. It ends at end of input.
"""

import json
import os
import sys


def serve(version, functions):
    """Answers requests until stdin ends. functions: kind -> f(request) -> dict."""
    # Libraries print; the protocol keeps the real stdout to itself.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    reply({"version": version})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            reply(functions[request["kind"]](request))
        except Exception as error:  # pylint: disable=broad-except
            reply({"error": f"{type(error).__name__}: {error}"})
