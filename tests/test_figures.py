"""What every picture has in common, and the dials: what is drawn is what the package computes."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.text import Text

import rope_lessons as rl
import rope_lessons.figures as figures
from rope_lessons.figures import dial, explorable, ground, theme

# Tensors of PyTorch as arrays of NumPy, inside matplotlib.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

GROUND = {"white": "#ffffff", "notebook": "#1e1e1e", "book, dark": "#14181e", "table, dark": "#222832"}


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


MARKS = [name for name in theme.PALETTE if name not in ("line", "paper") and not name.startswith("wash")]


@pytest.mark.parametrize("name", MARKS)
def test_a_colour_is_seen_on_every_ground(name: str) -> None:
    """Lines and marks 3:1, type (the inks) 4.5:1; the faint line is no carrier of meaning."""
    anywhere, light, dark = theme.PALETTE[name]
    least = 4.5 if name in ("ink", "quiet") or name.endswith("-type") else 3.0
    assert contrast(light, GROUND["white"]) >= least
    assert contrast(dark, GROUND["book, dark"]) >= least
    if anywhere == "currentColor":  # the page's own colour of type
        return
    assert min(contrast(anywhere, GROUND["white"]), contrast(anywhere, GROUND["notebook"])) >= least


@pytest.mark.parametrize("name", [name for name in theme.PALETTE if name.startswith("wash")])
def test_type_is_read_on_every_area(name: str) -> None:
    """In the ink of each theme; where the ground is unknown the area lets it through."""
    anywhere, light, dark = theme.PALETTE[name]
    assert contrast(light, theme.PALETTE["ink"][1]) >= 4.5
    assert contrast(dark, theme.PALETTE["ink"][2]) >= 4.5
    tint, share = re.findall(r"\d+", anywhere)[:3], float(re.findall(r"[\d.]+", anywhere)[3])
    for page, ink in (("#ffffff", "#1a1a1a"), ("#1e1e1e", "#cccccc")):
        below = [int(page[at : at + 2], 16) for at in (1, 3, 5)]
        mixed = [round(share * int(over) + (1 - share) * under) for over, under in zip(tint, below, strict=True)]
        assert contrast("#" + bytes(mixed).hex(), ink) >= 4.5


def test_what_is_written_in_white_on_blue() -> None:
    for column in (0, 1, 2):
        assert contrast(theme.PALETTE["paper"][column], theme.PALETTE["blue"][column]) >= 4.5


def test_the_style_sheet_of_the_book_has_every_variable_in_both_themes() -> None:
    css = theme.book_css()
    for shade in ("light", "dark"):
        block = re.search(rf'data-theme="{shade}"\] {{ (.*) }}', css)
        assert block
        assert re.findall(r"--rl-([\w-]+):", block[1]) == list(theme.PALETTE)


@pytest.mark.parametrize("style", [dial.STYLE, explorable.STYLE], ids=["dials", "explorable"])
def test_type_is_large_enough(style: str) -> None:
    assert all(float(size) >= 12 for size in re.findall(r"font-size:([\d.]+)px", style))
    assert "font-size:0" not in style


# --- figures -------------------------------------------------------------------------------------------------------

DRAWN = ["circles_turns", "channel_pairs", "picture_kernels", "chomsky_automata", "entropy_sphere", "rerope_split"]


@pytest.fixture(scope="module")
def some() -> dict[str, figures.Figure]:
    return {name: getattr(figures, name)() for name in DRAWN}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_in_the_book_is_svg_in_the_colours_of_the_theme(name: str, some: dict[str, figures.Figure]) -> None:
    """Two drawings with the same alt text; no colour of Python's but what stands on images; small; type of the page."""
    page = some[name].html()
    assert len(page.encode()) <= 150_000
    element = ElementTree.fromstring(page)
    assert element.get("aria-label") == some[name].alt
    assert [drawing.get("class") for drawing in element] == ["rl-laptop", "rl-phone"]
    assert not {color for color in re.findall(r"#[0-9a-fA-F]{6}\b", page) if color.lower() in theme.KNOWN}
    assert set(re.findall(r"var\(--rl-([\w-]+)\)", page)) <= theme.PALETTE.keys()
    assert "font-family" not in page
    assert "DejaVu" not in page
    names = re.findall(r' id="([^"]*)"', page)
    assert len(names) == len(set(names))
    assert {used for pair in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page) for used in pair if used} == set(
        names
    )


@pytest.mark.parametrize("name", DRAWN)
def test_type_of_a_figure_on_a_phone(name: str, some: dict[str, figures.Figure]) -> None:
    """At 340 px, what a phone of 390 leaves, nothing is smaller than 12 px, and no type sticks out."""
    drawing = ElementTree.fromstring(some[name].html())[1]
    width = float(drawing.attrib["viewBox"].split()[2])
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", ElementTree.tostring(drawing, "unicode"))]
    assert sizes
    assert min(sizes) * 340 / width >= 12


def test_what_is_written_in_a_figure_stays() -> None:
    """Coordinates are rounded; a number that is read is not."""

    @figures.styled
    def drawn() -> tuple[Any, str]:
        figure, axis = figures.new_figure()
        axis.set_yticks([1.25, 1.5], ["1.25", "3.35 TB/s"])
        axis.text(0.123456, 1.3, "10.125")
        return figure, "a number"

    page = drawn().html()
    for told in ("1.25", "3.35 TB/s", "10.125"):
        assert page.count(f">{told}</text>") == 2, told
    assert not re.search(r'"[^"]*\d\.\d{4}[^"]*"', page)


def test_the_same_figure_is_the_same_bytes(some: dict[str, figures.Figure]) -> None:
    again = figures.channel_pairs()
    assert again.html() == some["channel_pairs"].html()
    assert again.png() == some["channel_pairs"].png()


@pytest.mark.parametrize("name", DRAWN)
def test_a_notebook_figure_reads_on_white_and_on_black(name: str, some: dict[str, figures.Figure]) -> None:
    """No ground of its own. Lines 3:1 on both; type 4.5:1 against its halo, or on its own area."""
    figure = some[name].figure
    with ground.for_any(figure):
        assert [rgba[3] for rgba in (figure.get_facecolor(), figure.axes[0].get_facecolor())] == [0, 0]
        for line in figure.findobj(Line2D):
            color = to_hex(line.get_color())
            assert min(contrast(color, "#ffffff"), contrast(color, "#1e1e1e")) >= 3, color
        for text in figure.findobj(Text):
            halo = bool(text.get_path_effects())
            if text.get_text().strip() and text.get_visible() and halo:
                assert contrast(to_hex(text.get_color()), "#ffffff") >= 4.5, text
    assert not any(text.get_path_effects() for text in figure.findobj(Text)), "only for the PNG"


def test_a_png_has_no_ground(some: dict[str, figures.Figure]) -> None:
    pixels = imread(io.BytesIO(some["circles_turns"].png()))
    assert pixels[0, 0, 3] == 0
    assert (pixels[..., 3] == 0).mean() > 0.5


@pytest.mark.parametrize("name", ["circles_turns", "channel_pairs"])
def test_a_png_is_packed_and_looks_the_same(some: dict[str, figures.Figure], name: str) -> None:
    """On white, hardly a pixel differs visibly from the picture with all its colours, and it takes half the bytes."""
    drawn, whole = some[name], io.BytesIO()
    with matplotlib.rc_context(figures.STYLE), ground.for_any(drawn.figure):
        drawn.figure.savefig(whole, format="png")
    size = len(whole.getvalue())
    packed = drawn.png()
    assert len(packed) < size / 2

    def on_white(png: bytes) -> np.ndarray:
        pixels = imread(io.BytesIO(png))
        return pixels[..., :3] * pixels[..., 3:] + 1 - pixels[..., 3:]

    apart = np.abs(on_white(packed) - on_white(whole.getvalue())).max(axis=-1)
    assert (apart > 0.1).mean() < 0.01
    assert apart.mean() < 0.01


@pytest.mark.parametrize(("digits", "told"), [(0, "0"), (1, "−0.3"), (2, "−0.30")])
def test_a_table_has_no_negative_zero(digits: int, told: str) -> None:
    assert figures.table(["share"], {"a": [-0.3]}, digits=digits).rows["a"] == (told,)


def test_a_figure_needs_an_alt_text() -> None:
    with pytest.raises(ValueError, match="alt must describe the picture in words"):
        figures.styled(lambda: (figures.new_figure()[0], " "))()


# --- the dials -----------------------------------------------------------------------------------------------------


class Drawn:
    """One dial, as its drawing says, in degrees."""

    def __init__(self, element: ElementTree.Element):
        group = element.find("svg/g")
        assert group is not None
        assert group.get("transform") == "scale(1 -1)", "counter-clockwise"
        self.arcs: dict[str, list[float]] = {}
        for circle in group.iter("circle"):
            if circle.get("stroke-dasharray"):
                assert circle.get("pathLength") == "360"
                dashes = [float(number) for number in circle.attrib["stroke-dasharray"].split()]
                self.arcs[circle.attrib["class"]] = dashes[:-1]
        self.hands = [(line.attrib["class"], float(line.attrib["transform"][7:-1])) for line in group.iter("line")]
        assert all(float(line.attrib["x2"]) > 0 for line in group.iter("line")), "from three o'clock"
        self.token = element.findtext("span")


def drawn(page: str) -> list[list[Drawn]]:
    """The dials of every row."""
    page = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    rows = [row for row in ElementTree.fromstring(page).iter("div") if "rl-dials-row" in row.get("class", "")]
    return [[Drawn(one) for one in row.iter("div") if one.get("class") == "rl-dial"] for row in rows]


def trained_and_now(speed: float, own: float, train_length: int, length: int) -> tuple[float, float]:
    """The blue arc and what is red after it, in degrees, by the words of the book."""
    trained, now = train_length * speed / (2 * math.pi), length * own / (2 * math.pi)
    blue = min(1.0, trained)
    open_and_beyond = trained < 1 and now > trained * (1 + 1e-9)
    return 360 * blue, 360 * (min(1.0, now) - blue) if open_and_beyond else 0.0


SETTINGS = [(16, 10_000.0, 64, 8), (16, 10_000.0, 64, 2), (8, 10_000.0, 512, 4), (32, 500_000.0, 4096, 16)]


@pytest.mark.parametrize(("dim", "base", "train_length", "factor"), SETTINGS)
def test_dials_show_the_frequencies_of_the_package(dim: int, base: float, train_length: int, factor: int) -> None:
    names = list(figures.dial_methods(dim, base, train_length))
    shown = figures.dials(dim=dim, base=base, train_length=train_length, factor=factor, methods=names)
    rows = drawn(shown._repr_html_())
    frequencies = [
        rl.rope_frequencies(dim, base),
        rl.rope_frequencies(dim, base),
        rl.pi_frequencies(dim, factor, base),
        rl.ntk_frequencies(dim, factor, base, variant="aware"),
        rl.circles.yarn_frequencies(dim, factor, train_length, base),
        rl.circles.llama3_frequencies(dim, factor, train_length, base),
    ]
    lengths = [train_length] + [train_length * factor] * len(names)
    plain = frequencies[0].tolist()
    for row, own, length in zip(rows, frequencies, lengths, strict=True):
        assert len(row) == dim // 2
        for one, speed, slowed in zip(row, plain, own.tolist(), strict=True):
            blue, red = trained_and_now(speed, slowed, train_length, length)
            assert one.arcs["rl-seen"] == pytest.approx([blue], abs=0.006)
            assert one.arcs["rl-sector"] == one.arcs["rl-seen"]
            assert one.arcs["rl-new"][-1] == pytest.approx(red, abs=0.006)
            assert (one.arcs["rl-new"][-1] > 0) == (red > 0.005)
            if red:
                assert one.arcs["rl-new"][:2] == pytest.approx([0, blue], abs=0.006), "where the blue ends"
            step = one.arcs["rl-slow" if slowed < speed * (1 - 1e-9) else "rl-step"]
            assert step == pytest.approx([math.degrees(slowed)], abs=0.006)
            assert one.arcs["rl-ghost"] == pytest.approx([math.degrees(speed)], abs=0.006)
            ((kind, angle),) = one.hands
            difference = (angle - math.degrees(slowed * length)) % 360
            assert min(difference, 360 - difference) < 0.06
            assert kind == ("rl-hand rl-out" if red and math.degrees(slowed * length) % 360 > blue else "rl-hand")
            turned = math.degrees(slowed)  # shown with two digits, below a thousandth with one
            shown_as = pytest.approx(turned, rel=0.06 if turned >= 1e-3 else 0.51)
            assert float((one.token or "").rstrip("°")) == shown_as


def test_the_default_dials() -> None:
    """In words: plain RoPE shows new angles at the open pairs, NTK-aware at all of them but the last, PI and YaRN at
    none, as chapter 5 has it."""
    red = [[one.arcs["rl-new"][-1] > 0 for one in row] for row in drawn(figures.dials()._repr_html_())]
    open_pairs = (rl.circles.turns(rl.rope_frequencies(16), 64) < 1).tolist()
    assert red[0] == [False] * 8
    assert red[1] == open_pairs
    assert red[2] == [False] * 8
    assert red[3] == [*open_pairs[:-1], False]
    assert red[4] == [False] * 8


def test_some_of_the_dials() -> None:
    """What is drawn are the fastest pairs; what is said of new angles is counted over all."""
    row = figures.DialRow("512 tokens", rl.rope_frequencies(32), 512)
    every, some = figures.dials([row], dim=32), figures.dials([row], dim=32, pairs=8)
    assert len(drawn(some._repr_html_())[0]) == 8
    assert some.drawn[0] == every.drawn[0][:8]
    for shown in (every, some):
        assert "11 of 16 met new angles" in shown._repr_html_()
    assert "the first 8 of 16 pairs" in some.alt
    assert "16 pairs" in every.alt
    assert 'class="rl-dials rl-large"' in some._repr_html_()
    assert 'class="rl-dials rl-large"' not in every._repr_html_()
    with pytest.raises(ValueError, match="pairs must be"):
        figures.dials([row], dim=32, pairs=0)


def test_marked_dials() -> None:
    row = figures.DialRow("512 tokens", rl.rope_frequencies(32), 512)
    shown = figures.dials([row], dim=32, marked=(5, 6))
    assert shown._repr_html_().count('class="rl-dial rl-marked"') == 2
    assert shown.alt.endswith("Marked: pairs 5, 6.")
    with pytest.raises(ValueError, match="marked must be of the pairs that are drawn, 0 to 15, got 16"):
        figures.dials([row], dim=32, marked=(16,))


def test_more_to_say_of_a_row_and_fewer_dials_on_a_phone() -> None:
    shown = figures.dials(methods=["PI"], more=["62.6 % right", "29.3 < 37.3 % right"], phone=(0, 2, 3, 4))
    page = shown._repr_html_()
    assert "<span>as in training<br>62.6 % right</span>" in page
    assert "<span>no new angle<br>29.3 &lt; 37.3 % right</span>" in page
    assert page.count('class="rl-dial rl-wide"') == 2 * 4
    assert page.count('class="rl-dial"') == 2 * 4
    assert '<div class="rl-legend rl-phone">4 of 8 dials</div>' in page
    assert "rl-wide" not in figures.dials(methods=["PI"])._repr_html_().split("</style>")[1]
    assert "pair 7" in shown.alt
    with pytest.raises(ValueError, match="more must have a text for each of the 2 rows, got 1"):
        figures.dials(methods=["PI"], more=["x"])
    with pytest.raises(ValueError, match="phone must be of the pairs that are drawn, 0 to 7, got 8"):
        figures.dials(methods=["PI"], phone=(8,))


def test_a_legend_says_what_the_number_below_a_dial_is() -> None:
    frequencies = rl.rope_frequencies(8)
    two = figures.dials([figures.DialRow("", frequencies, 9, hands=(9, 4))], dim=8)
    assert "from the key to the query (number below)</span>" in two._repr_html_()
    for methods, words in ((["none"], "turn of one token"), (["PI"], "turn of one token")):
        assert figures.dials(methods=methods)._repr_html_().count(f"{words} (number below)</span>") == 1
    slowed = figures.dials([figures.DialRow("", frequencies / 8, 64)], dim=8)._repr_html_()
    assert "turn of one token, slowed (number below)</span>" in slowed


def test_two_hands_and_no_training() -> None:
    """A query and a key; and, without a training length, just how far the hands have come."""
    frequencies = rl.rope_frequencies(8)
    shown = figures.dials([figures.DialRow("a query and a key", frequencies, 9, hands=(9, 4))], dim=8)
    hands = [one.hands for one in drawn(shown._repr_html_())[0]]
    for (query, _), (key, _) in hands:
        assert (query.split()[0], key) == ("rl-hand", "rl-hand rl-second")
    first = [angle for _, angle in hands[0]]
    assert first == pytest.approx([math.degrees(9) % 360, math.degrees(4) % 360], abs=0.06)
    later = figures.dials([figures.DialRow("later", frequencies, 109, hands=(109, 104))], dim=8)
    for one, moved, speed in zip(shown.drawn[0], later.drawn[0], frequencies.tolist(), strict=True):
        assert one.between == pytest.approx(math.degrees(5 * speed), abs=1e-6)
        assert moved.between == pytest.approx(one.between, abs=1e-6)
    assert "rl-seen" not in shown._repr_html_().split("</style>")[1]
    assert "Training" not in shown.alt
    assert "5 tokens apart" in shown._repr_html_()
    shown = figures.dials([figures.DialRow("3 tokens on", frequencies, 3)], dim=8, train_length=None)
    row = drawn(shown._repr_html_())[0]
    assert [one.arcs["rl-seen"][0] for one in row] == pytest.approx(
        [min(360, math.degrees(3 * speed)) for speed in frequencies.tolist()], abs=0.006
    )
    assert "training" not in shown.alt


def test_the_dials_to_play_with_hold_the_same_numbers() -> None:
    """Every frame of the script is what the static dials draw."""
    shown = figures.dials_explorable()
    frames = json.loads(re.search(r"const FRAMES = (.*);\n", shown.script)[1])  # type: ignore[index]
    for factor in (2, 4, 8):
        for length in (64, 128, 256, 512):
            methods = figures.dial_methods()
            rows = [figures.DialRow(name, of(factor), length) for name, of in methods.items()]
            static = drawn(figures.dials(rows)._repr_html_())
            for name, row in zip(methods, static, strict=True):
                frame = frames[name][str(factor)][str(length)]
                for one, (seen, new, step, slow, hand, out, token) in zip(row, frame["dials"], strict=True):
                    assert one.arcs["rl-seen"] == [float(seen)]
                    assert one.arcs["rl-new"] == ([0.0, float(seen), float(new)] if float(seen) else [float(new)])
                    assert one.arcs["rl-slow" if slow else "rl-step"] == [float(step)]
                    assert one.hands == [("rl-hand rl-out" if out else "rl-hand", float(hand))]
                    assert one.token == token
    first = drawn(shown._repr_html_())[0]
    assert [one.token for one in first] == [numbers[-1] for numbers in frames["none"]["8"]["512"]["dials"]]


def test_the_buttons_of_the_factor_are_grey_where_it_does_nothing() -> None:
    shown = figures.dials_explorable()
    assert 'const WITHOUT_FACTOR = ["none"];' in shown.script
    assert ">plain RoPE</button>" in shown._repr_html_()
    assert ">none</button>" not in shown._repr_html_()
    assert "button[aria-disabled=true]{opacity" in shown._repr_html_()


def test_dials_are_the_same_bytes_each_time() -> None:
    assert figures.dials()._repr_html_() == figures.dials()._repr_html_()
    assert figures.dials_explorable()._repr_html_() == figures.dials_explorable()._repr_html_()


def test_dials_refuse_what_they_cannot_draw() -> None:
    frequencies = rl.rope_frequencies(8)
    for arguments, message in (
        ({"rows": []}, "rows must have at least one row of dials, got none"),
        ({"rows": [figures.DialRow("x", frequencies, 64)]}, r"frequencies must be .* got \(4,\) .* and \(8,\)"),
        ({"rows": [figures.DialRow("x", frequencies, 0)], "dim": 8}, "length must be"),
        ({"methods": ["yarn"]}, "methods must be of none, PI, .* got 'yarn'"),
        ({"factor": 0}, "factor must be"),
        ({"train_length": None}, "train_length must be .* got None"),
        ({"train_length": 0}, "train_length must be"),
    ):
        with pytest.raises(ValueError, match=message):
            figures.dials(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="value must be one of 64, 128, 256, 512, got 100"):
        figures.dials_explorable(length=100)


# --- explorables ---------------------------------------------------------------------------------------------------


def test_an_explorable_shows_its_picture_without_a_script() -> None:
    """The controls are hidden until the script shows them."""
    shown = figures.Explorable(
        "x", "a dot", "A dot.", [figures.Choice("c", "Colour", {1: "one", 2: "two"}, 2)], "<svg></svg>", ""
    )._repr_html_()
    assert '<div class="rl-controls" hidden="hidden">' in shown
    assert shown.index("<svg>") < shown.index("<script>")
    assert re.findall(r'value="(\d)" aria-pressed="(\w+)">(\w+)<', shown) == [
        ("1", "false", "one"),
        ("2", "true", "two"),
    ]


def test_explorables_follow_the_theme() -> None:
    """A known colour becomes the theme's; others stay."""
    assert theme.with_theme("#0072B2 #0072b2 #d55e00 #123456 #1a1a1a") == (
        "var(--rl-blue, #0072B2) var(--rl-blue, #0072B2) var(--rl-red, #D55E00) #123456 var(--rl-ink, currentColor)"
    )


def test_many_choices_are_a_list() -> None:
    shown = figures.Choice("c", "Row", {number: f"row {number}" for number in range(9)}, 3).html()
    assert re.findall(r'<option value="(\d)" selected>(.*?)<', shown) == [("3", "row 3")]
    assert "<button" not in shown


def test_a_slider_of_exponents_shows_the_power() -> None:
    assert '<output data-knob="base">10000</output>' in figures.Knob("base", "base", 1, 6, 4, 0.1, power=10).html()


def test_a_button_draws_again() -> None:
    again = figures.Again("seed", "another ten", 20)
    assert 'value="1" data-most="20"' in again.html()
    shown = figures.Explorable("x", "A line.", "", [again], "<svg></svg>", "")._repr_html_()
    assert shown.count("data-again") == 2  # its button, and the script that finds it
    assert "data-again" not in figures.Explorable("x", "A line.", "", [], "<svg></svg>", "")._repr_html_()


def test_a_slider_may_have_a_player() -> None:
    knob = figures.Knob("step", "step", 0, 3, 0, play=True)
    assert 'data-play="step"' in knob.html()
    assert "setInterval" in figures.Explorable("x", "A line.", "", [knob], "<svg></svg>", "")._repr_html_()
    still = figures.Knob("step", "step", 0, 3, 0)
    assert "setInterval" not in figures.Explorable("x", "A line.", "", [still], "<svg></svg>", "")._repr_html_()
