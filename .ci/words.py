"""The rules of language that a program can check; CONTRIBUTING.md has all of them, with examples. Called by lint.py.

Run by itself it prints statistics: words, share of long sentences, banned words per thousand.

    .ci/words.py [FILE]...
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_WORDS = 35     # in a sentence; 25 is the aim
MOST_COLUMNS = 100  # of a line; rows of tables and code may be longer, except in README.md
MOST_SUBJECT = 72   # of a commit
LATEST_COMMITS = 10
README_LINES = 120

# Another subject or the field's word takes the place of each.
BANNED = re.compile(
    r"\b(who|whom|whoever|nobody|anybody|somebody|everybody|anew|beside|in place of|instead thereof|mend(s|ed|ing)?|prolong(s|ed)?"
    r"|in hand|ended badly|is none|are none|is no\b(?! (effect|limit|default|need))|no longer|not any more|any longer"
    r"|one's own|of one's|but for|as ever|what (is|was|are|were|has|had|it|they|a|the|others|comes|came|goes|lies|can|may|must)"
    r"|reckoned|hitherto|thereby|forget about)\b", re.I)
FIRST = re.compile(r"^(Where|What|Whatever|Who) (?!.*\?$)")
OTHERS = {"CHANGELOG.md"}       # history
EXAMPLES = {"CONTRIBUTING.md"}  # shows the words that are banned
GENERATED = {"docs/errors.md", "docs/limits.md", "docs/metrics.md", "docs/operations.md", "docs/warnings.md"}
# Documents that are not yet written by these rules. The list only gets shorter.
NOT_YET = set("""
docs/console.md
""".split())


def documents():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    return sorted(name for name in names if (ROOT / name).is_file() and name not in OTHERS)


def code_lines(lines):
    """The numbers of the lines that are fenced or indented code."""
    fenced = indented = False
    empty = True
    for number, line in enumerate(lines, 1):
        fence = line.strip().startswith("```")
        indented = not fenced and not fence and line.startswith("    ") and (indented or empty)
        if fenced or fence or indented:
            yield number
        fenced ^= fence
        empty = not line.strip() or indented


def texts(markdown):
    """Yields (line number, text) of each paragraph, list item, heading and cell; code is left out."""
    lines, paragraph, start = markdown.split("\n"), [], 0
    code = set(code_lines(lines))
    for number, line in enumerate([*lines, ""], 1):
        item = re.match(r"\s*([-*]|\d+\.) ", line)
        if paragraph and (number in code or not line.strip() or item or line.startswith(("|", "#"))):
            yield start, " ".join(paragraph)
            paragraph = []
        if number in code or not line.strip():
            continue
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip("|")):
                if re.search(r"\w", cell):
                    yield number, cell.strip()
        elif line.startswith("#"):
            yield number, line.lstrip("# ")
        else:
            start = start if paragraph else number
            paragraph.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line).strip())


def plain(text):
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,2}(\S[^*_]*\S|\S)[*_]{1,2}", r"\1", text)


def sentences(text):
    return [one for one in re.split(r"(?<=[.!?])\s+(?=[\w(\"'|])|(?<=[:;])\s+(?=[A-Z0-9(\"'])", plain(text)) if re.search(r"\w", one)]


def words(sentence):
    return len(re.findall(r"[A-Za-z0-9_][\w'’./-]*", sentence))


def check_document(name, complain):
    markdown = (ROOT / name).read_text()
    for number, text in texts(markdown):
        for sentence in sentences(text):
            if words(sentence) > MOST_WORDS:
                complain(f"{name}:{number}: a sentence of {words(sentence)} words: {sentence[:60]}…")
            for found in () if name in EXAMPLES else [BANNED.search(sentence), FIRST.match(sentence)]:
                if found:
                    complain(f"{name}:{number}: say it without \"{found.group().strip()}\" (CONTRIBUTING.md, Language): {sentence[:60]}")
    lines = markdown.rstrip("\n").split("\n")
    free = set(code_lines(lines)) if name != "README.md" else set()
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_COLUMNS and number not in free and not (line.startswith("|") and name != "README.md"):
            complain(f"{name}:{number}: {len(line)} columns (most: {MOST_COLUMNS})")
    if name == "README.md" and len(lines) > README_LINES:
        complain(f"{name}: {len(lines)} lines (most: {README_LINES})")


def check(complain):
    for name in documents():
        if name not in NOT_YET | GENERATED:
            check_document(name, complain)
    for name in sorted(NOT_YET - set(documents())):
        complain(f".ci/words.py: {name} is gone; remove it from NOT_YET")
    done = subprocess.run(["git", "log", "--no-merges", f"-{LATEST_COMMITS}", "--format=%h %s"], cwd=ROOT, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if len(line.split(" ", 1)[1]) > MOST_SUBJECT:
            complain(f"commit {line.split()[0]}: its subject has {len(line.split(' ', 1)[1])} characters (most: {MOST_SUBJECT})")


def main(names):
    total = [0, 0, 0, 0]
    for name in names or documents():
        found = [one for _, text in texts((ROOT / name).read_text()) for one in sentences(text)]
        row = [sum(map(words, (ROOT / name).read_text().split())), len(found), sum(words(one) > MOST_WORDS for one in found),
               sum(len(BANNED.findall(one)) + bool(FIRST.match(one)) for one in found)]
        if name in EXAMPLES:
            row[3] = 0
        total = [a + b for a, b in zip(total, row)]
        print(f"{row[0]:7} words {row[1]:5} sentences {row[2]:4} long {row[3]:4} banned  {name}")
    print(f"{total[0]} words; {100 * total[2] / total[1]:.1f} % of the sentences above {MOST_WORDS} words; "
          f"{1000 * total[3] / total[0]:.2f} banned words in a thousand")


if __name__ == "__main__":
    main(sys.argv[1:])
