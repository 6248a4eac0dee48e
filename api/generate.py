#!/usr/bin/env python3
"""Writes api/openapi.json, which the server embeds, and api/docs.html, the same for people.

The text is api/openapi.yaml, which people edit; what each operation takes comes from api/operations.json, which
`make generated` writes from the operations' descriptors. All are kept in the repository, so that a build needs no YAML
library. `--check` writes nothing and fails where a file is not what this would write.
"""
import html
import json
import pathlib
import re
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent

# --- the operations -----------------------------------------------------------------------------------------------


def of_input(port):
    dtypes = ", ".join(port["dtypes"])
    return {"allOf": [{"$ref": "#/components/schemas/TensorIn"}],
            "description": f"{port['doc']} Shape {port['shape']}; {port['min_rank']} to {port['max_rank']} dimensions. "
                           f"One of {dtypes}."}


def of_number(kind, bounds):
    number = {"type": kind}
    if bounds and bounds["least"] is not None:
        number["minimum"] = int(bounds["least"]) if kind == "integer" else bounds["least"]
        if bounds["exclusive_least"]:
            number["exclusiveMinimum"] = True
    if bounds and bounds["most"] is not None:
        number["maximum"] = int(bounds["most"]) if kind == "integer" else bounds["most"]
    return number


def of_param(param):
    bounds = param.get("range")
    if param["type"] == "choice":
        schema = {"type": "string", "enum": param["choices"]}
    elif param["type"] == "bool":
        schema = {"type": "boolean"}
    elif param["type"] == "int":
        schema = of_number("integer", bounds)
    else:
        schema = of_number("number", bounds)
        if not bounds:
            schema = {"oneOf": [schema, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]}
        elif bounds["most"] is None:
            schema = {"oneOf": [schema, {"type": "string", "enum": ["Infinity"]}]}
    # no `default`: generated clients send one, and what is given is not always the same as what is left out
    return {**schema, "description": f"{param['doc']} Default `{json.dumps(param['default'])}`."}


def of_operation(op):
    """The schemas of one operation, by name."""
    title = op["name"].capitalize()
    shared = {"priority": {"$ref": "#/components/schemas/Priority"},
              "deadline_ms": {"$ref": "#/components/schemas/Deadline"},
              "device": {"$ref": "#/components/schemas/Device"},
              "labels": {"$ref": "#/components/schemas/Labels"},
              "notify": {"$ref": "#/components/schemas/Notify"}}
    shared["digest"] = {"type": "boolean", "description": "`execution.digest` tells a SHA-256 of each output. Default `false`."}
    outputs = {"type": "array", "items": {"type": "string", "enum": [port["name"] for port in op["outputs"]]}}
    shared["keep"] = {**outputs, "description": "Outputs that become tensors (`outputs.NAME.tensor`); they are not sent."}
    shared["results"] = {**outputs, "description": "Outputs that are sent, in place of all that are not kept."}
    return {
        f"{title}Inputs": {"type": "object", "description": op["summary"], "additionalProperties": False,
                           "required": [port["name"] for port in op["inputs"] if not port["optional"]],
                           "properties": {port["name"]: of_input(port) for port in op["inputs"]}},
        f"{title}Params": {"type": "object", "description": "All of them are optional.", "additionalProperties": False,
                           "properties": {param["name"]: of_param(param) for param in op["params"]}},
        f"{title}Job": {"type": "object", "description": op["summary"], "additionalProperties": False,
                        "required": ["op", "inputs"],
                        "properties": {"op": {"type": "string", "enum": [op["name"]]},
                                       "inputs": {"$ref": f"#/components/schemas/{title}Inputs"},
                                       "params": {"$ref": f"#/components/schemas/{title}Params"}, **shared}},
    }


def add_operations(document, ops):
    schemas = document["components"]["schemas"]
    for op in ops:
        schemas.update(of_operation(op))
    names = {op["name"]: f"#/components/schemas/{op['name'].capitalize()}Job" for op in ops}
    for port in (port for op in ops for port in op["inputs"]):
        schemas["JobForm"]["properties"].setdefault(port["name"], {"type": "string", "format": "binary", "description": port["doc"]})
    schemas["JobRequest"] = {**schemas["JobRequest"], "oneOf": [{"$ref": ref} for ref in names.values()],
                             "discriminator": {"propertyName": "op", "mapping": names}}


FORMATS = {"integer": "int64", "number": "double"}  # without them generated clients take 32 bits


def add_formats(node):
    """Says of all numbers how many bits they need."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        add_formats(value)
    if isinstance(node, dict) and isinstance(node.get("type"), str) and node["type"] in FORMATS:
        node["format"] = FORMATS[node["type"]]


# What any route may answer, before it is asked what it does.
COMMON = {"400": "", "401": "", "403": "", "408": "", "413": "", "415": "", "429": "Busy", "431": ""}


def add_answers(document):
    for path, item in document["paths"].items():
        names = {"": "InferenceError", "Busy": "InferenceBusy"} if path.split("/")[1] == "v2" else {"": "Problem", "Busy": "Busy"}
        for method, operation in item.items():
            if method != "parameters":
                answers = operation["responses"]
                for status, kind in COMMON.items():
                    answers.setdefault(status, {"$ref": f"#/components/responses/{names[kind]}"})
                operation["responses"] = {status: answers[status] for status in sorted(answers)}


REQUEST_ID = {"schema": {"type": "string"}, "description": "Names this request in the log; of a submission the id of its job."}


def add_request_ids(document):
    answers = [*document["components"]["responses"].values()]
    for item in document["paths"].values():
        answers += [answer for method, operation in item.items() if method != "parameters" for answer in operation["responses"].values()]
    for answer in answers:
        if "$ref" not in answer:
            answer["headers"] = {**answer.get("headers", {}), "Request-Id": REQUEST_ID}


def reached(document, node, seen):
    """The names of all schemas that this one is made of."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key != "$ref":
            reached(document, value, seen)
        elif value.startswith("#/components/schemas/") and (name := value.rsplit("/", 1)[1]) not in seen:
            seen.add(name)
            reached(document, document["components"]["schemas"][name], seen)
    return seen


def open_node(node):
    """Takes away that an object has no other members."""
    if isinstance(node, dict) and node.get("additionalProperties") is False:
        del node["additionalProperties"]
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        open_node(value)


def open_answers(document):
    """Answers gain members within a version, so that clients must not refuse them; requests stay closed."""
    operations = [operation for item in document["paths"].values() for method, operation in item.items() if method != "parameters"]
    asked = set()
    for operation in operations:
        reached(document, operation.get("requestBody", {}), asked)
        open_node(operation["responses"])
    open_node([schema for name, schema in document["components"]["schemas"].items() if name not in asked])


# --- the page -----------------------------------------------------------------------------------------------------

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="/docs/style.css">
</head>
<body>
{body}
</body>
</html>
"""


def text_of(text):
    """Paragraphs, with what stands in backquotes as code."""
    def inline(part):
        return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(part, quote=False))
    paragraphs = re.split(r"\n\s*\n", (text or "").strip())
    return "\n".join(f"<p>{inline(' '.join(part.split()))}</p>" for part in paragraphs if part)


def type_of(schema):
    """A schema in a few words."""
    if not schema:
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f'<a href="#schema-{name}">{name}</a>'
    for word, between in (("oneOf", " or "), ("allOf", " and ")):
        if word in schema:
            return between.join(type_of(one) for one in schema[word])
    if "enum" in schema:
        return " or ".join(f"<code>{html.escape(json.dumps(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items'))}"
    kind = schema.get("type", "anything")
    words = [kind if kind in FORMATS else schema.get("format") or kind]
    if "minimum" in schema:
        words.append(f"{'above' if schema.get('exclusiveMinimum') else 'from'} {schema['minimum']:g}")
    if "maximum" in schema:
        words.append(f"to {schema['maximum']:g}")
    if "pattern" in schema:
        words.append(f"like <code>{html.escape(schema['pattern'])}</code>")
    return " ".join(words)


def rows_of(rows):
    """A table of (name, type, description)."""
    cells = "\n".join(f"<tr><td><code>{html.escape(name)}</code></td><td>{kind}</td><td>{text_of(words)}</td></tr>"
                      for name, kind, words in rows)
    return f"<table>\n{cells}\n</table>" if rows else ""


def section_of_schema(name, schema):
    parts = [f'<h3 id="schema-{name}">{name}</h3>', text_of(schema.get("description"))]
    if "properties" not in schema:
        parts.append(f"<p>{type_of({k: v for k, v in schema.items() if k != 'description'})}</p>")
    else:
        required = schema.get("required", [])
        rows = []
        for member, one in schema["properties"].items():
            words = [one.get("description", ""), "Required." if member in required else ""]
            if "default" in one:
                words.append(f"Default `{json.dumps(one['default'])}`.")
            rows.append((member, type_of(one), " ".join(filter(None, words))))
        parts.append(rows_of(rows))
    return "\n".join(filter(None, parts))


def section_of_route(document, path, method, operation, shared):
    def resolve(node):
        while "$ref" in node:
            target = document
            for part in node["$ref"][2:].split("/"):
                target = target[part]
            node = target
        return node
    parts = [f'<h3 id="{operation["operationId"]}"><span class="method">{method.upper()}</span> '
             f"<code>{html.escape(path)}</code></h3>",
             text_of(operation["summary"] + "."), text_of(operation.get("description"))]
    params = [resolve(one) for one in shared + operation.get("parameters", [])]
    parts.append(rows_of([(one["name"], f"{one['in']}, {type_of(one['schema'])}", one.get("description", ""))
                          for one in params]))
    if "requestBody" in operation:
        body = operation["requestBody"]
        kinds = "; ".join(f"<code>{kind}</code>: {type_of(one['schema'])}" for kind, one in body["content"].items())
        parts.append(f"<p>Body: {kinds}.</p>{text_of(body.get('description'))}")
    for callback in operation.get("callbacks", {}).values():
        for url, item in callback.items():
            for verb, call in item.items():
                body = next(iter(call["requestBody"]["content"].values()))["schema"]
                parts.append(f"<p>Calls back: {verb.upper()} <code>{html.escape(url)}</code>, {type_of(body)}.</p>{text_of(call['description'])}")
    rows = []
    for status, answer in operation["responses"].items():
        answer = resolve(answer)
        kinds = "; ".join(f"{kind}: {type_of(one['schema'])}" for kind, one in answer.get("content", {}).items())
        rows.append((status, kinds, answer["description"]))
    return "\n".join(filter(None, [*parts, rows_of(rows)]))


def page_of(document):
    info, parts, links = document["info"], [], []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            parts.append(section_of_route(document, path, method, operation, item.get("parameters", [])))
            links.append(f'<li><a href="#{operation["operationId"]}"><span class="method">{method.upper()}</span> '
                         f"{html.escape(path)}</a></li>")
    schemas = [section_of_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    body = "\n".join([f"<h1>{info['title']}</h1>", text_of(info["description"]),
                      '<p>For programs: <a href="/openapi.json">/openapi.json</a>, <a href="/ops">/ops</a>.</p>',
                      "<h2>Routes</h2>", "<ul>", *links, "</ul>", *parts, "<h2>Types</h2>", *schemas])
    return PAGE.format(title=f"{info['title']}: the API", body=body)


# --- the files ----------------------------------------------------------------------------------------------------


def whole(strict=False):
    """The document; `strict`: answers have no members but those that it names, as tests want it."""
    document = yaml.safe_load((HERE / "openapi.yaml").read_text(encoding="utf-8"))
    add_operations(document, json.loads((HERE / "operations.json").read_text(encoding="utf-8"))["ops"])
    add_answers(document)
    add_request_ids(document)
    add_formats(document)
    document = json.loads(json.dumps(document))  # what the source says once, by an anchor, is there for each
    if not strict:
        open_answers(document)
    return document


def main():
    document = whole()
    made = {"openapi.json": json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n",
            "docs.html": page_of(document).encode("ascii", "xmlcharrefreplace").decode()}
    for name, text in made.items():
        target = HERE / name
        if "--check" not in sys.argv[1:]:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            sys.exit(f"api/{name} is not what api/openapi.yaml says: run make generated")


if __name__ == "__main__":
    main()
