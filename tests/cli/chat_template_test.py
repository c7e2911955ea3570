"""Chat templates render as transformers renders them, for every template at hand.

Oracle: transformers' own renderer (Jinja2 as it configures it) on 50 generated
conversations for each template in the data, in SmolLM2's file where it is
fetched, and in tests/fixtures/chat_templates. A template that raises must raise
in both.
"""
import json
import os
import pathlib
import random
import subprocess
import sys

try:
    from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template
except ImportError as error:
    print(f"skipped: no oracle ({error}); run deps/install.sh test")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = os.environ.get("WEFT", str(ROOT / "build/release/weft"))
DATA = pathlib.Path(os.environ.get("WEFT_DATA", ROOT / "../shared/data"))
CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or
                     os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft"))
CONVERSATIONS = 50

TEXTS = [
    "What is 3 + 4?", "  spaces around  ", "", "line one\nline two\n\n  line four", "Привет, мир!",
    "你好，世界", "👩‍👩‍👧‍👦 family emoji 🏳️‍🌈", "tab\tand \"quotes\" and 'single' and \\ backslash",
    "<|im_end|> injected {{ 7 * 7 }} {% if x %}", "a" * 200, "\u00a0\u2003odd spaces\u3000", "Ünïcödé ß ŉ İ",
    "<think>\nreason\n</think>\n\nanswer", "café e\u0301 \u200d\u200b", "$\\frac{1}{2}$ & <b>bold</b>", "\r\nwindows\r\n",
    "null", "0", "Zürich. Are you sure?", "العربية שלום",
]


def tool(rng):
    properties = {
        name: rng.choice([
            {"type": "string", "description": rng.choice(TEXTS)},
            {"type": "integer", "default": rng.randrange(10)},
            {"type": "array", "items": {"type": "number"}},
            {"type": ["string", "null"]},
            {"type": "string", "enum": ["celsius", "fahrenheit"]},
            {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
        ]) for name in rng.sample(["city", "unit", "days", "Options", "a", "größe"], rng.randrange(1, 4))}
    return {"type": "function", "function": {
        "name": rng.choice(["get_weather", "search", "add"]), "description": rng.choice(TEXTS),
        "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}}


def tool_call(rng):
    arguments = {"city": rng.choice(TEXTS), "days": rng.randrange(9), "exact": rng.choice([True, False, None, 1.5, 1e20])}
    return {"id": "".join(rng.choice("abc123XYZ") for _ in range(9)), "type": "function", "function": {
        "name": "get_weather", "arguments": arguments if rng.random() < 0.8 else json.dumps(arguments)}}


def content(rng):
    if rng.random() < 0.12:
        return [{"type": "text", "text": rng.choice(TEXTS)} if rng.random() < 0.7 else
                {"type": "image", "url": "x.png"} for _ in range(rng.randrange(1, 4))]
    return rng.choice(TEXTS)


def conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": rng.choice(TEXTS)})
    plain = rng.random() < 0.5
    for _ in range(rng.randrange(0, 4)):
        messages.append({"role": "user", "content": rng.choice(TEXTS) if plain else content(rng)})
        if not plain and rng.random() < 0.3:
            calls = [tool_call(rng) for _ in range(rng.choice([1, 1, 2]))]
            messages.append({"role": "assistant", "content": rng.choice([None, "", "calling"]), "tool_calls": calls})
            for call in calls:
                messages.append({"role": "tool", "name": "get_weather", "tool_call_id": call["id"],
                                 "content": rng.choice(['{"temp": 20}', "20", "ok"])})
        reply = {"role": "assistant", "content": rng.choice(TEXTS)}
        if rng.random() < 0.2:
            reply[rng.choice(["reasoning_content", "thinking", "reasoning"])] = rng.choice(TEXTS)
        messages.append(reply)
    if rng.random() < 0.7 or not messages:
        messages.append({"role": "user", "content": rng.choice(TEXTS)})
    out = {"messages": messages, "add_generation_prompt": rng.random() < 0.6}
    if rng.random() < 0.35:
        out["tools"] = [tool(rng) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.3:
        out["enable_thinking"] = rng.choice([True, False])
    if rng.random() < 0.2:
        out["date_string"] = "30 Nov 2026"
    if rng.random() < 0.2:
        out["builtin_tools"] = ["get_weather", "code_interpreter"]
    return out


def expected(template, variables, case):
    """(text, None) or (None, error) of the oracle."""
    extra = {**variables, **{k: v for k, v in case.items() if k not in ("messages", "add_generation_prompt", "tools")}}
    try:
        texts, _ = render_jinja_template(
            [_normalize_chat_messages(case["messages"])], tools=case.get("tools"), chat_template=template,
            add_generation_prompt=case["add_generation_prompt"], **extra)
        return texts[0], None
    except Exception as error:  # whatever Python raises inside a template
        return None, error


def weft(arguments, text):
    return subprocess.run([WEFT, "model", "chat-template", *arguments], input=text.encode(), capture_output=True, timeout=120)


def gguf_template(path):
    """Template and special tokens of a GGUF file, by the reference reader; None without one."""
    import gguf
    reader = gguf.GGUFReader(path)
    field = reader.get_field("tokenizer.chat_template")
    if field is None:
        return None
    tokens = reader.get_field("tokenizer.ggml.tokens")
    variables = {}
    for key, name in [("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token"), ("unknown", "unk_token")]:
        token = reader.get_field(f"tokenizer.ggml.{key}_token_id")
        if token is not None:
            variables[name] = bytes(tokens.parts[tokens.data[int(token.contents())]]).decode()
    return field.contents(), variables


def templates():
    """(name, template text, variables, arguments of the command)"""
    for path in sorted((ROOT / "tests/fixtures/chat_templates").glob("*.jinja")):
        yield path.name, path.read_text(), {"bos_token": "<s>", "eos_token": "</s>"}, ["--template", str(path)]
    models = sorted(DATA.glob("tokenizers/ggml-vocab/*.gguf"))
    models += sorted((CACHE / "models").glob("*/*.gguf"))
    for path in models:
        found = gguf_template(path)
        if found is not None:
            yield path.name, found[0], found[1], [str(path)]


def check_oracle():
    rendered = raised = 0
    failures = []
    for name, template, variables, arguments in templates():
        rng = random.Random(f"chat-template {name}")
        cases = [conversation(rng) for _ in range(CONVERSATIONS)]
        fixture = arguments[0] == "--template"
        lines = "".join(json.dumps({**(variables if fixture else {}), **case}) + "\n" for case in cases)
        run = weft([*arguments, "--lines"], lines)
        if run.returncode != 0:
            failures.append(f"{name}: exit {run.returncode}: {run.stderr.decode()}")
            continue
        results = [json.loads(line) for line in run.stdout.decode().splitlines()]
        assert len(results) == len(cases), (name, len(results))
        good = 0
        for index, (case, result) in enumerate(zip(cases, results)):
            text, error = expected(template, variables, case)
            if error is not None:
                raised += 1
                if "error" not in result:
                    failures.append(f"{name} #{index}: the oracle raises {error!r}, we render {result['text'][:200]!r}")
                elif type(error).__name__ == "TemplateError" and result["error"] != str(error):
                    failures.append(f"{name} #{index}: the template says {str(error)!r}, we say {result['error']!r}")
                continue
            rendered += 1
            good += 1
            if result.get("text") != text:
                got = result.get("text", result.get("error"))
                at = next((i for i, (a, b) in enumerate(zip(text, got)) if a != b), min(len(text), len(got)))
                failures.append(f"{name} #{index}: differs at {at}:\n  want {text[max(0, at - 60):at + 60]!r}\n"
                                f"  got  {got[max(0, at - 60):at + 60]!r}")
        print(f"{name}: {good} of {CONVERSATIONS} conversations rendered and compared")
        if good == 0:
            failures.append(f"{name}: no conversation renders at all")
    assert not failures, "\n".join(failures[:12]) + f"\n{len(failures)} failures"
    assert rendered > 300, rendered
    print(f"{rendered} texts equal, {raised} conversations refused by both")


def check_errors():
    """What is outside the subset is named with its place, and nothing runs for ever."""
    import tempfile
    cases = [
        ("line\n  {% include 'x' %}", "line 2, column 6", "include"),
        ("{{ x | nosuch }}", "line 1, column 8", "nosuch"),
        ("{{ x is nosuch }}", "column 9", "nosuch"),
        ("{% if x %}", "line 1", "endif"),
        ("{% for x in y %}{% endif %}", "column 20", "endif"),
        ("{{ (1 + }}", "column 9", "expected"),
        ("{{ 'open }}", "column 4", "quote"),
        ("{{ missing.field }}", "column 11", "'missing' is undefined"),
        ("\n\n{{ 1 + 'a' }}", "line 3, column 6", "int and str"),
        ("{{ messages.append(1) }}", "column", "not allowed"),
        ("{{ ''.__class__.__mro__ }}", "column", "unsafe"),
        ("{% for i in range(50000) %}{% for j in range(300) %}{{ i }}{% endfor %}{% endfor %}", "", "steps"),
        ("{{ 'x' * 999999999 }}", "", "256 MiB"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", "recurses too deeply"),
        ("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "", "more than"),
        ("{{ range(10000000) }}", "column 9", "100,000"),
        ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "column", "nested"),
        ("{{ 1" + "+1" * 5000 + " }}", "column", "nested"),
        ("{{ raise_exception('in its own words') }}", "", "in its own words"),
    ]
    for template, place, words in cases:
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            run = weft(["--template", file.name], '[{"role": "user", "content": "x"}]')
        message = run.stderr.decode()
        assert run.returncode in (1, 2), (template[:60], run.returncode, message)
        assert place in message and words in message, (template[:60], message)
    run = weft(["--template", str(ROOT / "tests/fixtures/chat_templates/chatml.jinja")], '{"messages": [')
    assert run.returncode == 2 and b"conversation" in run.stderr, run
    run = weft(["--template", str(ROOT / "tests/fixtures/chat_templates/chatml.jinja")], '[3]')
    assert run.returncode == 2 and b"messages[0]" in run.stderr, run
    print(f"{len(cases) + 2} errors named")


check_errors()
check_oracle()
