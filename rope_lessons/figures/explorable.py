"""A picture with knobs: sliders and labelled buttons, and a few lines of script that redraw it.

No library, no kernel, no network. The picture is there without the script, too.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rope_lessons.figures.theme import themed, with_theme

# What stands beside the picture, in notebooks too: they have no style sheet of ours. Nothing here says what the ground
# is; type has the page's own colour.
STYLE = f"""
.rl-explorable{{margin:1em 0;max-width:760px;padding:0;color:inherit}}
.rl-explorable svg{{background:none;filter:none}}
.rl-explorable .rl-knob{{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;margin:8px 0 0;padding:0;border:0;
text-align:left}}
.rl-explorable .rl-name{{flex:0 0 9.5em}}
.rl-explorable input{{flex:1 1 140px;min-width:0;min-height:28px;accent-color:{themed("blue")}}}
.rl-explorable output{{flex:0 0 5.5em;font-variant-numeric:tabular-nums}}
.rl-explorable .rl-choice{{display:flex;flex:1 1 240px;flex-wrap:wrap;gap:6px}}
.rl-explorable button{{font:inherit;color:inherit;background:none;min-height:34px;padding:2px 12px;border-radius:8px;
border:1px solid {themed("grey")};cursor:pointer}}
.rl-explorable select{{font:inherit;flex:1 1 240px;min-width:0;min-height:34px}}
.rl-explorable button[aria-pressed=true]{{box-shadow:inset 0 0 0 2px {themed("blue")};border-color:{themed("blue")};
font-weight:bold}}
.rl-explorable button[aria-disabled=true]{{opacity:.4;font-weight:inherit;box-shadow:none}}
.rl-explorable figcaption{{margin-top:8px;text-align:left;font-weight:400}}
@media (max-width:600px){{.rl-explorable .rl-name{{flex:1 0 100%}}}}
.rl-explorable [hidden]{{display:none!important}}
""".strip()


PLAY, PAUSE, BETWEEN = "▶ Play", "❚❚ Pause", 800  # the words on the button, milliseconds between two steps


@dataclass(frozen=True)
class Knob:
    """One slider of an explorable: ``name`` is its name in the script, ``label`` what the reader sees.

    With ``power`` the slider moves an exponent, and the reader sees the power of this base. With ``play`` a button
    moves the slider, a step at a time, to its end.
    """

    name: str
    label: str
    low: float
    high: float
    value: float
    step: float = 1
    power: float | None = None
    play: bool = False

    def html(self) -> str:
        shown = f"{self.value:g}" if self.power is None else f"{self.power**self.value:.0f}"
        power = "" if self.power is None else f' data-power="{self.power:g}"'
        slider = (
            f'<label class="rl-knob"><span class="rl-name">{html.escape(self.label)}</span>'
            f'<input type="range" name="{self.name}" min="{self.low:g}" max="{self.high:g}" step="{self.step:g}" '
            f'value="{self.value:g}"{power}><output data-knob="{self.name}">{shown}</output></label>'
        )
        button = f'<div class="rl-knob"><button type="button" data-play="{self.name}">{PLAY}</button></div>'
        return slider + button * self.play


@dataclass(frozen=True)
class Choice:
    """A row of labelled buttons: ``options`` has the words on each, by the value that the script gets.

    More than eight are a list to select from.
    """

    name: str
    label: str
    options: Mapping[str | int | float, str]
    value: str | int | float

    def __post_init__(self) -> None:
        if self.value not in self.options:
            raise ValueError(f"value must be one of {', '.join(map(repr, self.options))}, got {self.value!r}")

    def html(self) -> str:
        return self._list() if len(self.options) > 8 else self._buttons()

    def _list(self) -> str:
        options = "".join(
            f'<option value="{html.escape(json.dumps(value), quote=True)}"{" selected" * (value == self.value)}>'
            f"{html.escape(words)}</option>"
            for value, words in self.options.items()
        )
        label = html.escape(self.label, quote=True)
        return (
            f'<label class="rl-knob"><span class="rl-name">{label}</span>'
            f'<select name="{self.name}">{options}</select></label>'
        )

    def _buttons(self) -> str:
        buttons = "".join(
            f'<button type="button" name="{self.name}" value="{html.escape(json.dumps(value), quote=True)}" '
            f'aria-pressed="{str(value == self.value).lower()}">{html.escape(words)}</button>'
            for value, words in self.options.items()
        )
        label = html.escape(self.label, quote=True)
        return (
            f'<div class="rl-knob" role="group" aria-label="{label}"><span class="rl-name">{label}</span>'
            f'<span class="rl-choice">{buttons}</span></div>'
        )


@dataclass(frozen=True)
class Again:
    """A button that draws again: ``name`` counts on from 1 to ``most``, and then begins anew."""

    name: str
    label: str
    most: int
    value: int = 1

    def html(self) -> str:
        count = f'<input type="hidden" name="{self.name}" value="{self.value}" data-most="{self.most}">'
        button = f'<button type="button" data-again="{self.name}">{html.escape(self.label)}</button>'
        return f'<div class="rl-knob">{count}{button}</div>'


AGAIN = """
  root.querySelectorAll("button[data-again]").forEach((b) => b.addEventListener("click", () => {
    const count = root.querySelector(`input[name="${b.dataset.again}"]`);
    count.value = Number(count.value) % Number(count.dataset.most) + 1;
    update();
  }));
"""

# The button beside a slider that moves by itself. Who touches the slider stops it.
PLAYER = f"""
  root.querySelectorAll("button[data-play]").forEach((b) => {{
    const slider = root.querySelector(`input[name="${{b.dataset.play}}"]`);
    let timer = 0;
    const stop = () => {{ clearInterval(timer); timer = 0; b.textContent = "{PLAY}"; }};
    const next = () => {{ slider.stepUp(); update(); if (slider.value === slider.max) stop(); }};
    slider.addEventListener("input", stop);
    b.addEventListener("click", () => {{
      if (timer) return stop();
      if (slider.value === slider.max) slider.value = slider.min;
      b.textContent = "{PAUSE}";
      timer = setInterval(next, {BETWEEN});
      update();
    }});
  }});
"""


class Explorable:
    """A picture with knobs.

    ``svg`` is the first frame, drawn in Python, so the picture is there without the script: an SVG, or any one element.
    ``script`` is the body of ``draw(svg, value, write)``: ``value.<knob>`` is what is chosen, ``svg.querySelector``
    finds a part, ``write("<knob>", text)`` sets what stands beside the slider. It runs at first and at every move, and
    must draw the same first frame as Python (a test compares the two): round coordinates to one decimal in both.
    ``says`` is a sentence on what is chosen, which the script keeps true (``root.querySelector(".rl-says")``): who does
    not see the picture hears it at every move.
    The controls are shown where the script runs, and nowhere else.
    """

    def __init__(
        self,
        name: str,
        alt: str,
        caption: str,
        knobs: Sequence[Knob | Choice | Again],
        svg: str,
        script: str,
        style: str = "",
        says: str = "",
    ):
        if not alt.strip():
            raise ValueError("alt must describe the picture in words, got an empty string")
        self.name, self.alt, self.caption = name, " ".join(alt.split()), " ".join(caption.split())
        self.knobs, self.svg, self.script = tuple(knobs), with_theme(svg.strip()), with_theme(script.strip())
        self.style, self.says = style, says

    def _repr_html_(self) -> str:
        controls = "".join(knob.html() for knob in self.knobs)
        says = f'<div aria-live="polite" class="rl-says">{html.escape(self.says)}</div>\n' if self.says else ""
        return f"""<figure class="rl-explorable" id="rl-{self.name}"><style>{STYLE}{self.style}</style>
<div class="rl-picture" role="img" aria-label="{html.escape(self.alt, quote=True)}">{self.svg}</div>
{says}<div class="rl-controls" hidden="hidden">{controls}</div>
<figcaption>{html.escape(self.caption)}</figcaption>
<script>
(() => {{
  const root = document.getElementById("rl-{self.name}"), svg = root.querySelector(".rl-picture").firstElementChild;
  const sliders = [...root.querySelectorAll("input")], buttons = [...root.querySelectorAll("button[name]")];
  const lists = [...root.querySelectorAll("select")];
  const write = (knob, text) => {{
    const beside = root.querySelector(`output[data-knob="${{knob}}"]`);
    if (beside) beside.textContent = text;
  }};
  const draw = (svg, value, write) => {{
{self.script}
  }};
  const update = () => {{
    const value = Object.fromEntries(sliders.map((s) => [s.name, Number(s.value)]));
    buttons.forEach((b) => {{ if (b.getAttribute("aria-pressed") === "true") value[b.name] = JSON.parse(b.value); }});
    lists.forEach((l) => {{ value[l.name] = JSON.parse(l.value); }});
    sliders.forEach((s) => write(s.name, s.dataset.power ? Math.pow(s.dataset.power, s.value).toFixed(0) : s.value));
    draw(svg, value, write);
  }};
  sliders.forEach((s) => s.addEventListener("input", update));
  lists.forEach((l) => l.addEventListener("change", update));
  buttons.forEach((b) => b.addEventListener("click", () => {{
    for (const other of buttons) if (other.name === b.name) other.setAttribute("aria-pressed", other === b);
    update();
  }}));
{PLAYER if any(isinstance(knob, Knob) and knob.play for knob in self.knobs) else ""}\
{AGAIN if any(isinstance(knob, Again) for knob in self.knobs) else ""}\
  root.querySelector(".rl-controls").hidden = false;
  update();
}})();
</script></figure>"""

    def __repr__(self) -> str:
        return f"Explorable: {self.alt}"


def svg_path(xs: Sequence[float], ys: Sequence[float]) -> str:
    """The ``d`` attribute of a polyline through the points, rounded to one decimal as the scripts do."""
    points = (f"{float(x):.1f} {float(y):.1f}" for x, y in zip(xs, ys, strict=True))
    return "M" + "L".join(points)
