"""weft trace and weft load on the command line: a model of a real trace is fitted, drawn and
sent to a real `weft serve`; the server is killed under load; exit codes tell."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

WEFT = os.environ.get("WEFT", "build/release/weft")
DATA = pathlib.Path(os.environ.get("WEFT_DATA", "../shared/data"))
TRACE = DATA / "serving-traces" / "azure-2023" / "AzureLLMInferenceTrace_conv.csv"


def weft(*arguments, code=0):
    """Runs weft and gives its stdout."""
    done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def find_model():
    """stories260K wherever the data has it."""
    for path in sorted((DATA / "models").rglob("stories260K.bin")):
        if "damaged" not in str(path) and "rvspoc" not in str(path):
            return path
    return None


def check_trace_verbs(folder):
    """check, import, info, fit, gen, slice, convert, compare agree with each other."""
    assert weft("trace", "check", TRACE, "--quiet").strip().endswith("19366 kept, 0 dropped")
    own = folder / "conv.trace"
    weft("trace", "import", TRACE, "-o", own)
    same = json.loads(weft("trace", "compare", TRACE, own, "--json"))
    assert same["a"] == same["b"] and same["ks"]["gaps"] == 0
    page = folder / "conv.html"
    info = json.loads(weft("trace", "info", own, "--json", "--html", page))
    assert abs(info["gaps_s"]["cv"] - 1.094) < 5e-4
    assert page.stat().st_size > 10_000 and "<script" not in page.read_text()
    model = folder / "conv.model"
    fit = json.loads(weft("trace", "fit", own, "-o", model, "--json"))
    shapes = [f["distribution"]["shape"] for f in fit["gap_fits"]
              if f["distribution"]["family"] == "gamma"]
    assert abs(shapes[0] - 0.871) < 5e-4
    for name in ("one", "two"):
        weft("trace", "gen", "--model", model, "--seed", 7, "--duration", 600, "-o", folder / name)
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()
    cut = folder / "cut.trace"
    weft("trace", "slice", own, "--from", 600, "--until", 660, "-o", cut)
    for form in ("azure", "vidur", "mooncake", "burstgpt"):
        back = folder / f"cut.{form}"
        weft("trace", "convert", cut, "--to", form, "-o", back)
        both = json.loads(weft("trace", "compare", cut, back, "--json"))
        assert both["a"]["requests"] == both["b"]["requests"]
        assert abs(both["a"]["span_s"] - both["b"]["span_s"]) < (2e-3 if form == "mooncake" else 1e-6)
    bad = folder / "bad.csv"
    bad.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\nx,1,2\n")
    out = json.loads(weft("trace", "check", bad, "--json", code=3))
    assert out["drops"] == [{"reason": "not a date in 'TIMESTAMP'", "rows": 1, "first_lines": [3]}]
    weft("trace", "info", folder / "absent", code=2)


def start_server(model):
    """A server on a free port, and its address."""
    server = subprocess.Popen([WEFT, "serve", str(model), "--port", "0", "--threads", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = server.stdout.readline()
    assert " at " in line, line
    return server, line.split(" at ")[1].split()[0]


def check_load(folder, model):
    """The modes against a live server; recorded runs; SLO exit codes; a killed server."""
    server, url = start_server(model)
    try:
        record, page = folder / "run.csv", folder / "run.html"
        short = ["--quiet", "--json", "--output", "fixed:8"]
        report = json.loads(weft("load", url, "--mode", "poisson", "--rate", 20, "--duration", 3,
                                 "--input", "fixed:32", "--csv", record, "--html", page,
                                 "--slo", "ttft=60s", "--require", 1, *short))
        whole = report["whole"]
        assert whole["ok"] == whole["requests"] > 30 and whole["slo_attainment"] == 1
        assert whole["output_tokens"] == 8 * whole["ok"], whole["output_tokens"]
        assert 0.7 < whole["mean_input"] / 32 < 1.3, whole["mean_input"]
        assert page.stat().st_size > 10_000
        again = json.loads(weft("load", url, "--mode", "replay", "--trace", record, *short))
        assert again["whole"]["requests"] == whole["requests"]
        weft("load", url, "--mode", "closed", "--concurrency", 4, "--duration", 1, "--slo",
             "e2e=1ms", "--require", 0.999, *short, code=3)
        sweep = json.loads(weft("load", url, "--mode", "sweep", "--levels", "5,10", "--duration", 2,
                                "--input", "fixed:16", *short))
        assert [stage["asked_rate"] for stage in sweep["stages"]] == [5, 10]
        replay = json.loads(weft("load", url, "--mode", "replay", "--trace", TRACE, "--duration", 4,
                                 "--speed", 5, "--max-input", 64, "--max-output", 8, "--quiet", "--json"))
        assert replay["whole"]["ok"] == replay["whole"]["requests"] > 5
        # The server dies in the middle: the report is whole, and fails only if asked.
        run = subprocess.Popen([WEFT, "load", url, "--rate", "20", "--duration", "5", *short],
                               stdout=subprocess.PIPE, text=True)
        time.sleep(3)
        server.send_signal(signal.SIGKILL)
        out, _ = run.communicate(timeout=120)
        assert run.returncode == 0, run.returncode
        whole = json.loads(out)["whole"]
        assert whole["ok"] + sum(whole["failures"].values()) == whole["requests"]
        assert whole["failures"].get("refused", 0) > 0, whole["failures"]
        weft("load", url, "--duration", 1, *short, code=1)
    finally:
        server.kill()
        server.wait()


def main():
    if not TRACE.exists():
        print(f"no file {TRACE}")
        return 77
    model = find_model()
    with tempfile.TemporaryDirectory() as folder:
        check_trace_verbs(pathlib.Path(folder))
        if model is None:
            print("no stories260K.bin under", DATA)
            return 77
        check_load(pathlib.Path(folder), model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
