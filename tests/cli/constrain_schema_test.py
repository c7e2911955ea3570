"""Replies held to random JSON schemas: every one that finished is valid by PyPI's
jsonschema. The schemas are of the kinds in the JSON-Schema-Test-Suite, drawn from a
printed seed (WEFT_TEST_SEED)."""

import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: no jsonschema; `make deps` installs it")
    sys.exit(77)

WEFT = os.environ.get("WEFT", "build/release/weft")
DATA = os.environ.get("WEFT_DATA", "../shared/data")
MODEL = os.path.join(DATA, "models/stories260K/stories260K.bin")
COUNT = int(os.environ.get("WEFT_SCHEMAS", "500"))
NAMES = ["a", "b", "name", "size", "tag", "is\"odd", "n\u00e9"]


def scalar(rng):
    return rng.choice([None, True, False, 0, -7, 12, 2.5, "", "x", "a b", "\u00e9\"\\"])


def number(rng, integer):
    schema = {"type": "integer" if integer else "number"}
    low = rng.randint(-200, 200)
    if rng.random() < 0.6:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low if integer else low / 8
    if rng.random() < 0.6:
        high = low + rng.randint(30, 400)
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = high if integer else high / 8
    if integer and rng.random() < 0.3:
        schema["multipleOf"] = rng.randint(1, 12)
    return schema


def string(rng):
    schema = {"type": "string"}
    kind = rng.randrange(4)
    if kind == 0:
        schema["minLength"] = rng.randint(0, 3)
        schema["maxLength"] = schema["minLength"] + rng.randint(0, 8)
    elif kind == 1:
        schema["pattern"] = rng.choice(
            ["^[a-c]{2,4}$", "^\\d{3}-\\d{2}$", "^(x|yy)+$", "^[^\"]{1,5}$", "^\\S\\s\\w$", "^a.b$"])
        if rng.random() < 0.4:
            schema["maxLength"] = 8
    elif kind == 2:
        schema["format"] = rng.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])
    else:
        schema["maxLength"] = 6
    return schema


def array(rng, depth):
    schema = {"type": "array"}
    least = rng.randint(0, 2)
    if rng.random() < 0.4:
        schema["prefixItems"] = [draw(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.5:
            schema["items"] = False
            schema["minItems"] = rng.randint(0, len(schema["prefixItems"]))
            return schema
    schema["items"] = draw(rng, depth - 1)
    schema["minItems"] = least
    schema["maxItems"] = least + rng.randint(0, 3)
    return schema


def object_schema(rng, depth):
    names = rng.sample(NAMES, rng.randint(1, 4))
    schema = {"type": "object", "properties": {n: draw(rng, depth - 1) for n in names}}
    schema["required"] = rng.sample(names, rng.randint(0, len(names)))
    kind = rng.randrange(5)
    if kind == 0:
        schema["additionalProperties"] = False
    elif kind == 1:
        schema["additionalProperties"] = draw(rng, 0)
        schema["maxProperties"] = len(names) + 1
        schema["propertyNames"] = {"maxLength": 8}
    elif kind == 2:
        schema["patternProperties"] = {"^k[0-9]$": draw(rng, 0)}
        schema["additionalProperties"] = False
        schema["maxProperties"] = len(names) + 2
    elif kind == 3:
        schema["minProperties"] = rng.randint(0, len(names))
    return schema


def draw(rng, depth):
    kinds = ["null", "boolean", "integer", "number", "string", "enum", "const", "types"]
    if depth > 0:
        kinds += ["array", "object", "object", "anyOf", "oneOf", "allOf"]
    kind = rng.choice(kinds)
    if kind in ("null", "boolean"):
        return {"type": kind}
    if kind in ("integer", "number"):
        return number(rng, kind == "integer")
    if kind == "string":
        return string(rng)
    if kind == "enum":
        return {"enum": [scalar(rng) for _ in range(rng.randint(1, 4))] + [{"k": [1, "v"]}]}
    if kind == "const":
        return {"const": scalar(rng)}
    if kind == "types":
        return {"type": rng.sample(["null", "boolean", "integer"], 2), "title": "t"}
    if kind == "array":
        return array(rng, depth)
    if kind == "object":
        return object_schema(rng, depth)
    if kind == "anyOf":
        return {"anyOf": [draw(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if kind == "oneOf":
        return {"oneOf": [{"properties": {"kind": {"const": k}, "v": draw(rng, depth - 1)},
                           "type": "object", "required": ["kind", "v"]}
                          for k in rng.sample(["p", "q", "r", 1], 2)]}
    return {"allOf": [number(rng, True) | {"minimum": -500}, {"maximum": 5000}]}


def root(rng):
    schema = draw(rng, 3)
    if rng.random() < 0.2:
        schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/inner"},
                                                   "next": {"$ref": "#"}},
                  "required": ["v"], "$defs": {"inner": schema}}
    return schema


def main():
    if not os.path.exists(MODEL):
        print(f"skipped: no file {MODEL}")
        sys.exit(77)
    seed = int(os.environ.get("WEFT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"WEFT_TEST_SEED={seed}")
    rng = random.Random(seed)
    schemas = []
    while len(schemas) < COUNT:
        schema = root(rng)
        jsonschema.Draft202012Validator.check_schema(schema)
        schemas.append(schema)
    with tempfile.TemporaryDirectory() as folder:
        prompts = os.path.join(folder, "prompts.jsonl")
        with open(prompts, "w", encoding="utf-8") as file:
            for schema in schemas:
                file.write(json.dumps({"prompt": "Once", "json_schema": schema}) + "\n")
        run = subprocess.run(
            [WEFT, "generate", MODEL, "--prompts", prompts, "--json", "--temperature", "1", "--seed",
             str(seed % 1000), "--max-tokens", "300", "--kv-megabytes", "256", "-q"],
            capture_output=True, text=True, timeout=600, check=False)
    if run.returncode != 0:
        sys.exit(f"weft generate: {run.stderr[-2000:]}")
    finished = bad = 0
    for line in run.stdout.splitlines():
        reply = json.loads(line)
        schema = schemas[reply["prompt"]]
        if reply["finish_reason"] != "stop":
            continue
        finished += 1
        try:
            jsonschema.Draft202012Validator(schema).validate(json.loads(reply["text"]))
        except (ValueError, jsonschema.ValidationError) as error:
            bad += 1
            print(f"schema {json.dumps(schema)}\n  reply {reply['text']!r}\n  {str(error)[:300]}")
    print(f"{len(schemas)} schemas, {finished} finished, {bad} not valid")
    if bad or finished < 0.7 * len(schemas):
        sys.exit(1)


main()
