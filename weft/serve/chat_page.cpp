#include "weft/serve/chat_page.h"

namespace weft::serve {
namespace {

constexpr std::string_view kPage = R"page(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Weft chat</title>
<style>
:root { color-scheme: light dark; --back: #f7f7f5; --card: #ffffff; --text: #1d1f21; --soft: #6b7075; --line: #dcdddb;
  --accent: #2457a6; --user: #e6eefb; --bad: #a61b1b; --bad-back: #fdecec; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181b; --card: #1f2226; --text: #e7e8ea; --soft: #9aa0a6; --line: #33373c; --accent: #8ab4f8;
    --user: #22324a; --bad: #ff9d9d; --bad-back: #3a1f1f; } }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
header, footer, main { width: 100%; max-width: 52rem; margin: 0 auto; padding: 0.75rem 1rem; }
header { display: flex; align-items: baseline; gap: 0.75rem; flex-wrap: wrap; }
h1 { font-size: 1.1rem; margin: 0; }
#model { color: var(--soft); }
header button { margin-left: auto; }
main { flex: 1; overflow-y: auto; display: flex; flex-direction: column; gap: 0.75rem; }
.turn { border: 1px solid var(--line); border-radius: 0.6rem; padding: 0.6rem 0.8rem; background: var(--card); max-width: 92%; }
.turn.user { align-self: flex-end; background: var(--user); }
.turn.error { background: var(--bad-back); color: var(--bad); border-color: currentColor; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.figures { color: var(--soft); font-size: 0.8rem; margin-top: 0.3rem; font-variant-numeric: tabular-nums; }
.empty { color: var(--soft); margin: auto; text-align: center; }
form { display: flex; gap: 0.5rem; align-items: flex-end; }
textarea { flex: 1; resize: none; max-height: 12rem; }
textarea, input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.45rem 0.6rem; }
input[type=number] { width: 5.5rem; }
button { font: inherit; border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.45rem 0.9rem; background: var(--card); color: inherit; cursor: pointer; }
button.main { background: var(--accent); color: var(--back); border-color: var(--accent); }
button:disabled { opacity: 0.5; cursor: default; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.settings { display: flex; gap: 1rem; flex-wrap: wrap; margin-top: 0.5rem; color: var(--soft); font-size: 0.85rem; }
.settings label { display: flex; gap: 0.4rem; align-items: center; }
.settings .grow { flex: 1; min-width: 12rem; } .settings .grow input { flex: 1; width: 100%; }
</style>
</head>
<body>
<header><h1>Weft</h1><span id="model">connecting…</span><button id="clear" type="button" title="Forget this conversation">New chat</button></header>
<main id="turns" aria-live="polite"><p class="empty" id="empty">Write to the model below.</p></main>
<footer>
<form id="form">
<textarea id="prompt" rows="1" placeholder="Message (Enter sends, Shift+Enter breaks the line, Esc stops)" aria-label="Message" autofocus></textarea>
<button class="main" id="send" type="submit">Send</button>
<button id="stop" type="button" disabled>Stop</button>
</form>
<div class="settings">
<label>Temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
<label>Longest reply <input id="max_tokens" type="number" min="1" step="1" value="256"> tokens</label>
<label class="grow">System <input id="system" type="text" placeholder="none"></label>
<label id="key_label" hidden>API key <input id="key" type="password" autocomplete="off"></label>
</div>
</footer>
<script>
"use strict";
const at = id => document.getElementById(id);
const query = new URLSearchParams(location.search);
let messages = [], running = null, model = "";

const headers = () => at("key").value ? {"Content-Type": "application/json", "Authorization": "Bearer " + at("key").value}
                                      : {"Content-Type": "application/json"};

function add(kind, text) {
  at("empty")?.remove();
  const turn = document.createElement("div"), body = document.createElement("div"), figures = document.createElement("div");
  turn.className = "turn " + kind; body.className = "text"; figures.className = "figures";
  body.textContent = text;
  turn.append(body, figures);
  at("turns").append(turn);
  turn.scrollIntoView({block: "end"});
  return {turn, body, figures};
}
function complain(sentence) { add("error", sentence).turn.setAttribute("role", "alert"); }

async function failure(response) {
  let sentence = "";
  try { sentence = (await response.json()).error.message; } catch { }
  if (response.status === 401) { at("key_label").hidden = false; at("key").focus(); }
  return new Error((sentence || response.statusText || "no answer") + " (status " + response.status + ")");
}

async function connect() {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    if (!response.ok) throw await failure(response);
    model = (await response.json()).data[0].id;
    at("model").textContent = model;
  } catch (error) {
    at("model").textContent = "not connected";
    complain("The server does not answer: " + error.message);
  }
}

function busy(on) {
  at("send").disabled = on; at("stop").disabled = !on;
  document.body.dataset.state = on ? "running" : "idle";
}

// The data of server-sent events, one at a time.
async function* events(response) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += decoder.decode(value, {stream: true});
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

async function send(text) {
  if (running || !text.trim()) return;
  messages.push({role: "user", content: text});
  add("user", text);
  const reply = add("assistant", ""), started = performance.now();
  let first = 0, pieces = 0, tokens = 0, answer = "", reason = "", whole = false;
  const show = () => {
    if (!first) return;
    const spent = (performance.now() - first) / 1000, count = tokens || pieces;
    const rate = count > 1 && spent > 0 ? ((count - 1) / spent).toFixed(1) + " tokens/s, " : "";
    reply.figures.textContent = rate + "first token after " + Math.round(first - started) + " ms, " + count + " tokens" +
      (reason === "length" ? ", cut at the longest reply" : reason === "stopped" ? ", stopped" : "");
  };
  running = new AbortController();
  busy(true);
  try {
    const system = at("system").value.trim();
    const response = await fetch("v1/chat/completions", {method: "POST", headers: headers(), signal: running.signal, body: JSON.stringify({
      model, stream: true, stream_options: {include_usage: true}, temperature: Number(at("temperature").value),
      max_tokens: Math.max(1, Math.round(Number(at("max_tokens").value))), ...(query.has("seed") ? {seed: Number(query.get("seed"))} : {}),
      messages: system ? [{role: "system", content: system}, ...messages] : messages})});
    if (!response.ok) throw await failure(response);
    for await (const data of events(response)) {
      if (data === "[DONE]") { whole = true; break; }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) tokens = chunk.usage.completion_tokens;
      const choice = chunk.choices[0];
      if (!choice) continue;
      reason = choice.finish_reason || reason;
      if (choice.delta.content) {
        first = first || performance.now();
        pieces += 1;
        answer += choice.delta.content;
        const main = at("turns"), below = main.scrollHeight - main.scrollTop - main.clientHeight < 60;
        reply.body.textContent = answer;
        if (below) main.scrollTop = main.scrollHeight;
        show();
      }
    }
    if (!whole) throw new Error("the connection ended in the middle of the reply");
  } catch (error) {
    if (error.name === "AbortError") reason = "stopped";
    else complain(error.message);
  }
  show();
  if (answer) messages.push({role: "assistant", content: answer});
  else { messages.pop(); reply.turn.remove(); }
  running = null;
  busy(false);
  document.body.dataset.replies = String(Number(document.body.dataset.replies || 0) + 1);
  at("prompt").focus();
}

function stop() { running?.abort(); }
function grow() { const box = at("prompt"); box.style.height = "auto"; box.style.height = box.scrollHeight + 2 + "px"; }

at("form").addEventListener("submit", event => {
  event.preventDefault();
  if (running) return;
  const text = at("prompt").value;
  at("prompt").value = "";
  grow();
  send(text);
});
at("prompt").addEventListener("input", grow);
at("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("form").requestSubmit(); }
});
document.addEventListener("keydown", event => { if (event.key === "Escape") stop(); });
at("stop").addEventListener("click", stop);
at("clear").addEventListener("click", () => { stop(); messages = []; at("turns").textContent = ""; at("prompt").focus(); });
at("key").addEventListener("change", connect);
for (const name of ["temperature", "max_tokens", "system"]) if (query.has(name)) at(name).value = query.get(name);
connect().then(() => { if (query.has("prompt")) send(query.get("prompt")); });
</script>
</body>
</html>
)page";

}  // namespace

std::string_view chat_page() { return kPage; }

}  // namespace weft::serve
