"""The book's Sphinx extension: what Jupyter Book 1.x does not do by itself.

Directives: ``{claims} NN``, ``{claims}``, ``{libraries}``, ``{run-time}``, ``{lesson-head}``, ``{chapter-graph}``,
``{chapter-cards}``, ``{hero}``, ``{status}``, ``{api} module``, ``{kinds}``, ``{model-types}``, ``{only-notebook}``.
Roles: ``{minutes}``, ``{section}``, ``{sketch}``. Besides: the path of the execution cache, alt text from output
metadata, "chapter 3" as the text of a link, folded proofs and set-up cells, the first use of a term as a link to the
glossary, links to the generated notebooks, formulas without the network.
"""

from __future__ import annotations

import gc
import html
import json
import os
import platform
import re
import shutil
from importlib import import_module
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from myst_nb.core.render import MimeData, NbElementRenderer
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import docname_join
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx_design.shared import create_component

from rope_lessons.figures import cheat, dial, theme
from rope_lessons.stored import DATA
from tools import (
    bibliography,
    claims_page,
    code_lines,
    execution,
    front,
    icons,
    kinds,
    ledger,
    project,
    reading,
    slides,
    terms,
    types_table,
)
from tools.myst import Directive, tags, walk

# --- execution ------------------------------------------------------------------------------------------------


def set_cache_path(app: Sphinx, config: Config) -> None:
    """A changed path is a changed setting: Sphinx then reads every page again, and no old output survives."""
    config["nb_execution_cache_path"] = str(execution.prepare(Path(app.srcdir)))


# --- figures --------------------------------------------------------------------------------------------------

_render_image = NbElementRenderer.render_image


def render_image(self: NbElementRenderer, data: MimeData) -> list[nodes.Element]:
    """Show what a figure has for the book (``{"image/png": {"alt": …, "book": …}}`` in the output's metadata).

    Any other image keeps the alt text that it carries there, and needs one.
    """
    metadata = data.output_metadata.get(data.mime_type, {})
    if metadata.get("book"):
        return [nodes.raw("", metadata["book"], format="html")]
    images = _render_image(self, data)
    for image in images:
        if metadata.get("alt"):
            image["alt"] = metadata["alt"]
        elif not image.get("alt"):
            self.logger.warning("an image among the outputs has no alt text", subtype="image", line=data.line)
    return images


# --- numbers --------------------------------------------------------------------------------------------------


class StripChapterNumber(SphinxTransform):
    """``# 02 Rotary`` in the source; on the page the number comes from the table of contents, as in "Theorem 2.1"."""

    default_priority = 10

    def apply(self, **kwargs: Any) -> None:
        if not project.CHAPTER_NAME.fullmatch(self.env.docname.removeprefix("book/")):
            return
        title = next(iter(self.document.findall(nodes.title)), None)
        first = title.children[0] if title is not None and title.children else None
        if title is not None and isinstance(first, nodes.Text) and first[:3].rstrip().isdigit():
            title.replace(first, nodes.Text(first[3:]))


# --- references and proofs ------------------------------------------------------------------------------------


class ReferToChapters(SphinxTransform):
    """``{doc}`03_radix``` says "chapter 3", and not the title; a link with a text of its own keeps it."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        root = Path(self.env.srcdir)
        for link in self.document.findall(addnodes.pending_xref):
            if link.get("reftype") != "doc" or link.get("refexplicit"):
                continue
            target = docname_join(self.env.docname, link["reftarget"])
            text = project.chapter_reference(root / f"{target.removeprefix('/')}.md", root)
            if text:
                link["refexplicit"] = True
                link.children = [nodes.inline("", text, classes=["doc"])]


class FoldProofs(SphinxTransform):
    """A proof of the class dropdown is one: sphinx-proof gives it no title that could be pressed."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        for box in list(self.document.findall(nodes.admonition)):
            if {"proof", "dropdown"} <= set(box["classes"]):
                box.replace_self(self.folded(box.children))

    def folded(self, body: list[nodes.Node]) -> nodes.Element:
        said = next(body[0].findall(nodes.Text))
        said.parent.replace(said, nodes.Text(said.removeprefix("Proof. ")))
        classes: dict[str, Any] = {"container_classes": ["sd-mb-3"], "title_classes": [], "body_classes": []}
        box: nodes.Element = create_component(
            "dropdown", opened=False, type="dropdown", has_title=True, icon=None, chevron=None, **classes
        )
        box += [nodes.rubric("", "Proof"), *body]
        return box


# --- set-up ---------------------------------------------------------------------------------------------------


class ShowSetUp(SphinxTransform):
    """The set-up cell of a lesson, which the page leaves out: folded, before the first code that a reader sees.

    Without it no cell of the page runs elsewhere.
    """

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        path = Path(self.env.doc2path(self.env.docname))
        code = set_up(path) if path.suffix == ".md" else ""
        cells = [
            cell
            for cell in self.document.findall(nodes.container)
            if "cell" in cell["classes"]
            and any("cell_input" in part["classes"] for part in cell.findall(nodes.container))
        ]
        if not code or not cells:
            return
        first = next((cell for cell in cells if "tag_hide-input" not in cell["classes"]), cells[0])
        classes: dict[str, Any] = {"container_classes": ["sd-mb-3"], "title_classes": [], "body_classes": []}
        box: nodes.Element = create_component(
            "dropdown", opened=False, type="dropdown", has_title=True, icon=None, chevron=None, **classes
        )
        box += [nodes.rubric("", "Set-up"), nodes.literal_block(code, code, language="python")]
        first.parent.insert(first.parent.index(first), box)


def set_up(path: Path) -> str:
    """The first cell of a page, if the page does not show it."""
    cells = (block for block in walk(path.read_text("utf8"), 1, path) if isinstance(block, Directive))
    first = next((cell for cell in cells if cell.name == "code-cell"), None)
    return first.body.strip() if first is not None and tags(first) == ["remove-input"] else ""


# --- the size of stored pages ----------------------------------------------------------------------------------


class OneDocument(SphinxTransform):
    """Every node belongs to its page.

    MyST parses reStructuredText, which the API pages have, into a document of its own. Nodes that still point to it
    would be stored with it and with its settings: with all that Sphinx knows of the whole book, and on every such page.
    """

    default_priority = 990

    def apply(self, **kwargs: Any) -> None:
        for node in self.document.findall():
            node.document = self.document


# --- directives -----------------------------------------------------------------------------------------------


class BookDirective(SphinxDirective):
    def root(self) -> Path:
        return Path(self.env.srcdir)

    def chapter(self) -> str:
        """The number of the chapter that the directive stands in."""
        return self.env.docname.rsplit("/")[-1][:2]

    def parse(self, text: str) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(StringList(text.splitlines(), self.env.docname), 0, container)
        return container.children

    def depends_on(self, name: str) -> None:
        self.env.note_dependency(str(self.root() / "book" / name))


class Claims(BookDirective):
    """The rows of one chapter, folded; without an argument the page of all of them."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.depends_on("claims.yml")
        rows = ledger.claims(self.root(), self.arguments[0] if self.arguments else None)
        if not rows:
            raise self.error(f"book/claims.yml has no claim for chapter {self.arguments[0]}")
        if self.arguments:
            folded = f"````{{dropdown}} All {len(rows)} of them\n{self.table(rows)}\n````"
            return self.parse(f"{ledger.verdict_counts(rows)}\n\n{folded}")
        return claims_page.content(self.root(), self.parse)

    def table(self, rows: list[dict[str, Any]]) -> str:
        return ledger.as_list_table(ledger.claims_table(rows), "rl-ledger rl-claims")


class Libraries(BookDirective):
    def run(self) -> list[nodes.Node]:
        self.depends_on("libraries.yml")
        chapter = self.chapter() if self.chapter().isdigit() else None
        rows = ledger.libraries_table(self.root(), chapter)
        if len(rows) == 1:
            raise self.error(f"book/libraries.yml has no row for chapter {chapter}")
        table = ledger.as_list_table(rows, "rl-ledger rl-libraries")
        return self.parse(f"As of {ledger.libraries_date(self.root())}:\n\n{table}")


class Kinds(BookDirective):
    """The table of the kinds of frequencies."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(kinds.__file__)
        self.env.note_dependency(str(import_module("rope_lessons.kinds").__file__))
        return self.parse(ledger.as_list_table(kinds.table(), "rl-ledger"))


class ModelTypes(BookDirective):
    """The types of models of transformers that are read; those that are not, and why, are folded."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(types_table.__file__)
        self.env.note_dependency(str(DATA / "model_types.json"))
        right, wrong = (ledger.as_list_table(table(), "rl-ledger") for table in (types_table.read, types_table.refused))
        folded = f"````{{dropdown}} Not read, and why\n{wrong}\n````"
        return self.parse(f"{types_table.introduction()}\n\n{right}\n\n{folded}")


class OnlyNotebook(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        return []


class Api(BookDirective):
    """The public names of some modules; what ``rl`` exports stands under that name (``rope_lessons.apply_rotary``)."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        blocks = [block for name in self.arguments[0].split() for block in self.module(f"rope_lessons.{name}")]
        return self.parse("```{eval-rst}\n" + "\n".join(blocks) + "\n```")

    def module(self, name: str) -> list[str]:
        package, module = import_module("rope_lessons"), import_module(name)
        parent = import_module(name.rpartition(".")[0])
        self.env.note_dependency(str(module.__file__))
        blocks = [f".. automodule:: {name}\n   :no-index:\n"]
        for public, thing in vars(module).items():
            if public.startswith("_") or getattr(thing, "__module__", None) != name or not callable(thing):
                continue
            flat = public in package.__all__ and getattr(package, public) is thing
            where = "rope_lessons" if flat else name
            if name.startswith("rope_lessons.hf.") and where == name and public in parent.__all__:
                where = "rope_lessons.hf"  # rl.hf.extend
            blocks.append(_auto(where, public, thing))
        return blocks


def _auto(module: str, name: str, thing: Any) -> str:
    kind = "autoclass" if isinstance(thing, type) else "autofunction"
    members = "   :members:\n" if isinstance(thing, type) else ""
    if fields := getattr(thing, "_fields", ()):  # of a NamedTuple: its docstring says what they are
        members += f"   :exclude-members: {', '.join(fields)}\n"
    return f".. {kind}:: {module}.{name}\n{members}"


# --- a graph of the chapters ----------------------------------------------------------------------------------


class ChapterGraph(BookDirective):
    """Which chapter needs which, from ``prerequisites`` in the front matter of each chapter."""

    def run(self) -> list[nodes.Node]:
        paths = {path.stem: path for path in project.chapters(self.root())}
        needs: dict[str, list[str]] = {}
        for name, path in paths.items():  # the table of contents lists a chapter after what it needs
            self.env.note_dependency(str(path))
            needs[name] = list(project.front_matter(path).get("prerequisites", []))
            unknown = [other for other in needs[name] if other not in needs]
            if unknown:
                raise self.error(f"{name} needs {unknown[0]}, which is not an earlier chapter")
        direct = {name: _direct(name, needs) for name in needs}
        return [nodes.raw("", front.graph(direct, paths), format="html")]


class ChapterCards(BookDirective):
    """The chapters with a small picture each, and the minutes that they take to read."""

    def run(self) -> list[nodes.Node]:
        for path in project.chapters(self.root()):
            self.env.note_dependency(str(path))
        self.env.note_dependency(front.__file__)
        return [nodes.raw("", front.cards(self.root()), format="html")]


class Hero(BookDirective):
    """A query and a key on the dials, with a slider for their distance and one for the training length."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(dial.__file__)
        return [nodes.raw("", dial.distance_explorable(name="hero")._repr_html_(), format="html")]


class Minutes(SphinxRole):
    """``{minutes}`02_rotary 05_circles```: how long these take to read."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        root = Path(self.env.srcdir)
        for path in project.chapters(root):
            self.env.note_dependency(str(path))
        return [nodes.Text(front.minutes(self.text, root))], []


class Sketch(SphinxRole):
    """``{sketch}`slow pairs slower <YaRN>```: a method's picture on the cheat sheet, and words under it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        self.env.note_dependency(cheat.__file__)
        drawn = {entry.name: entry.draw for entry in cheat.METHODS_ON_IT}
        words, _, method = self.text.removesuffix(">").partition(" <")
        if method not in drawn:
            message = f"no method {method!r} on the cheat sheet, which has {', '.join(drawn)}"
            return [], [self.inliner.reporter.warning(message, line=self.lineno)]
        shown = f'<span class="rl-sketch">{drawn[method]()}<small>{html.escape(words)}</small></span>'
        return [nodes.raw("", shown, format="html")], []


class Section(SphinxRole):
    """``{section}`05_circles#count-the-turns```: a link that says the section's title."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            address, title = front.section(self.text, Path(self.env.srcdir))
        except ValueError as error:
            return [], [self.inliner.reporter.warning(str(error), line=self.lineno)]
        return [nodes.reference("", title, refuri=address)], []


def _direct(name: str, needs: dict[str, list[str]]) -> list[str]:
    """What a chapter needs, without what follows from the rest."""

    def before(other: str) -> set[str]:
        return set(needs[other]).union(*(before(one) for one in needs[other]))

    implied = set().union(*(before(other) for other in needs[name]))
    return [other for other in needs[name] if other not in implied]


# --- run times and versions: known when every page has been read ----------------------------------------------


class RunTimeNode(nodes.General, nodes.Element):
    """A paragraph of its own; inside another one a few words (``inline``)."""


class StatusNode(nodes.General, nodes.Element):
    pass


class RunTime(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [RunTimeNode()]


class LessonHead(BookDirective):
    """One line at the head of a lesson: how long it takes to read and to run, and what to know before."""

    def run(self) -> list[nodes.Node]:
        path = self.root() / f"{self.env.docname}.md"
        (line,) = self.parse(f"{reading.minutes(path)} · · {reading.needs(path, self.root())}")
        before, after = str(line[0]).split("· ·")
        line[0:1] = [nodes.Text(f"{before}· "), RunTimeNode(inline=True), nodes.Text(f" ·{after}")]
        line["classes"].append("rl-lesson-head")
        return [line]


class Status(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [StatusNode()]


def machine() -> str:
    return f"{os.cpu_count()} CPU cores ({platform.machine()})"


class FillMeasured(SphinxPostTransform):
    default_priority = 8
    packages: ClassVar = ("torch", "numpy", "matplotlib", "sympy", "jupyter-book", "Sphinx", "myst-nb")

    def run(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(RunTimeNode)):
            seconds = self.seconds(self.env.docname)
            node.replace_self(
                nodes.Text("no code" if seconds is None else f"runs in {max(seconds, 1):.0f} s")
                if node.get("inline")
                else nodes.paragraph("", self.sentence(seconds))
            )
        for node in list(self.document.findall(StatusNode)):
            node.replace_self([self.times(), self.versions()])

    def seconds(self, docname: str) -> float | None:
        data = NbMetadataCollector.get_exec_data(self.env, docname)
        return data["runtime"] if data else None

    def sentence(self, seconds: float | None) -> str:
        if seconds is None:
            return "Run time: this page has no code."
        return f"Run time: {seconds:.0f} s on {machine()}, when this page was built."

    def times(self) -> nodes.table:
        rows = [["Chapter", "Run time"]]
        root = Path(self.env.srcdir)
        for path in project.chapter_pages(root):
            seconds = self.seconds(f"book/{project.page_name(path, root)}")
            rows.append([project.title(path), "no code" if seconds is None else f"{seconds:.1f} s"])
        return _table(rows)

    def versions(self) -> nodes.table:
        rows = [["What", "Version"], ["Python", platform.python_version()], ["Machine", machine()]]
        rows += [[name, version(name)] for name in self.packages]
        return _table(rows)


class KeepPercents(SphinxPostTransform):
    """No line ends between a number and its percent sign, in prose and in tables that come as HTML."""

    default_priority = 900
    apart = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block)

    def run(self, **kwargs: Any) -> None:
        for text in list(self.document.findall(nodes.Text)):
            if not isinstance(text.parent, self.apart) and "<script" not in text:
                kept = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
                if kept != text:
                    text.parent.replace(text, nodes.Text(kept))


def _table(rows: list[list[str]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in rows[0]), cols=len(rows[0]))
    lines = [nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in row)) for row in rows]
    group += nodes.thead("", lines[0])
    group += nodes.tbody("", *lines[1:])
    return nodes.table("", group, classes=["colwidths-auto"])


def write_side_by_side(app: Sphinx, env: Any) -> None:
    """Pages are read one after the other, as several extensions need it, and written by all processors."""
    app.parallel = os.cpu_count() or 1


def update_status(app: Sphinx, env: Any) -> list[str]:
    """The status page shows what the other pages measured: it is written at every build."""
    return [name for name in env.found_docs if name.endswith("/status")]


# --- links to the generated notebooks, formulas without the network --------------------------------------------


def link_notebook(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Colab and the download button get the generated notebook, not the Markdown source."""
    root = Path(app.srcdir)
    name = project.notebook_name(root / f"{pagename}.md", root)
    notebook = root / "book" / "notebooks" / f"{name}.ipynb"
    if not context.get("ipynb_source"):
        return
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("text") == "Colab":
                button["url"] = project.colab_address(name, root)
    if notebook.exists():
        shutil.copyfile(notebook, Path(app.outdir) / "_sources" / context["ipynb_source"])


def repair_roles(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """docutils calls a bibliography a list, but its entries are no list items: screen readers stumble."""
    if "body" in context:
        context["body"] = context["body"].replace('<div role="list" class="citation-list">', "<div>")


def name_folds(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """The sidebar folds what stands below a chapter, by a button that has only an arrow: screen readers need more."""
    if "generate_toctree_html" in context:
        generate = context["generate_toctree_html"]
        context["generate_toctree_html"] = lambda *arguments, **options: str(generate(*arguments, **options)).replace(
            "<summary>", '<summary aria-label="Pages below this one">'
        )


UNANSWERED = re.compile(r"… \S+: not answered yet")


def drop_unanswered(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """A page cannot be run: below an exercise there it says nothing that its answer is missing. A notebook does."""
    if app.builder.format == "html":
        for output in list(
            doctree.findall(lambda node: "cell_output" in getattr(node, "attributes", {}).get("classes", ()))
        ):
            if UNANSWERED.match(output.astext().strip()):
                output.parent.remove(output)


THEME = "theme.css"

# startup.js loads core.js and what mathjax3_config (_config.yml) asks for.
MATHJAX = (
    *("startup.js", "core.js", "input/tex.js", "input/tex/extensions"),
    *("output/chtml.js", "output/chtml/fonts", "a11y/assistive-mml.js"),
)


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Only what the pages load: the program, its fonts and the MathML for screen readers."""
    if error is not None or app.builder.format != "html":
        return
    source = Path(str(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax")))
    target = Path(app.outdir) / "_static" / "mathjax"
    shutil.rmtree(target, ignore_errors=True)  # nothing of an earlier build
    for name in MATHJAX:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, target / name)


def number_by_page(app: Sphinx, env: BuildEnvironment) -> None:
    """Figures and exercises of a page outside the chapters from 1 on: Sphinx counts through all such pages."""
    for of_page in env.toc_fignumbers.values():
        for kind, numbers in of_page.items():
            if numbers and all(len(number) == 1 for number in numbers.values()):
                before = min(numbers.values())[0] - 1
                of_page[kind] = {target: (number - before,) for target, (number,) in numbers.items()}


def write_theme(app: Sphinx, error: Exception | None) -> None:
    """The colours of all pictures, for both themes of the pages."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / THEME).write_text(theme.book_css(), "utf8")


def shrink_icons(app: Sphinx, error: Exception | None) -> None:
    """Only those that a page has."""
    if error is None and app.builder.format == "html":
        icons.shrink(Path(app.outdir))


def compact(program: str) -> str:
    """The search index without the blanks of its JSON and without its second list of the package's functions.

    It lies on every reader's first page, and is a third lighter so.

    >>> compact('Search.setIndex({"terms": {"x": 1}, "indexentries": {"sink": [], "f() (in rope_lessons)": []}})')
    'Search.setIndex({"terms":{"x":1},"indexentries":{"sink":[]}})'
    """
    call, _, rest = program.partition("(")
    index = json.loads(rest.rstrip().removesuffix(")"))
    entries = index["indexentries"]  # the glossary's terms, which stand here alone, and functions, which "objects" has
    index["indexentries"] = {name: found for name, found in entries.items() if "rope_lessons" not in name}
    return f"{call}({json.dumps(index, separators=(',', ':'), ensure_ascii=False)})"


def shrink_search(app: Sphinx, error: Exception | None) -> None:
    path = Path(app.outdir) / "searchindex.js"
    if error is None and app.builder.format == "html" and path.exists():
        path.write_text(compact(path.read_text("utf8")), "utf8")


def write_slides(app: Sphinx, error: Exception | None) -> None:
    """The openings of the lessons, for the teacher."""
    if error is None and app.builder.format == "html":
        slides.write(Path(app.outdir), Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, Any]:
    gc.disable()  # nearly all nodes live until the build ends, and looking for dead ones takes a fifth of the time
    bibliography.register()
    code_lines.register()
    app.config.mathjax_path = "mathjax/startup.js"
    NbElementRenderer.render_image = render_image
    app.connect("config-inited", set_cache_path)
    app.connect("env-updated", update_status)
    app.connect("env-updated", write_side_by_side)
    app.connect("env-check-consistency", number_by_page)
    app.connect("doctree-resolved", terms.link_first)
    app.connect("doctree-resolved", drop_unanswered)
    app.connect("html-page-context", link_notebook, priority=900)
    app.connect("html-page-context", repair_roles)
    app.connect("html-page-context", name_folds, priority=900)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", write_theme)
    app.connect("build-finished", shrink_icons)
    app.connect("build-finished", shrink_search)
    app.connect("build-finished", write_slides)
    app.add_css_file(THEME)
    app.add_transform(StripChapterNumber)
    app.add_transform(OneDocument)
    app.add_transform(ReferToChapters)
    app.add_transform(FoldProofs)
    app.add_transform(ShowSetUp)
    app.add_post_transform(FillMeasured)
    app.add_post_transform(KeepPercents)
    directives: dict[str, type[SphinxDirective]] = {
        "claims": Claims,
        "libraries": Libraries,
        "kinds": Kinds,
        "model-types": ModelTypes,
        "only-notebook": OnlyNotebook,
        "api": Api,
        "chapter-graph": ChapterGraph,
        "chapter-cards": ChapterCards,
        "hero": Hero,
        "run-time": RunTime,
        "lesson-head": LessonHead,
        "status": Status,
    }
    for name, directive in directives.items():
        app.add_directive(name, directive)
    app.add_role("minutes", Minutes())
    app.add_role("section", Section())
    app.add_role("sketch", Sketch())
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
