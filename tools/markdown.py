"""A chapter's MyST Markdown as plain Markdown that Jupyter and Colab render.

A *directive* is a fence with a name in braces, a *role* an inline code span with one before it. Every directive and
role that a chapter may use has a converter here; any other is an error that names file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tools import ledger, project, references

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}|:{3,})(?P<info>.*)$")
DIRECTIVE = re.compile(r"\{(?P<name>[\w:.-]+)\}\s*(?P<argument>.*)")
ROLE = re.compile(r"(?:\{(?P<role>[\w:]+)\})?(?P<ticks>`+)(?P<text>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
TITLED = re.compile(r"(?P<title>.*\S)\s*<(?P<target>[^<>]+)>", re.DOTALL)
TARGET = re.compile(r"^\((?P<label>[\w-]+)\)=\s*$")
DOLLAR_MATH = re.compile(r"^\$\$(?P<body>.*?)\$\$(?: *\((?P<label>[\w-]+)\))?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<target>[^)\s]*)")

THEOREMS = {
    f"prf:{name}": name.capitalize()
    for name in ("definition", "theorem", "lemma", "corollary", "proposition", "example", "remark", "assumption")
}
ADMONITIONS = ("note", "tip", "warning", "important", "hint", "attention", "caution")


class SourceError(ValueError):
    """Something in a chapter that the converter does not know, with file and line."""


@dataclass
class Directive:
    name: str
    argument: str
    options: dict[str, Any]
    body: str
    line: int  # of the opening fence, in the file
    body_line: int


@dataclass
class Text:
    text: str
    line: int


@dataclass
class Code:
    """A fence without braces: kept as it is."""

    text: str
    line: int


Block = Directive | Text | Code


# --- parsing --------------------------------------------------------------------------------------------------


def blocks(source: str, line: int, path: Path) -> Iterator[Block]:
    """Split Markdown into directives, code fences and the text between them. ``line`` is that of its first line."""
    lines = source.split("\n")
    pending: list[str] = []
    at = start = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            pending.append(lines[at])
            at += 1
            continue
        if pending:
            yield Text("\n".join(pending), line + start)
            pending = []
        if fence["fence"].startswith(":"):
            raise SourceError(f"{path}:{line + at}: a fence of colons; use backquotes")
        end = _closing(lines, at, fence, line, path)
        directive = DIRECTIVE.fullmatch(fence["info"].strip())
        if directive is None:
            yield Code("\n".join(lines[at : end + 1]), line + at)
        else:
            indent = len(fence["indent"])
            body = [text[indent:] if text[:indent].isspace() else text for text in lines[at + 1 : end]]
            yield _directive(directive, body, line + at)
        at = start = end + 1
    if pending:
        yield Text("\n".join(pending), line + start)


def _closing(lines: list[str], at: int, fence: re.Match[str], line: int, path: Path) -> int:
    marks = fence["fence"]
    for end in range(at + 1, len(lines)):
        stripped = lines[end].strip()
        if len(stripped) >= len(marks) and set(stripped) == {marks[0]}:
            return end
    raise SourceError(f"{path}:{line + at}: the fence is never closed")


def _directive(match: re.Match[str], body: list[str], line: int) -> Directive:
    """Options stand on top of the body, as ``:key: value`` lines or as YAML between ``---`` lines."""
    options: dict[str, Any] = {}
    skipped = 0
    if body and body[0].strip() == "---":
        end = body.index("---", 1)
        options, skipped = yaml.safe_load("\n".join(body[1:end])) or {}, end + 1
    else:
        while skipped < len(body) and (option := re.match(r":([\w-]+):\s*(.*)", body[skipped])):
            options[option[1]] = option[2].strip()
            skipped += 1
    rest = "\n".join(body[skipped:])
    return Directive(match["name"], match["argument"].strip(), options, rest.strip("\n"), line, line + 1 + skipped)


def walk(source: str, line: int, path: Path) -> Iterator[Directive | Text]:
    """Every directive and text, nested ones too, in the order of the page."""
    for block in blocks(source, line, path):
        if isinstance(block, Directive):
            yield block
            if block.name not in ("math", "code-cell", "raw-cell"):
                yield from walk(block.body, block.body_line, path)
        elif isinstance(block, Text):
            yield block


# --- numbers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    text: str  # what a reference prints: "(2.3)", "Theorem 2.1", "Exercise 2.1", a section's title
    page: str  # name of the page, "02_rotary"
    anchor: str


@dataclass
class Labels:
    """Every label of the book, numbered as on the HTML pages."""

    labels: dict[str, Label] = field(default_factory=dict)

    @classmethod
    def of_book(cls, root: Path = project.ROOT) -> Labels:
        book = cls()
        for number, path in enumerate(project.chapters(root), start=1):  # as the HTML counts: by the table of contents
            book.add_chapter(path, number)
        for name in project.toc_files(root):
            path = root / f"{name}.md"
            if path not in project.chapters(root):
                book.add_targets(path.read_text("utf8"), path.stem)
        return book

    def add_chapter(self, path: Path, number: int) -> None:
        source = path.read_text("utf8")
        counts: dict[str, int] = {}
        for block in walk(source, 1, path):
            found = (
                [_numbered(block)]
                if isinstance(block, Directive)
                else [("equation", match["label"]) for match in DOLLAR_MATH.finditer(block.text) if match["label"]]
            )
            for kind, label in filter(None, found):
                counts[kind] = counts.get(kind, 0) + 1
                full = f"{number}.{counts[kind]}"
                if label:
                    text = f"({full})" if kind == "equation" else f"{kind} {full}"
                    anchor = f"equation-{label}" if kind == "equation" else label
                    if kind in ("equation", "Figure"):  # there Sphinx makes an HTML name of the label
                        anchor = anchor.replace("_", "-")
                    self.labels[label] = Label(text, path.stem, anchor.lower())
        self.add_targets(source, path.stem)

    def add_targets(self, source: str, page: str) -> None:
        lines = source.split("\n")
        for at, text in enumerate(lines):
            if match := TARGET.match(text):
                heading = next((line for line in lines[at + 1 :] if line.strip()), "")
                self.labels[match["label"]] = Label(heading.lstrip("# ").strip(), page, match["label"].lower())


def _numbered(block: Directive) -> tuple[str, str] | None:
    """The kind and label of what Sphinx numbers: labelled equations and figures, all theorems and exercises."""
    label = str(block.options.get("label", ""))
    if block.name == "math":
        return ("equation", label) if label else None
    if block.name in THEOREMS and "nonumber" not in block.options:
        return THEOREMS[block.name], label
    if block.name == "exercise" and "nonumber" not in block.options:
        return "Exercise", label
    if block.name == "code-cell":
        name = block.options.get("mystnb", {}).get("figure", {}).get("name", "")
        return ("Figure", name) if name else None
    return None


# --- conversion -----------------------------------------------------------------------------------------------


@dataclass
class Converter:
    """Converts the Markdown of one page."""

    path: Path
    labels: Labels
    root: Path = project.ROOT
    cited: list[str] = field(default_factory=list)  # keys of the whole page, for its list of references

    def convert(self, source: str, line: int) -> str:
        parts = [self.block(block) for block in blocks(source, line, self.path)]
        text = "\n".join(part for part in parts if part.strip())
        return re.sub(r"\n{3,}", "\n\n", text).strip("\n")

    def block(self, block: Block) -> str:
        if isinstance(block, Code):
            return f"\n{block.text}\n"
        if isinstance(block, Text):
            return self.text(block)
        convert = self.directives().get(block.name)
        if convert is None:
            raise SourceError(f"{self.path}:{block.line}: the notebooks do not know the directive {{{block.name}}}")
        return f"\n{convert(block)}\n"

    def body(self, block: Directive) -> str:
        return self.convert(block.body, block.body_line)

    # directives

    def directives(self) -> dict[str, Callable[[Directive], str]]:
        known: dict[str, Callable[[Directive], str]] = {
            "math": self.math,
            "admonition": lambda block: self.quote(block.argument, block),
            "dropdown": lambda block: self.details(self.inline(block.argument, block.line), block),
            "prf:proof": self.proof,
            "exercise": self.exercise,
            "solution": self.solution,
            "claims": self.claims,
            "libraries": self.libraries,
            "bibliography": lambda block: references.listing(self.cited, self.root),
            "run-time": lambda block: "Run time: less than a minute on 2 CPU cores.",
            "only-notebook": self.body,
        }
        known |= dict.fromkeys(THEOREMS, self.theorem)
        known |= {name: lambda block: self.quote(block.name.capitalize(), block) for name in ADMONITIONS}
        return known

    def math(self, block: Directive) -> str:
        return self.display(block.body, str(block.options.get("label", "")))

    def display(self, formula: str, label: str) -> str:
        formula = formula.strip()
        if r"\\" in formula and r"\begin" not in formula:  # Sphinx adds the same on the page
            formula = f"\\begin{{split}}{formula}\\end{{split}}"
        tag = f"\n\\tag{{{self.labels.labels[label].text.strip('()')}}}" if label else ""
        return f"$$\n{formula}{tag}\n$$"

    def quote(self, title: str, block: Directive) -> str:
        inner = DOLLAR_MATH.sub(lambda match: "$$" + " ".join(match["body"].split()) + "$$", self.body(block))
        lines = [f"**{self.inline(title, block.line)}**", "", *inner.split("\n")]
        return "\n".join(f"> {line}".rstrip() for line in lines)

    def theorem(self, block: Directive) -> str:
        label = str(block.options.get("label", ""))
        name = self.labels.labels[label].text if label else THEOREMS[block.name]
        title = f" ({self.inline(block.argument, block.line)})" if block.argument else ""
        return f"**{name}**{title}. {self.body(block)}"

    def proof(self, block: Directive) -> str:
        body = self.body(block)
        plain = not re.match(r"[>|`<$]", body.rsplit("\n", 1)[-1])  # the box cannot join a quote, a table, a formula
        return f"*Proof.* {body}{' ' if plain else chr(10) * 2}$\\square$"

    def details(self, title: str, block: Directive) -> str:
        return f"<details><summary>{title}</summary>\n\n{self.body(block)}\n\n</details>"

    def exercise(self, block: Directive) -> str:
        number = self.labels.labels[block.options["label"]].text
        title = f": {self.inline(block.argument, block.line)}" if block.argument else ""
        return f"### {number}{title}\n\n{self.body(block)}"

    def solution(self, block: Directive) -> str:
        number = self.reference(block.argument, block.line).text
        return self.details(f"Solution to {number.lower()}", block)

    def claims(self, block: Directive) -> str:
        rows = ledger.claims(self.root, block.argument or None)
        table = self.table(ledger.claims_table(rows), block.line)
        folded = f"<details><summary>All {len(rows)} of them</summary>\n\n{table}\n\n</details>"
        return f"{ledger.verdict_counts(rows)}\n\n{folded}"

    def libraries(self, block: Directive) -> str:
        table = ledger.libraries_table(self.root, self.path.stem[:2])
        return f"As of {ledger.libraries_date(self.root)}:\n\n{self.table(table, block.line)}"

    def table(self, table: ledger.Table, line: int) -> str:
        return ledger.as_pipe_table([[self.inline(cell, line) for cell in row] for row in table])

    # text and roles

    def text(self, block: Text) -> str:
        lines = [line for line in block.text.split("\n") if not TARGET.match(line) and not line.startswith("% ")]
        if inline := re.search(r"^.*\S.*\$\$(?!$).*$", DOLLAR_MATH.sub("", "\n".join(lines)), re.MULTILINE):
            raise SourceError(f"{self.path}:{block.line}: $$ inside a line ({inline[0].strip()}); use $ or {{math}}")
        text = DOLLAR_MATH.sub(lambda match: self.dollar_math(match), "\n".join(lines))
        if link := LINK.search(text):
            target = link["target"]
            raise SourceError(f"{self.path}:{block.line}: a link inside the book ({target}); use {{doc}} or {{ref}}")
        return self.inline(text, block.line)

    def dollar_math(self, match: re.Match[str]) -> str:
        one_line = "\n" not in match["body"] and not match["label"]
        return match[0] if one_line else self.display(match["body"], match["label"] or "")

    def inline(self, text: str, line: int) -> str:
        return ROLE.sub(lambda match: self.role(match, line + text.count("\n", 0, match.start())), text)

    def role(self, match: re.Match[str], line: int) -> str:
        role, text = match["role"], match["text"]
        if role is None:
            return match[0]
        titled = TITLED.fullmatch(text)
        title, target = (titled["title"], titled["target"]) if titled else ("", text)
        if role in ("eq", "ref", "numref", "prf:ref"):
            label = self.reference(target, line)
            return self.link(title or label.text, label.page, label.anchor)
        if role == "doc":
            return self.document(title, target, line)
        if role in ("cite", "cite:p", "cite:t"):
            return references.cite(text, role == "cite:t", self.root)
        if role == "term":
            return title or text
        if role == "math":
            return f"${text}$"
        if role.startswith("py:"):
            return f"`{title or (target.rsplit('.')[-1] if target.startswith('~') else target)}`"
        raise SourceError(f"{self.path}:{line}: the notebooks do not know the role {{{role}}}")

    def reference(self, target: str, line: int) -> Label:
        if target not in self.labels.labels:
            raise SourceError(f"{self.path}:{line}: no label {target!r} in the book")
        return self.labels.labels[target]

    def link(self, text: str, page: str, anchor: str) -> str:
        if page == self.path.stem:
            return text
        return f"[{text}]({project.pages_address(self.root)}/book/{page}.html#{anchor})"

    def document(self, title: str, target: str, line: int) -> str:
        path = (self.path.parent / target if not target.startswith("/") else self.root / target[1:]).with_suffix(".md")
        if not path.exists():
            raise SourceError(f"{self.path}:{line}: no page {target!r}")
        name = path.relative_to(self.root).with_suffix("").as_posix()
        return f"[{title or project.title(path)}]({project.pages_address(self.root)}/{name}.html)"


def citations(source: str) -> list[str]:
    """Every key that a page cites."""
    roles = (match for match in ROLE.finditer(source) if (match["role"] or "").startswith("cite"))
    return [key.strip() for match in roles for key in match["text"].split(",")]
