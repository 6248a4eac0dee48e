"""What README and docs print runs as printed: every block of commands, Python, C and JSON, against a real service.

Only HOST:PORT is replaced, and sizes that stand in SMALLER. A command that cannot be run in a test stands in NOT_RUN with its reason, and is checked
as far as that goes: its syntax, its make targets, its options. What is neither run nor listed fails.
"""
import itertools
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from service import BLASD, ROOT

DOCUMENTS = sorted(str(path) for path in (one.relative_to(ROOT) for one in ROOT.rglob("*.md"))
                   if path.parts[0] != "build" and not any(part.startswith(".") for part in path.parts))
EXAMPLES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "clients/c/examples").glob("*.c"))

INSTALLS = "installs packages of the system, or from a registry"
ITSELF = "is what runs this test, or holds it"
LONG = "takes minutes or hours; its own job in continuous integration"
SERVICE = "the test starts its own service, on a port of its own"
OTHERS = "needs a container engine, other machines, or a system's own folders"

# By the words they begin with; `make` by itself is that alone.
NOT_RUN = {
    "make": ITSELF,
    "make check": ITSELF,
    "make test-all": ITSELF,
    "make cuda": LONG,
    "make mutants": LONG,
    "make demo": INSTALLS,
    "make test": ITSELF,
    "make lint": LONG,
    "make fuzz": LONG,
    "make soak": LONG,
    "make bench": LONG,
    "make bench-kernels": LONG,
    "make bench-micro": LONG,
    "python3 bench/run/versions.py": LONG,
    "make test-gpu": OTHERS,
    "make deb": OTHERS + "; deploy/test-deb.sh does it in bare roots",
    "sudo apt install": INSTALLS + "; deploy/test-deb.sh does it in bare roots",
    "sudo make install": INSTALLS + "; test_install.py does it into a directory",
    "sudo systemctl": INSTALLS,
    "sudo cp": OTHERS,
    "sudo systemd-sysusers": INSTALLS + "; test_install.py reads what it would make",
    "make test-image": OTHERS,
    "make test-fresh": OTHERS,
    "build/blasd up": SERVICE,
    "build/blasd api": SERVICE,
    "build/blasd worker": SERVICE,
    "build/blasd notify": SERVICE + "; test_webhooks.py runs it",
    "curl -sf --json": "leads to another host; test_webhooks.py",
    "curl -sf 'localhost:8080/jobs?wait=60' -d '{\"op\":\"eigh\",\"inputs\":{\"a\":{\"url\":\"https://lab.s3.eu-central-1.amazonaws.com/a.npy?X-Amz-Signature=…\"}}}'":
        "fetches from another host; test_urls.py",
    "deploy/install-packages.sh build": INSTALLS,
    "kubectl create": OTHERS,
    "kubectl -n": OTHERS,
    "kubectl apply": OTHERS + "; test_deploy.py starts what the manifests name",
    "sbatch --nodes=4": OTHERS + "; test_deploy.py runs the script over one machine",
    "docker build": OTHERS,
    "docker run": OTHERS,
    "docker logs": OTHERS,
    "docker exec": OTHERS,
    "sudo blasd keys": OTHERS,
    "curl -sN": "never ends; test_events.py reads what it gives",
    "curl --cacert": OTHERS + "; test_tls.py does it",
    "pip install jupyterlab": INSTALLS + "; test_tutorial.py runs the notebooks in an environment of its own",
    "BLASD_TUTORIAL=full jupyter": SERVICE + "; test_tutorial.py",
    "pip install ./clients/python": INSTALLS + "; test_clients.py does it without a network",
}

# Blocks that are no commands, by their first line.
PROSE = {
    "docs/events.md": ("event: hello",),
    "docs/keys.md": ("[Service]",),
    "docs/webhooks.md": ("POST /blasd",),
    "docs/devices.md": ("end = work that waits", "cuda:0: some inputs"),
    "kernels/cuda/README.md": ("extern const struct blasd_backend",),  # the head of a test, which the tests have
}

# Sizes that are worth a figure, and those that show in a moment that it works.
SMALLER = {
    "docs/howto/ridge-path.md": {"100_000, 200": "2_000, 20"},
    "docs/howto/neighbours.md": {"100_000, 64, 50": "1_000, 8, 5"},
    "docs/howto/refinement.md": {"2_000": "100"},
    "docs/howto/power-iteration.md": {"1_024, 200": "100, 200"},
}

# What stands around a C snippet.
C_HEAD = """
#include "clients/c/blasd_operations.h"
#include <stdio.h>
void use(struct blasd_client *client, const struct blasd_array *specs, struct blasd_shared *shared,
         struct blasd_problem problem);
void use(struct blasd_client *client, const struct blasd_array *specs, struct blasd_shared *shared,
         struct blasd_problem problem) {
    (void)client, (void)specs, (void)shared, (void)problem;
"""


# Blocks whose programs come from PyPI: run by venv.
PEERS = {"python-triton": "inference", "perf": "perf"}


def blocks(text):
    """Yields (line, fence's word or None, text) of each fenced or indented block."""
    lines, at, before = text.split("\n"), 0, ""
    while at < len(lines):
        fence = re.fullmatch(r"\s*```\s*([\w-]*)\s*", lines[at])
        if fence:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            yield at + 1, fence.group(1), "\n".join(lines[at + 1:end])
            at = end + 1
        elif lines[at].startswith("    ") and not before.strip():
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield at + 1, None, "\n".join(line[4:] for line in lines[at:end]).strip("\n")
            at = end
        else:
            at += 1
        before = lines[at - 1]


COMMANDS = r"(sudo|make|build/\S+|curl|python3|pip|docker|deploy/\S+|bench/\S+|cc|\./\S+|cd|sh|[A-Z_]+=\S+)(\s|$)"


def listed(command):
    """The entry of NOT_RUN that a command falls under, or None."""
    words = command.split()
    for entry in NOT_RUN:
        begin = entry.split()
        if words[:len(begin)] == begin and (len(begin) > 1 or words == begin):
            return entry
    return None


def kind_of(word, text):
    """sh, python, c, json, or "" for a drawing."""
    if word is not None:
        return {"sh": "sh", "bash": "sh", "shell": "sh", "console": "sh", "py": "python"}.get(word, word)
    if re.match(COMMANDS, text):
        return "sh"
    if re.match(r'[{["]', text):
        return "json"
    if re.search(r"(;|/\*.*\*/)\s*$", text, re.M) and "struct" in text:
        return "c"
    try:
        compile(text, "", "exec")
        return "python"
    except SyntaxError:
        return "unknown"


def is_prose(document, text):
    return text.startswith(PROSE.get(document, ()))


def commands(text):
    """The commands of a block, comments and prompts aside; a line that ends in \\ goes on."""
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        words = re.sub(r"(^|\s)#.*", "", line).strip()
        if words:
            yield words


def with_port(text, service):
    return re.sub(r"(localhost|127\.0\.0\.1):8080", f"127.0.0.1:{service.port}", text)


@pytest.fixture
def tree(tmp_path):
    """The repository's root as far as commands see it, in which they may leave files."""
    for name in ("api", "bench", "clients", "deploy", "docs", "kernels", "mk", "src", "tests", "Makefile", "VERSION", "build"):
        (tmp_path / name).symlink_to(BLASD.parent if name == "build" else ROOT / name)
    return tmp_path


def environment(service):
    return {**os.environ, "BLASD": str(BLASD), "BLASD_URL": service.url, "PYTHONPATH": str(ROOT / "clients/python"),
            "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]}


# --- commands that are not run ----------------------------------------------------------------------------------------


def make_targets():
    files = [ROOT / "Makefile", *(ROOT / "mk").glob("*.mk")]
    text = re.sub(r"\\\n", " ", "\n".join(file.read_text() for file in files))
    return {word for line in re.findall(r"^([\w .-]+):(?!=)", text, re.M) for word in line.split()}


def options_of(command):
    done = subprocess.run([BLASD, "help", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("usage"), f"there is no `blasd {command}`"
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout))


def check_unrun(command):
    """As far as one can without running it."""
    subprocess.run(["sh", "-n", "-c", command], check=True)
    words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    if words[0] == "make":
        assert not {word for word in words[1:] if re.fullmatch(r"[\w-]+", word)} - make_targets(), command
    elif words[0] in ("blasd", "build/blasd"):
        given = {word.split("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)}
        assert given <= options_of(words[1]), f"{command}: {given - options_of(words[1])}"
    elif words[0].startswith(("build/", "deploy/", "bench/")):
        assert os.access(ROOT / words[0], os.X_OK), command


def inline_commands(text):
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        if re.match(r"(([A-Z_]+=\S+ )?make|(build/)?blasd) [a-z]", span) and "…" not in span:
            yield span


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if one != "CHANGELOG.md"])  # which tells of what has gone, too
def test_commands_within_the_text_exist(document):
    for command in inline_commands((ROOT / document).read_text()):
        if command.split()[-2:] != ["help", "COMMAND"]:
            check_unrun(command)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    """To files and headings of the repository."""
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / document).read_text()):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        file = (ROOT / document).parent / path if path else ROOT / document
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            assert anchor in [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings], target


PARTS = ["1 Why", "2 Quick start", "3 Tutorial", "4 Concepts", "5 Guides", "6 Operate", "7 Reference", "8 Background", "9 Contribute"]


def test_every_page_has_one_place_in_the_table_of_contents():
    index = (ROOT / "docs/README.md").read_text()
    assert re.findall(r"^## (.*)", index, re.M) == PARTS
    for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("clients/*/README.md"), ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]:
        if page != ROOT / "docs/README.md":
            link = os.path.relpath(page, ROOT / "docs")
            assert index.count(f"]({link})") == 1 + (link == "concepts.md"), f"{link} stands in {index.count(f']({link})')} places"


def test_what_is_not_run_is_printed_somewhere():
    """Nothing stays in the list that no document has any more."""
    printed = {command for document in DOCUMENTS for _, word, text in blocks((ROOT / document).read_text())
               if kind_of(word, text) == "sh" for command in commands(text)}
    assert not {entry for entry in NOT_RUN if not entry.startswith("make")} - set(map(listed, printed))
    for entry in NOT_RUN:
        check_unrun(entry)


# --- what is run ------------------------------------------------------------------------------------------------------


def run_command(command, service, tree):
    done = subprocess.run(["sh", "-ec", with_port(command, service)], cwd=tree, env=environment(service),
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert '"code":' not in done.stdout, (command, done.stdout)
    return done.stdout


def compile_c(text, tree):
    (tree / "snippet.c").write_text(f"{C_HEAD}{text}\n}}\n")
    done = subprocess.run(["gcc", "-std=c17", "-I.", "-Wall", "-Wno-unused", "-Werror", "-fsyntax-only", "snippet.c"],
                          cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def paths_of(value, at=""):
    """The members of a JSON document, by path."""
    if not isinstance(value, dict):
        return {at}
    return {at}.union(*(paths_of(member, f"{at}.{name}") for name, member in value.items()))


def check_json(text, answer):
    """It is JSON, or members of it; a job document has the members that the answer before it has."""
    document = json.loads(f"{{{text}}}" if text.startswith('"') else text)
    if "state" in document:
        assert paths_of(document) == paths_of(json.loads(answer))


def run_python(text, space, service, document, line):
    for size, smaller in SMALLER.get(document, {}).items():
        text = text.replace(size, smaller)
    code = compile("\n" * line + with_port(text, service), document, "exec")
    exec(code, space)


def run_peer(kind, text, folder):
    if kind == "perf":  # on a busy machine no figures are stable
        text = text.rstrip() + " --stability-percentage 999"
    libraries = ":".join(map(str, folder.glob("lib/python3*/site-packages/nvidia/*/lib")))
    words = [folder / "bin/python", "-c", text] if kind.startswith("python") else ["sh", "-ec", text]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env={
        **os.environ, "LD_LIBRARY_PATH": libraries, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


SHARING = ("docs/sharing.md", "clients/python/README.md")  # their snippets say share=True


@pytest.mark.parametrize("document", [pytest.param(name, marks=[pytest.mark.full] if any(word in PEERS for _, word, _ in found) else [])
                                      for name in DOCUMENTS if (found := list(blocks((ROOT / name).read_text())))])
def test_blocks_run_as_printed(document, service, sharing, tree, monkeypatch, request):
    """One after the other, as one reads them: what the first ones define and save the later ones use."""
    of, answer, space = sharing if document in SHARING else service, "", {"__name__": "a document"}
    monkeypatch.chdir(tree)
    for name, value in environment(of).items():
        monkeypatch.setenv(name, value)
    if document == "docs/ended.md":  # which reads the queue
        monkeypatch.setenv("BLASD_REDIS", (of.folder / "data" / "redis.url").read_text().strip())
    for line, word, text in blocks((ROOT / document).read_text()):
        kind = kind_of(word, text)
        where = f"{document}:{line}"
        if is_prose(document, text) or kind == "":
            continue
        if kind in PEERS:
            run_peer(kind, with_port(text, of), request.getfixturevalue("venv")(PEERS[kind]))
            continue
        if kind == "sh":
            for command in commands(text):
                if listed(command):
                    check_unrun(command)
                else:
                    answer = run_command(command, of, tree)
        elif kind == "python":
            run_python(text, space, of, document, line)
        elif kind == "c":
            compile_c(text, tree)
        elif kind == "json":
            check_json(text, answer)
        else:
            pytest.fail(f"{where}: neither commands nor Python nor C, and no fence says what it is:\n{text}")


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_in_c_are_made_as_they_say(example, sharing, tree):
    head = (ROOT / example).read_text().split("*/")[0]
    found = re.findall(r"^ \*\s+((?:cc|\./)\S* .*)$", head, re.M)
    assert len(found) == 2
    for command in found:
        assert run_command(command, sharing, tree) or command.startswith("cc")


PRINT = 'const double *d = c->data; printf("%g %g %g %g", d[0], d[1], d[2], d[3]);'


def test_the_program_at_the_head_of_the_c_header(service, tree):
    """It has an ellipsis where one uses the result."""
    head = (ROOT / "clients/c/blasd.h").read_text()
    lines = [line[3:] for line in itertools.takewhile(lambda line: "*/" not in line, head.split("\n"))
             if line.startswith(" *     ")]
    text = re.sub(r"\.\.\. c->data holds (.*) \.\.\.", PRINT, with_port("\n".join(lines), service))
    (tree / "head.c").write_text('#include "clients/c/blasd.h"\n#include <stdio.h>\nint main(void) {\n' + text + "\n}\n")
    run_command("cc -I. head.c -Lbuild -lblasd_client -lcurl -ljansson -o head", service, tree)
    assert run_command("./head", service, tree) == "19 22 43 50"


def test_what_is_made_smaller_is_there():
    for document, sizes in SMALLER.items():
        assert all((ROOT / document).read_text().count(size) == 1 for size in sizes), document


# --- the test itself --------------------------------------------------------------------------------------------------


def test_a_command_that_is_new_is_run(service, tree):
    """And fails where it does not work."""
    text = "Text.\n\n    make nonsense\n    curl -sf localhost:8080/nonsense\n\nMore.\n"
    [(line, word, block)] = blocks(text)
    assert line == 3 and kind_of(word, block) == "sh"
    for command in commands(block):
        assert not listed(command)
        with pytest.raises(AssertionError):
            run_command(command, service, tree)
    for wrong in ("make nonsense", "build/blasd up --nonsense", "blasd nonsense", "deploy/nonsense"):
        with pytest.raises(AssertionError):
            check_unrun(wrong)
    assert kind_of(None, "x = solve a b") == "unknown"
