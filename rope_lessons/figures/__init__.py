"""Every figure of the book is one function here: one style, alt text beside the code.

A figure function returns a :class:`Figure` (a picture) or an :class:`Explorable` (a picture with a knob).
The functions live in one module per chapter and are all reachable as ``rl.figures.<name>``.
"""

from __future__ import annotations

import base64
import html
import importlib
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from statistics import fmean
from typing import Any

from rope_lessons._extras import extra

with extra("book", "rope_lessons.figures"):
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure as MatplotlibFigure

CHAPTERS = (
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
    "gpu",
)

# Okabe and Ito's colours: told apart with every common kind of colour blindness, and in grey.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY = "#CC79A7", "#56B4E9", "#666666"
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY)
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"

WIDTH = 6.4  # inches; at 390 px the 12 pt labels are still 10 px high
STYLE: Any = {
    "figure.dpi": 160,
    "figure.facecolor": "white",  # a white card in both themes
    "figure.constrained_layout.use": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "image.cmap": SEQUENTIAL,
}


class Figure:
    """A finished picture and its alt text. Displays as a PNG in Jupyter, Colab and the book."""

    def __init__(self, figure: MatplotlibFigure, alt: str):
        if not alt.strip():
            raise ValueError("alt must describe the picture in words, got an empty string")
        self.figure, self.alt = figure, " ".join(alt.split())

    def png(self) -> bytes:
        buffer = io.BytesIO()
        # No time stamp and no version string: the same figure is the same bytes.
        self.figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()

    def save(self, path: str) -> None:
        with open(path, "wb") as file:
            file.write(self.png())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        png = base64.b64encode(self.png()).decode()
        return {"image/png": png, "text/plain": repr(self)}, {"image/png": {"alt": self.alt}}

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def styled(draw: Callable[..., tuple[MatplotlibFigure, str]]) -> Callable[..., Figure]:
    """Wrap a function that returns (matplotlib figure, alt text): apply the book's style, return a Figure."""

    @wraps(draw)
    def wrapper(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.rc_context(STYLE):
            figure, alt = draw(*args, **kwargs)
            # Lay out and render once inside the context: matplotlib reads some settings only when it draws.
            figure.canvas.draw()
        return Figure(figure, alt)

    return wrapper


def new_figure(
    rows: int = 1, columns: int = 1, *, height: float = 3.4, width: float = WIDTH, **options: Any
) -> tuple[MatplotlibFigure, Any]:
    """An empty figure in the book's width and its axes (one Axes, or an array of them)."""
    figure = MatplotlibFigure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, **options)


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


def doubling_axis(axis: Any, ticks: Sequence[float]) -> None:
    """A logarithmic axis x, on which a step is twice as much, with these ticks and no others."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def legend_below(figure: MatplotlibFigure, axis: Any, columns: int = 2) -> None:
    """The legend of an axis, below the whole figure."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def spoken(values: Iterable[float], digits: int) -> str:
    """Numbers for an alt text."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


@dataclass(frozen=True)
class Knob:
    """One slider of an explorable: ``name`` is its name in the script, ``label`` what the reader sees."""

    name: str
    label: str
    low: float
    high: float
    value: float
    step: float = 1


CARD = (
    "background:#fff;color:#1a1a1a;border:1px solid #d0d0d0;border-radius:8px;padding:12px;"
    "margin:1em 0;max-width:720px;font-family:sans-serif;font-size:16px"
)


class Explorable:
    """A picture with knobs: an SVG, sliders, and a few lines of script. No library, no kernel, no network.

    ``svg`` is the first frame, drawn in Python, so the picture is there without the script. ``script`` is the
    body of ``draw(svg, value, write)``: ``value.<knob>`` is a number, ``svg.querySelector`` finds a part,
    ``write("<knob>", text)`` sets what stands beside the slider. It runs at every move of a slider, and must
    draw the same first frame as Python (a test compares the two): round coordinates to one decimal in both.
    """

    def __init__(self, name: str, alt: str, caption: str, knobs: Sequence[Knob], svg: str, script: str):
        if not alt.strip():
            raise ValueError("alt must describe the picture in words, got an empty string")
        self.name, self.alt, self.caption = name, " ".join(alt.split()), " ".join(caption.split())
        self.knobs, self.svg, self.script = tuple(knobs), svg.strip(), script.strip()

    def _slider(self, knob: Knob) -> str:
        return (
            f'<label style="display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin-top:8px">'
            f'<span style="min-width:9em">{html.escape(knob.label)}</span>'
            f'<input type="range" name="{knob.name}" min="{knob.low:g}" max="{knob.high:g}" step="{knob.step:g}" '
            f'value="{knob.value:g}" style="flex:1 1 180px;min-height:28px">'
            f'<output data-knob="{knob.name}" style="min-width:5em">{knob.value:g}</output></label>'
        )

    def _repr_html_(self) -> str:
        sliders = "".join(self._slider(knob) for knob in self.knobs)
        return f"""<figure class="rl-explorable" id="rl-{self.name}" style="{CARD}">
<div role="img" aria-label="{html.escape(self.alt, quote=True)}">{self.svg}</div>
{sliders}
<figcaption style="margin-top:8px;color:#1a1a1a">{html.escape(self.caption)}</figcaption>
<script>
(() => {{
  const root = document.getElementById("rl-{self.name}"), svg = root.querySelector("svg");
  const sliders = [...root.querySelectorAll("input")];
  const write = (knob, text) => {{ root.querySelector(`output[data-knob="${{knob}}"]`).textContent = text; }};
  const draw = (svg, value, write) => {{
{self.script}
  }};
  const update = () => {{
    const value = Object.fromEntries(sliders.map((s) => [s.name, Number(s.value)]));
    sliders.forEach((s) => write(s.name, s.value));
    draw(svg, value, write);
  }};
  sliders.forEach((s) => s.addEventListener("input", update));
}})();
</script></figure>"""

    def __repr__(self) -> str:
        return f"Explorable: {self.alt}"


def svg_path(xs: Sequence[float], ys: Sequence[float]) -> str:
    """The ``d`` attribute of a polyline through the points, rounded to one decimal as the scripts do."""
    points = (f"{float(x):.1f} {float(y):.1f}" for x, y in zip(xs, ys, strict=True))
    return "M" + "L".join(points)


def __getattr__(name: str) -> Any:
    for chapter in CHAPTERS:
        module = importlib.import_module(f"{__name__}.{chapter}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"rope_lessons.figures has no figure {name!r}")
