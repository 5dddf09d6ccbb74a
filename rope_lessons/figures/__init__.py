"""Every figure of the book is one function here: one style, alt text beside the code.

A figure function returns a :class:`Figure` (a picture) or an
:class:`~rope_lessons.figures.explorable.Explorable` (a picture with a knob). The functions live in one module per
chapter and are all reachable as ``rl.figures.<name>``.
"""

from __future__ import annotations

import base64
import html
import importlib
import io
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import wraps
from statistics import fmean
from typing import Any

from rope_lessons._extras import extra
from rope_lessons.figures import fit, ground, svg
from rope_lessons.figures.explorable import Again, Choice, Explorable, Knob, svg_path
from rope_lessons.figures.theme import BLUE, CYCLE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

with extra("book", "rope_lessons.figures"):
    import matplotlib
    from cycler import cycler
    from matplotlib.colors import LinearSegmentedColormap, to_rgba
    from matplotlib.figure import Figure as MatplotlibFigure
    from PIL import Image

__all__ = [
    "BLUE",
    "CYCLE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "RED",
    "SKY",
    "Again",
    "Choice",
    "Explorable",
    "Figure",
    "Knob",
    "doubling_axis",
    "legend_below",
    "new_figure",
    "over_seeds",
    "spoken",
    "styled",
    "svg_path",
]
CHAPTERS = (
    "dial",
    "sinusoidal",
    "rotary",
    "radix",
    "mixed_radix",
    "circles",
    "entropy",
    "local",
    "rerope",
    "invleaky",
    "random_positions",
    "chomsky",
    "lab",
    "shootout",
    "scoreboard",
    "gpu",
    "axes",
    "biases",
    "models",
    "tables",
    "sortable",
    "cheat",
    "museum",
)

SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
# Small values let the page through, whatever its colour.
CLEAR_TO_BLUE = LinearSegmentedColormap.from_list("clear to blue", [to_rgba(BLUE, 0), to_rgba(BLUE, 1)])

WIDTH = 6.4  # inches, on a laptop's page and in notebooks
PHONE = 4.4  # inches on a phone, where the picture has 340 px: type of 12 pt is 13 px high
LEAST_TYPE = 12.0  # points
STYLE: Any = {
    "figure.dpi": 160,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.facecolor": "none",
    "figure.constrained_layout.use": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.color": GREY,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "image.cmap": SEQUENTIAL,
    **svg.SETTINGS,
}
_on_phone: ContextVar[bool] = ContextVar("_on_phone", default=False)


class Figure:
    """A finished picture and its alt text.

    In Jupyter and Colab a PNG without a ground of its own: lines and type read on white and on black. The book takes
    from the output's metadata the same picture as SVG in the colours of its theme, once for a laptop and once for a
    phone.
    """

    def __init__(self, figure: MatplotlibFigure, alt: str, on_phone: MatplotlibFigure):
        if not alt.strip():
            raise ValueError("alt must describe the picture in words, got an empty string")
        self.figure, self.alt, self.on_phone = figure, " ".join(alt.split()), on_phone

    def png(self) -> bytes:
        buffer = io.BytesIO()
        with matplotlib.rc_context(STYLE), ground.for_any(self.figure):
            self.figure.savefig(buffer, format="png")
        # 256 colours look the same and are a quarter of a notebook's bytes. No time stamp and no version string: the
        # same figure is the same bytes.
        packed = io.BytesIO()
        Image.open(buffer).quantize(256, method=Image.Quantize.FASTOCTREE).save(packed, "png", optimize=True)
        return packed.getvalue()

    def html(self) -> str:
        """For the book: two drawings, of which the style sheet shows one."""
        with matplotlib.rc_context(STYLE):
            drawings = svg.themed_svg(self.figure, "rl-laptop") + svg.themed_svg(self.on_phone, "rl-phone")
        return f'<div class="rl-figure" role="img" aria-label="{html.escape(self.alt, quote=True)}">{drawings}</div>'

    def save(self, path: str) -> None:
        with open(path, "wb") as file:
            file.write(self.png())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        png = base64.b64encode(self.png()).decode()
        return {"image/png": png, "text/plain": repr(self)}, {"image/png": {"alt": self.alt, "book": self.html()}}

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def styled(draw: Callable[..., tuple[MatplotlibFigure, str]]) -> Callable[..., Figure]:
    """Wrap a function that returns (matplotlib figure, alt text): draw it in the book's style, for laptop and phone."""

    @wraps(draw)
    def wrapper(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.rc_context(STYLE):
            figure, alt = draw(*args, **kwargs)
            svg.keep_type_on_images(figure)
            fit.plain_powers(figure)
            # Lay out and render once inside the context: matplotlib reads some settings only when it draws.
            figure.canvas.draw()
            narrow = _on_phone.set(True)
            try:
                on_phone, _ = draw(*args, **kwargs)
            finally:
                _on_phone.reset(narrow)
            svg.keep_type_on_images(on_phone)
            fit.plain_powers(on_phone)
            fit.fit(on_phone, LEAST_TYPE)
        return Figure(figure, alt, on_phone)

    return wrapper


def new_figure(
    rows: int = 1, columns: int = 1, *, height: float = 3.4, width: float = WIDTH, **options: Any
) -> tuple[MatplotlibFigure, Any]:
    """An empty figure in the book's width and its axes (one Axes, or an array of them).

    On a phone it is narrower, and what would stand side by side stands one below the other, but for two axes with one
    scale between them (``sharey``) and axes with widths of their own.
    """
    if not _on_phone.get():
        figure = MatplotlibFigure(figsize=(width, height))
        return figure, figure.subplots(rows, columns, **options)
    width = min(width, PHONE)
    together = columns <= 2 and options.get("sharey")
    if columns == 1 or rows > 1 or together or "width_ratios" in options:
        figure = MatplotlibFigure(figsize=(width, height))
        return figure, figure.subplots(rows, columns, **options)
    figure = MatplotlibFigure(figsize=(width, 0.8 * height * columns))
    return figure, figure.subplots(columns, 1, **options)


def over_seeds(axis: Any, at: Sequence[float], found: Iterable[Sequence[float]], **style: Any) -> list[float]:
    """Draw a line through the means over the seeds, with bars from the least value to the greatest; the means.

    ``found`` has the values of all seeds, for each point ``at`` the axis; ``style`` is matplotlib's, with a ``label``.
    """
    values = [list(of_seeds) for of_seeds in found]
    means = [fmean(of_seeds) for of_seeds in values]
    below = [mean - min(of_seeds) for mean, of_seeds in zip(means, values, strict=True)]
    above = [max(of_seeds) - mean for mean, of_seeds in zip(means, values, strict=True)]
    axis.errorbar(at, means, (below, above), **{"capsize": 3, **style})
    return means


def doubling_axis(axis: Any, ticks: Sequence[float], name: Callable[[float], str] = "{:g}".format) -> None:
    """A logarithmic axis x, on which a step is twice as much, with these ticks and no others."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [name(tick) for tick in ticks])
    axis.minorticks_off()


def legend_below(figure: MatplotlibFigure, axis: Any, columns: int = 2) -> None:
    """The legend of an axis, below the whole figure; on a phone in one column."""
    columns = 1 if _on_phone.get() else columns
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def spoken(values: Iterable[float], digits: int) -> str:
    """Numbers for an alt text."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


def __getattr__(name: str) -> Any:
    for chapter in CHAPTERS:
        module = importlib.import_module(f"{__name__}.{chapter}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"rope_lessons.figures has no figure {name!r}")
