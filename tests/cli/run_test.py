"""weft run: ranks, their environment, output and end, with everything below them."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = os.environ.get("WEFT", str(ROOT / "build/release/weft"))


def run(*arguments, code=0, environment=None, timeout=60):
    result = subprocess.run([WEFT, "run", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                            env={**os.environ, **(environment or {})})
    assert result.returncode == code, (arguments, result.returncode, result.stdout, result.stderr)
    return result


def events(*arguments, **options):
    return [json.loads(line) for line in run("--json", *arguments, **options).stdout.splitlines()]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids, seconds=5):
    end = time.time() + seconds
    while any(alive(p) for p in pids) and time.time() < end:
        time.sleep(0.01)
    return not any(alive(p) for p in pids)


def ranks_know_who_they_are():
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_JOB",
             "WEFT_RENDEZVOUS", "WEFT_RESTART", "OMP_NUM_THREADS"]
    script = "import os; print(*[os.environ.get(n, 'none') for n in %r])" % (names,)
    lines = [e["text"].split() for e in events("-n", 3, "--", sys.executable, "-c", script) if e["event"] == "line"]
    assert sorted(line[0] for line in lines) == ["0", "1", "2"], lines
    for line in lines:
        assert line[1:5] == ["3", line[0], "3", "127.0.0.1"] and int(line[5]) > 0 and line[8] == "0", line
    assert len({tuple(line[5:8]) for line in lines}) == 1  # one job, port and rendezvous


def output_is_prefixed_plain_in_a_pipe_and_coloured_on_request():
    result = run("-n", 2, "--", "sh", "-c", "echo out; echo err >&2; printf no-end")
    assert sorted(result.stdout.splitlines()) == ["[0] no-end", "[0] out", "[1] no-end", "[1] out"], result.stdout
    assert sorted(result.stderr.splitlines()) == ["[0] err", "[1] err"], result.stderr
    assert "\033[36m[0]\033[0m out" in run("--color", "always", "--", "echo", "out").stdout
    wide = run("-n", 11, "--no-pin", "--", "echo", "x").stdout.splitlines()
    assert "[ 0] x" in wide and "[10] x" in wide, wide


def much_output_arrives_whole():
    script = "for i in range(20000): print('line', i, 'x' * 50)"
    lines = run("-n", 2, "--", sys.executable, "-c", script).stdout.splitlines()
    for rank in "01":
        mine = [line for line in lines if line.startswith(f"[{rank}]")]
        assert [int(line.split()[2]) for line in mine] == list(range(20000))


def a_failed_rank_ends_the_others():
    script = "if [ $RANK = 1 ]; then echo it broke >&2; exit 7; fi; sleep 100"
    began = time.time()
    result = run("-n", 3, "--", "sh", "-c", script, code=7)
    assert time.time() - began < 5
    assert "FAILED: rank 1 (process" in result.stderr and "ended with code 7" in result.stderr, result.stderr
    assert "    it broke" in result.stderr


def a_killed_rank_is_named_with_its_signal():
    *_, verdict = events("-n", 2, "--", "sh", "-c", "[ $RANK = 0 ] && kill -9 $$; sleep 100", code=137)
    assert verdict["outcome"] == "rank-failed" and verdict["first"]["signal"] == 9, verdict
    assert "killed by signal 9" in verdict["text"]


def a_rank_that_ignores_sigterm_is_killed_after_the_grace_time():
    script = "trap '' TERM; if [ $RANK = 0 ]; then sleep 0.3; exit 3; fi; while :; do sleep 0.1; done"
    began = time.time()
    run("-n", 2, "--grace", 0.5, "--", "sh", "-c", script, code=3)
    assert 0.7 < time.time() - began < 5


def a_stopped_rank_is_killed_too():
    run("-n", 2, "--grace", 0.5, "--", "sh", "-c", "[ $RANK = 0 ] && kill -STOP $$; exit 4", code=4)


# A rank that starts a grandchild in a session of its own, writes its pid, and waits.
GRANDCHILD = """
import os, subprocess, sys, time
child = subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM INT HUP; sleep 300 & echo $!; wait"],
                         stdout=subprocess.PIPE, text=True)
print("pids", os.getpid(), child.pid, child.stdout.readline().strip(), flush=True)
if sys.argv[1] == "leave": sys.exit(0)
time.sleep(300)
"""


def started_tree(*options):
    process = subprocess.Popen([WEFT, "run", "-n", "2", *options, "--", sys.executable, "-c", GRANDCHILD, "stay"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = []
    while len(pids) < 6:
        words = process.stdout.readline().split()
        if words[1:2] == ["pids"]:
            pids += [int(w) for w in words[2:]]
    return process, pids


def ctrl_c_ends_the_whole_tree():
    process, pids = started_tree()
    assert all(alive(p) for p in pids)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert gone(pids, 0), pids
    assert "stopped by signal 2" in process.stderr.read()


def sigterm_too():
    process, pids = started_tree()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143 and gone(pids, 0)


def killing_the_launcher_leaves_nothing():
    process, pids = started_tree("--grace", "0.2")
    process.kill()
    process.wait(10)
    assert gone(pids), [p for p in pids if alive(p)]


def killing_the_supervisor_leaves_nothing():
    process, pids = started_tree()
    child = int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGKILL)
    assert process.wait(20) == 137 and gone(pids, 0)
    for path in pathlib.Path("/dev/shm").glob("weft-run-*"):  # a killed supervisor cannot remove it
        for entry in sorted(path.rglob("*"), reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()
        path.rmdir()


def what_a_rank_leaves_behind_is_killed_and_counted():
    all_events = events("-n", 2, "--", sys.executable, "-c", GRANDCHILD, "leave")
    pids = [int(w) for e in all_events if e["event"] == "line" for w in e["text"].split()[1:]]
    assert len(pids) == 6 and gone(pids, 0)
    assert all_events[-1]["strays"] >= 4 and all_events[-1]["outcome"] == "done", all_events[-1]


def restarts_start_all_ranks_again():
    with tempfile.TemporaryDirectory() as directory:
        script = 'echo attempt $WEFT_RESTART; [ $WEFT_RESTART = 2 ] || exit 5'
        *_, verdict = events("-n", 2, "--restart", 3, "--log-dir", directory, "--", "sh", "-c", script)
        assert verdict["attempts"] == 3 and verdict["outcome"] == "done", verdict
        files = sorted(p.name for p in pathlib.Path(directory).iterdir())
        assert files == sorted(f"rank-{r}{k}.log" for r in (0, 1) for k in ("", ".restart-1", ".restart-2")), files
        assert (pathlib.Path(directory) / "rank-1.restart-2.log").read_text() == "attempt 2\n"
    *_, verdict = events("--restart", 1, "--", "sh", "-c", "exit 5", code=5)
    assert verdict["attempts"] == 2


def the_time_limit_holds():
    began = time.time()
    run("--timeout", 0.5, "--", "sleep", 100, code=124)
    assert time.time() - began < 5


def ranks_have_cpus_of_their_own():
    cpus = sorted(os.sched_getaffinity(0))
    script = "import os; print(*sorted(os.sched_getaffinity(0)))"
    lines = [e["text"] for e in events("-n", len(cpus), "--", sys.executable, "-c", script) if e["event"] == "line"]
    assert sorted(int(c) for line in lines for c in line.split()) == cpus, lines
    lines = [e["text"] for e in events("-n", len(cpus), "--no-pin", "--", sys.executable, "-c", script)
             if e["event"] == "line"]
    assert all([int(c) for c in line.split()] == cpus for line in lines), lines


def bad_input_is_named():
    assert 'cannot run "no-such-program"' in run("-n", 2, "--", "no-such-program", code=2).stderr
    assert "cannot run" in run("--", "/etc/passwd", code=2).stderr
    assert "program is required" in run("-n", 2, code=2).stderr
    assert run("-n", 0, "--", "true", code=2).stderr
    assert "job" in run("--job", "../x", "--", "true", code=2).stderr


def nothing_is_left_in_shared_memory():
    before = set(os.listdir("/dev/shm"))
    (started, *_) = events("--job", f"left-{os.getpid()}", "--", "true")
    assert started["event"] == "started"
    assert not pathlib.Path(f"/dev/shm/weft-left-{os.getpid()}").exists(), before


for test in (ranks_know_who_they_are, output_is_prefixed_plain_in_a_pipe_and_coloured_on_request,
             much_output_arrives_whole, a_failed_rank_ends_the_others, a_killed_rank_is_named_with_its_signal,
             a_rank_that_ignores_sigterm_is_killed_after_the_grace_time, a_stopped_rank_is_killed_too,
             ctrl_c_ends_the_whole_tree, sigterm_too, killing_the_launcher_leaves_nothing,
             killing_the_supervisor_leaves_nothing, what_a_rank_leaves_behind_is_killed_and_counted,
             restarts_start_all_ranks_again, the_time_limit_holds, ranks_have_cpus_of_their_own, bad_input_is_named,
             nothing_is_left_in_shared_memory):
    test()
    print(test.__name__, "ok", flush=True)
