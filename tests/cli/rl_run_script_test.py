"""scripts/run.sh: with the built-in task it trains, serves the result and answers; interrupted or
killed at any phase it leaves no process behind. Where the model was fetched before, WEFT_SLOW=1 also
runs the real one for a few steps."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

WEFT = os.environ["WEFT"]
SLOW = os.environ.get("WEFT_SLOW", "0") not in ("", "0")

if "serve" not in subprocess.run([WEFT, "--help"], capture_output=True, text=True).stdout:
    print("weft serve is not built")
    sys.exit(77)


def start(run, **extra):
    env = {**os.environ, "RUN": run, "MODEL": "none", "STEPS": "40", **extra}
    return subprocess.Popen(["scripts/run.sh"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, start_new_session=True)


def left_over(run):
    """Processes whose command line names this run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if run in line and int(pid) != os.getpid():
            found.append((int(pid), line))
    return found


def nothing_left(run):
    deadline = time.time() + 15
    while left_over(run) and time.time() < deadline:
        time.sleep(0.1)
    assert not left_over(run), left_over(run)


def wait_for(process, text, timeout=120):
    """Reads output up to a line that holds `text`."""
    seen = ""
    deadline = time.time() + timeout
    while time.time() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"no '{text}' in: {seen}")


def main():
    with tempfile.TemporaryDirectory() as root:
        run = f"{root}/whole"
        process = start(run)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
        assert re.search(r'^after +"', out, re.M), out
        assert os.path.exists(f"{run}/report.html") and os.path.exists(f"{run}/model/model.safetensors")
        nothing_left(run)

        for phase, how in [("3/5", signal.SIGINT), ("3/5", signal.SIGKILL), ("5/5", signal.SIGTERM)]:
            run = f"{root}/{phase[0]}-{int(how)}"
            process = start(run, STEPS="2000" if phase == "3/5" else "5")
            wait_for(process, phase)
            time.sleep(1.0 if phase == "3/5" else 0.0)
            # Ctrl-C reaches the whole foreground group, a kill the script alone.
            (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
            process.communicate(timeout=60)
            assert process.returncode != 0 or phase == "5/5", (phase, how, process.returncode)
            nothing_left(run)

        run = f"{root}/keep"
        process = start(run, KEEP="1", STEPS="5")
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
        pid = int(re.search(r"kill (\d+)", out).group(1))
        port = re.search(r"http://127.0.0.1:(\d+)", out).group(1)
        subprocess.run(["curl", "-fsS", f"http://127.0.0.1:{port}/health"], check=True, stdout=subprocess.DEVNULL)
        os.kill(pid, signal.SIGTERM)
        nothing_left(run)

        if SLOW:
            run = f"{root}/smollm2"
            process = start(run, MODEL="smollm2-135m-instruct", STEPS="3")
            out, _ = process.communicate(timeout=900)
            assert process.returncode == 0, out
            assert re.search(r'^before +"', out, re.M) and re.search(r'^after +"', out, re.M), out
            nothing_left(run)


main()
