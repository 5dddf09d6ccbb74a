"""The form of every chapter (CONTRIBUTING.md), and that nothing numbered goes untested."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from pybtex.database import parse_file

from tools.bibliography import AuthorYearLabels
from tools.myst import THEOREMS, Directive, Text, tags, walk
from tools.project import ROOT, chapter_pages, chapters, front_matter, is_deeper, is_lesson, page_name, pages
from tools.sphinx_book import set_up

FIXED_TITLES = (
    "From scratch", "Where it breaks", "What the source got wrong", "Exercises", "Who ships this today", "Takeaway",
    "References",
)  # fmt: skip
KINDS = {"math": "eq", "prf:theorem": "thm", "prf:lemma": "lem", "prf:corollary": "cor", "prf:definition": "def"}


def each(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", pages, ids=page_name)


LESSONS = [path for path in chapters(ROOT) if is_lesson(path)]
each_page = each(chapter_pages(ROOT))
each_chapter = each([path for path in chapters(ROOT) if path not in LESSONS])  # in the first edition's form
each_lesson = each(LESSONS)
DEEPER = [path for path in chapter_pages(ROOT) if is_deeper(path)]
each_deeper = each(DEEPER)


@functools.cache
def directives(path: Path) -> list[Directive]:
    return [block for block in walk(path.read_text("utf8"), 1, path) if isinstance(block, Directive)]


@each_chapter
def test_sections_in_order(path: Path) -> None:
    titles = re.findall(r"^## (.+)$", re.sub(r"```.*?```", "", path.read_text("utf8"), flags=re.DOTALL), re.MULTILINE)
    there = [title for title in titles if title in FIXED_TITLES]
    assert there == list(FIXED_TITLES)
    assert titles.index("From scratch") > 0, "the derivation stands before it"


@each_chapter
def test_opening(path: Path) -> None:
    """Title with its number, a question, what one can do afterwards, prerequisites, run time, a prediction."""
    text = path.read_text("utf8").split("---\n", 2)[2]
    opening = text.split("\n## ", 1)[0]
    assert re.match(rf"\s*# {path.stem[:2]} \S", opening)
    assert "?" in opening.split("```", 1)[0], "a question that a practitioner asks"
    assert len(re.findall(r"^[-*] ", opening, re.MULTILINE)) >= 3, "a list of what the reader can do afterwards"
    assert "{doc}`" in opening, "links to the prerequisites"
    assert "{run-time}" in opening
    assert "{admonition} Predict first" in opening
    known = [chapter.stem for chapter in chapters(ROOT)]
    assert set(front_matter(path)["prerequisites"]) <= set(known[: known.index(path.stem)])


@each_lesson
def test_opening_of_a_lesson(path: Path) -> None:
    """Title with its number, a question, what to know before it; the page that goes deeper is linked."""
    text = path.read_text("utf8").split("---\n", 2)[2]
    opening = text.split("\n## ", 1)[0]
    assert re.match(rf"\s*# {path.stem[:2]} \S", opening)
    assert "?" in opening.split("```", 1)[0], "a question that a practitioner asks"
    known = [chapter.stem for chapter in chapters(ROOT)]
    assert set(front_matter(path)["prerequisites"]) <= set(known[: known.index(path.stem)])
    assert re.search(rf"\{{doc\}}`[^`]*deeper/{path.stem}>?`", text)


@each_lesson
def test_end_of_a_lesson(path: Path) -> None:
    """Exercises and a takeaway."""
    assert "## Exercises" in path.read_text("utf8").split("\n")
    found = directives(path)
    assert sum(block.name == "exercise" for block in found) >= 3
    assert sum((block.name, block.argument) == ("admonition", "Takeaway") for block in found) == 1


@each_deeper
def test_a_deeper_page_belongs_to_a_lesson(path: Path) -> None:
    """It has the lesson's file name, its number, and a link to it in the opening."""
    lesson = path.parents[1] / path.name
    assert is_lesson(lesson)
    opening = path.read_text("utf8").split("---\n", 2)[2].split("\n## ", 1)[0]
    assert re.match(rf"\s*# {path.stem[:2]} \S", opening)
    assert f"{{doc}}`/book/{path.stem}`" in opening


@each(LESSONS + DEEPER)
def test_head_of_a_lesson(path: Path) -> None:
    """A line with minutes, run time and what comes before; the page has the set-up cell folded, by ShowSetUp."""
    found = directives(path)
    cells = [block for block in found if block.name == "code-cell"]
    heads = [block for block in found if block.name == "lesson-head"]
    assert len(heads) == 1
    assert heads[0].line < cells[0].line
    assert tags(cells[0]) == ["remove-input"]
    for cell in cells[1:]:
        if tags(cell) == ["remove-input"]:  # what draws and prints nothing is not for readers of the page
            assert "rl.figures." in cell.body
            assert "print(" not in cell.body
    assert not [block for block in found if block.name == "run-time"]


@each_lesson
def test_symbols_of_a_lesson(path: Path) -> None:
    """A folded box in the opening, at most ten of them."""
    boxes = [block for block in directives(path) if (block.name, block.argument) == ("dropdown", "Symbols")]
    assert len(boxes) == 1
    assert path.read_text("utf8").split("\n## ", 1)[0].count("{dropdown} Symbols") == 1
    symbols = re.findall(r"^- .*\$", boxes[0].body, re.MULTILINE)
    assert 1 <= len(symbols) <= 10


@each_page
def test_first_cell_is_imports(path: Path) -> None:
    """Code in a solution and in an exercise counts on the names of the first cell."""
    first = next(block for block in directives(path) if block.name == "code-cell")
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
    body = ast.parse(first.body).body
    assert all(isinstance(statement, allowed) for statement in body)
    assert "import rope_lessons as rl" in first.body


@each(chapters(ROOT))
def test_chapter_runs_on_a_gpu_where_there_is_one(path: Path) -> None:
    """By the one line that all chapters share, and the cells that take time use what it finds."""
    line = 'device = "cuda" if torch.cuda.is_available() else "cpu"'
    cells = [block.body for block in directives(path) if block.name == "code-cell"]
    before, after = next(((cells[:n], cells[n:]) for n, body in enumerate(cells) if line in body), (cells, []))
    assert after, f"no cell of {path.name} has the line {line}"
    assert not any(re.search(r"\bdevice\b", body) for body in before)
    assert re.search(r"\bdevice\b", "\n".join(after).replace(line, ""))
    assert not re.search(r"\.cuda\(\)|to\(\"cuda", "\n".join(cells))


@each_chapter
def test_required_directives(path: Path) -> None:
    names = [block.name for block in directives(path)]
    for name in ("claims", "libraries", "bibliography", "run-time"):
        assert names.count(name) == 1, name
    claims = next(block for block in directives(path) if block.name == "claims")
    assert claims.argument == path.stem[:2]
    assert sum(name in THEOREMS for name in names) >= 1
    assert "prf:proof" in names


@each(chapters(ROOT))
def test_exercises_of_a_chapter(path: Path) -> None:
    """At least five in three levels, those of the page that goes deeper among them."""
    pages = [page for page in chapter_pages(ROOT) if page.stem == path.stem]
    bodies = [block.body for page in pages for block in directives(page) if block.name == "exercise"]
    assert len(bodies) >= 5
    assert {body.split(" ")[0] for body in bodies} == {"★", "★★", "★★★"}


@each_page
def test_exercises(path: Path) -> None:
    """Each with a level, minutes, a hint, a checker and a folded solution."""
    found = directives(path)
    exercises = [block for block in found if block.name == "exercise"]
    solutions = {block.argument: block for block in found if block.name == "solution"}
    for exercise in exercises:
        label = exercise.options["label"]
        level = re.match(r"(★{1,3}) · (\d+) minutes", exercise.body)
        assert level, f"{label}: begins with ★ · 5 minutes"
        assert "{dropdown} Hint" in exercise.body, label
        assert solutions[label].options["class"] == "dropdown", label
    assert set(solutions) == {exercise.options["label"] for exercise in exercises}


# --- labels ---------------------------------------------------------------------------------------------------


def labelled() -> set[str]:
    labels = set()
    for path in pages(ROOT):
        chapter = re.sub(r"^\d\d_", "", path.stem)
        for block in directives(path):
            kind = KINDS.get(block.name)
            label = block.options.get("label")
            if kind and block.name != "math":
                assert label, f"{path}:{block.line}: a {block.name} without a label"
            if kind and label:
                assert label.startswith(f"{kind}-{chapter}-"), f"{path}:{block.line}: {label}"
                labels.add(label)
        for label in re.findall(r"^\$\$ \((.+)\)$", path.read_text("utf8"), re.MULTILINE):
            labels.add(label)
    return labels


@functools.cache
def functions_of_tests() -> set[str]:
    """Every test function below tests/book, by its syntax tree: a comment or a string does not count."""
    names = set()
    for path in (ROOT / "tests" / "book").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(node.name)
    return names


def test_every_label_has_its_test() -> None:
    tested = functions_of_tests()
    missing = {label for label in labelled() if f"test_{label.replace('-', '_')}" not in tested}
    assert not missing, f"no test for {sorted(missing)}"


def asserts(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr in ("assert_close", "raises"))


def test_every_such_test_can_fail() -> None:
    """A test of a label contains an assertion, in itself or in a helper of its file that it calls."""
    folder = ROOT / "tests" / "book"
    for path in [*folder.glob("test_[0-9][0-9]_*.py"), folder / "test_articles_model.py"]:
        tree = ast.parse(path.read_text("utf8"))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        asserting = {name for name, node in functions.items() if any(map(asserts, ast.walk(node)))}
        for name, node in functions.items():
            called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            if name.startswith("test_"):
                assert ({name} | called) & asserting, f"{path.name}::{name} asserts nothing"


def test_every_such_test_has_its_label() -> None:
    names = tuple(f"test_{label.replace('-', '_')}" for label in labelled())
    orphans = {
        name
        for name in functions_of_tests()
        if re.match(r"test_(eq|thm|lem|cor|def)_", name)
        and not any(name == n or name.startswith(n + "_") for n in names)
    }
    assert not orphans, f"tests of labels that no chapter has: {sorted(orphans)}"


def test_labels_are_found(tmp_path: Path) -> None:
    """The search above sees nested directives and both spellings of options."""
    page = tmp_path / "01_x.md"
    page.write_text("````{prf:theorem} A\n:label: thm-x-a\n```{math}\n---\nlabel: eq-x-b\n---\ny\n```\n````\n", "utf8")
    assert [block.options["label"] for block in directives(page)] == ["thm-x-a", "eq-x-b"]


def test_bibliography_has_the_labels_of_the_text():
    entries = parse_file(ROOT / "book" / "references.bib").entries
    labels = dict(zip(entries, AuthorYearLabels().format_labels(entries.values()), strict=True))
    assert labels["su2023invleaky"] == "Su, 2023h"
    assert labels["chiang2022overcoming"] == "Chiang and Cholak, 2022"
    assert len(set(labels.values())) == len(labels), "two references bear the same label"
    assert not set("{}\\") & set("".join(labels.values()))


# --- references to chapters ---------------------------------------------------------------------------------------

TO_A_CHAPTER = r"\{doc\}`(?:/book/|\.\./)?(?:deeper/)?\d\d_\w+`"
SENTENCE_STARTS_SMALL = re.compile(rf"(?:^|^[-*] |[.!?][*)]* \(?)({TO_A_CHAPTER})", re.MULTILINE)
BARE_NUMBER = re.compile(r"(?<!`)\b[Cc]hapters? \d+")


@each([path for path in pages(ROOT) if "api" not in path.parts])
def test_chapters_are_linked(path: Path) -> None:
    """A chapter is called by {doc}, which prints "chapter 3"; where a sentence begins, {doc}`Chapter 3 <03_radix>`."""
    for block in walk(path.read_text("utf8"), 1, path):
        if isinstance(block, Text):
            assert not SENTENCE_STARTS_SMALL.findall(block.text), path
            assert not BARE_NUMBER.findall(block.text), path


def test_bad_references_are_seen() -> None:
    text = "{doc}`03_radix` says so. See {doc}`03_radix`. {doc}`/book/deeper/05_circles` too."
    assert SENTENCE_STARTS_SMALL.findall(text) == ["{doc}`03_radix`", "{doc}`/book/deeper/05_circles`"]
    assert not SENTENCE_STARTS_SMALL.findall("{doc}`Chapter 3 <03_radix>` says so, as {doc}`quickstart` does.")
    assert BARE_NUMBER.findall("in chapter 03, {doc}`Chapter 3 <03_radix>`") == ["chapter 03"]


@each(LESSONS + DEEPER)
def test_the_set_up_of_a_lesson_can_be_copied(path: Path) -> None:
    """The page shows it folded: the first cell, which it leaves out."""
    assert "import rope_lessons as rl" in set_up(path)


def test_a_page_that_shows_its_set_up_has_no_second_one() -> None:
    assert set_up(ROOT / "book" / "quickstart.md") == set_up(ROOT / "book" / "index.md") == ""
