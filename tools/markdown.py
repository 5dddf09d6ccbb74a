"""A chapter's MyST Markdown as plain Markdown that Jupyter and Colab render.

A *directive* is a fence with a name in braces, a *role* an inline code span with one before it. Every directive and
role that a chapter may use has a converter here; any other is an error that names file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools import ledger, project, reading, references
from tools.myst import (
    ADMONITIONS,
    DOLLAR_MATH,
    ROLE,
    TARGET,
    THEOREMS,
    TITLED,
    Block,
    Code,
    Directive,
    SourceError,
    Text,
    blocks,
    is_folded,
    walk,
)  # fmt: skip

LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<target>[^)\s]*)")


# --- numbers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    text: str  # what a reference prints: "(2.3)", "Theorem 2.1", "Exercise 2.1", a section's title
    page: str  # name of the page, "02_rotary" or "deeper/05_circles"
    anchor: str


@dataclass
class Labels:
    """Every label of the book, numbered as on the HTML pages."""

    labels: dict[str, Label] = field(default_factory=dict)

    @classmethod
    def of_book(cls, root: Path = project.ROOT) -> Labels:
        book = cls()
        number = 0
        counts: dict[str, int] = {}
        for path in project.chapter_pages(root):  # as the HTML counts: by the table of contents
            if not project.is_deeper(path):  # a page that goes deeper counts on from its chapter
                number, counts = number + 1, {}
            book.add_chapter(path, number, counts, root)
        for path in set(project.pages(root)) - set(project.chapter_pages(root)):
            if path in project.notebook_pages(root):  # the quickstart: "Figure 1"
                book.add_chapter(path, 0, {}, root)
            else:
                book.add_targets(path.read_text("utf8"), project.page_name(path, root))
        return book

    def add_chapter(self, path: Path, number: int, counts: dict[str, int], root: Path) -> None:
        source, page = path.read_text("utf8"), project.page_name(path, root)
        for block in walk(source, 1, path):
            found = (
                [_numbered(block)]
                if isinstance(block, Directive)
                else [("equation", match["label"]) for match in DOLLAR_MATH.finditer(block.text) if match["label"]]
            )
            for kind, label in filter(None, found):
                counts[kind] = counts.get(kind, 0) + 1
                full = f"{number}.{counts[kind]}" if number else f"{counts[kind]}"
                if label:
                    text = f"({full})" if kind == "equation" else f"{kind} {full}"
                    anchor = f"equation-{label}" if kind == "equation" else label
                    if kind in ("equation", "Figure"):  # there Sphinx makes an HTML name of the label
                        anchor = anchor.replace("_", "-")
                    self.labels[label] = Label(text, page, anchor.lower())
        self.add_targets(source, page)

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
            "lesson-head": self.lesson_head,
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
        ended = f"{body}{' ' if plain else chr(10) * 2}$\\square$"
        if is_folded(block):
            return f"<details><summary>Proof</summary>\n\n{ended}\n\n</details>"
        return f"*Proof.* {ended}"

    def details(self, title: str, block: Directive) -> str:
        return f"<details><summary>{title}</summary>\n\n{self.body(block)}\n\n</details>"

    def exercise(self, block: Directive) -> str:
        number = self.labels.labels[block.options["label"]].text
        title = f": {self.inline(block.argument, block.line)}" if block.argument else ""
        return f"### {number}{title}\n\n{self.body(block)}"

    def solution(self, block: Directive) -> str:
        number = self.reference(block.argument, block.line).text
        return self.details(f"Solution to {number.lower()}", block)

    def lesson_head(self, block: Directive) -> str:
        needs = reading.needs(self.path, self.root)
        parts = [reading.minutes(self.path), "runs in less than a minute on 2 CPU cores", needs]
        return self.inline(" · ".join(parts), block.line)

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
        if page == project.page_name(self.path, self.root):
            return text
        return f"[{text}]({project.pages_address(self.root)}/book/{page}.html#{anchor})"

    def document(self, title: str, target: str, line: int) -> str:
        path = (self.path.parent / target if not target.startswith("/") else self.root / target[1:]).with_suffix(".md")
        if not path.exists():
            raise SourceError(f"{self.path}:{line}: no page {target!r}")
        name = path.relative_to(self.root).with_suffix("").as_posix()
        shown = title or project.chapter_reference(path, self.root) or project.title(path)
        return f"[{shown}]({project.pages_address(self.root)}/{name}.html)"


def citations(source: str) -> list[str]:
    """Every key that a page cites."""
    roles = (match for match in ROLE.finditer(source) if (match["role"] or "").startswith("cite"))
    return [key.strip() for match in roles for key in match["text"].split(",")]
