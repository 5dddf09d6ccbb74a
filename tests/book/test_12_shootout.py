"""One test for each labelled equation and definition of chapter 12, and for what its text says of the scoreboard."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator

import rope_lessons as rl
from rope_lessons.figures.scoreboard import LABELS, SHORT, row_code, row_label
from rope_lessons.figures.sortable import SortableRow, SortableTable
from rope_lessons.lab.table.documents import difference
from rope_lessons.lab.table.knobs import knobs
from rope_lessons.lab.table.lines import pick, read_table, row_names
from rope_lessons.lab.table.published import published_rows
from rope_lessons.scoreboard import live, metrics, summary
from rope_lessons.scoreboard.intervals import interval
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import results
from tests.seeds import ahead as paired_ahead
from tests.seeds import right

ROOT = Path(__file__).parents[2]
LESSON = (ROOT / "book" / "12_shootout.md").read_text("utf8")
DEEPER = (ROOT / "book" / "deeper" / "12_shootout.md").read_text("utf8")
STORED = results("scoreboard")
WHOLE = STORED["rows"]
BOARD = WHOLE.where(rung="small")
CHOOSER = rl.figures.scoreboard_chooser(WHOLE)
ROWS = {row.name: row for row in CHOOSER.rows}
AT_HOME, LONG, FAR, OVER, NEEDLES = range(5)


def line(row: str, metric: str, length: int = 512) -> dict[str, float]:
    (found,) = (each for each in BOARD if (each["row"], each["metric"], each["length"]) == (row, metric, length))
    return found


def percent(row: str, metric: str, length: int = 512) -> float:
    return 100 * line(row, metric, length)["mean"]


def of_seed(seed: int, row: str, metric: str, length: int) -> dict[str, float]:
    """On the larger model, one of whose seeds."""
    (found,) = STORED["each_seed"].where(rung="second", seed=seed, row=row, metric=metric, length=length)
    return found


# --- definitions and equations -------------------------------------------------------------------------------------


def my_far_copies(text: bytes, beyond: int, context: int) -> list[int]:
    """By the definition, place by place: every earlier occurrence is looked at."""
    found = []
    for t in range(context, len(text)):
        ends = [e for e in range(context, t) if text[e - context : e] == text[t - context : t]]
        if ends and t - ends[-1] > beyond and text[ends[-1]] == text[t]:
            found.append(t)
    return found


def test_def_shootout_far_copies():
    random = np.random.Generator(np.random.Philox(key=3))
    texts = [b"the cat. so. the cow", *(bytes(97 + random.integers(0, 3, size=120)) for _ in range(4))]
    for text in texts:
        for beyond, context in ((6, 3), (1, 2), (40, 4), (3, 1)):
            package = metrics.far_copies(torch.tensor([list(text)]), beyond, context)[0][0]
            assert my_far_copies(text, beyond, context) == [t + 1 for t in package.nonzero()[:, 0].tolist()]
    assert metrics.CONTEXT == 8
    assert "if the eight bytes before it have occurred before" in LESSON


def test_far_copies_by_hand():
    """The three bytes that the text looks at, and no other."""
    text = b"the cat. so. the cow"
    found = my_far_copies(text, 6, 3)
    assert bytes(text[t] for t in found) == b" c"
    assert found[0] - 13 == text.index(b" ", 0)  # 13 bytes earlier
    assert text[text.rindex(b"o") - 3 : text.rindex(b"o")] == b"e c" == text[text.index(b"a") - 3 : text.index(b"a")]


def test_eq_shootout_tax():
    """Plain RoPE's accuracy at home, less that of the method; the numbers of the text."""
    for row in ("pi", "yarn", "rerope-w32", "hwfa-w16"):
        if line(row, "tax", 64) and line(row, "natural", 64)["seeds"] == line("rope", "natural", 64)["seeds"]:
            assert percent(row, "tax", 64) == pytest.approx(
                percent("rope", "natural", 64) - percent(row, "natural", 64), abs=0.01
            )
    assert f"PI pays {percent('pi', 'tax', 64):.0f} points, YaRN {percent('yarn', 'tax', 64):.0f}" in LESSON
    for row in ("rope-window", "streaming", "lm-infinite", "dynamic-ntk", "rope-logn-test"):
        assert abs(percent(row, "tax", 64)) < 0.05
    assert "What is put on at test can be switched off up to $N$, and then loses nothing there." in LESSON


def test_eq_shootout_paired():
    """The interval of the package is the formula, for one training; and the numbers of the lesson's table."""
    a, b = np.array([60, 40, 70, 50.0]), np.array([57, 38, 66, 47.0])
    for values in (a, b, a - b):
        found = interval(values[None], np.ones(4))
        half = 3.182446 * math.sqrt(((values - values.mean()) ** 2).sum() / (4 * 3))
        assert found == pytest.approx((values.mean(), values.mean() - half, values.mean() + half), abs=1e-4)
    assert "(3.18 for four documents, 2.0 for many)" in LESSON
    alone, paired = (interval(values[None], np.ones(4)) for values in (a, a - b))
    assert round((alone.high - alone.low) / 2, -1) == 20
    assert 1 < (paired.high - paired.low) / 2 < 1.5
    for values in (a, b):
        assert " | ".join(f"{value:g}" for value in (*values, values.mean())) in LESSON


# --- the table -----------------------------------------------------------------------------------------------------


def test_the_chooser_has_every_row_and_its_numbers():
    names = [name for name in dict.fromkeys(BOARD["row"]) if not name.endswith("-window") or name == "rope-window"]
    assert len(ROWS) == len(CHOOSER.rows) == len(names)
    plans = RUNGS["small"].rows
    for name in names:
        row = ROWS[row_label(name)]
        if row.values[LONG] is None:
            assert name == "learned"  # no rows for longer texts
            continue
        assert row.values[LONG] == pytest.approx(percent(name, "natural"))
        assert row.values[FAR] == pytest.approx(percent(name, "far copies"))
        assert row.values[NEEDLES] == pytest.approx(percent(name, "needle"))
        ahead = line(name, "far copies")["ahead_mean"]
        assert row.values[OVER] == (None if ahead is None else pytest.approx(100 * ahead))
        found = line(name, "far copies")
        assert (OVER in row.sure) is (ahead is not None and found["ahead_low"] > 0 and found["seeds"] > 1)
        lengths = row.more["needles at 64, 128, 256, 512"].removesuffix(" %").split(", ")
        assert lengths[-1] == f"{percent(name, 'needle'):.0f}"
        assert row.short is (name in SHORT)
        turned = {knob for knob, said in knobs(plans[name]).items() if f"{knob}: {said}" in row.more["knobs"]}
        assert turned <= row.tags["Changed"]
    assert set(SHORT) <= set(names)
    assert not [name for name in names if summary.plain_name(name.partition("-x")[0]) not in LABELS]


def test_needs_and_chapters_of_rows():
    assert ROWS["YaRN"].more["needs"] == "a trained model"
    assert ROWS["ReRoPE, log n"].more["needs"] == "log n in training"
    assert ROWS["HWFA"].more["needs"] == "a training of its own"
    assert ROWS["YaRN"].more["lesson"] == "chapter 5"
    assert "model" in ROWS["YaRN"].tags["I have"]
    assert ROWS["HWFA"].tags["I have"] == {"train"}
    assert "distance" in ROWS["Self-Extend"].tags["Changed"]
    assert ROWS["Plain RoPE"].more["knobs"] == "none is turned"
    assert "positions: jumps → 0, 1, 2, …" in ROWS["PoSE (one jump)"].more["knobs"]


def test_a_sortable_table_refuses_what_it_cannot_show():
    row = SortableRow("a", (1.0, 2.0))
    with pytest.raises(ValueError, match="rows must have 1 values each, got 2 in 'a'"):
        SortableTable("x", ("one",), (row,), 0)
    with pytest.raises(ValueError, match="rows must be sorted by 'one', the largest first"):
        SortableTable("x", ("one", "two"), (row, SortableRow("b", (3.0, 0.0))), 0)


def test_a_sortable_table_as_text():
    shown = SortableTable("x", ("one",), (SortableRow("a", (2.0,)), SortableRow("bb", (None,))), 0, head="name")
    assert repr(shown) == "name  one\na   2.0\nbb    –"


# --- what the text says --------------------------------------------------------------------------------------------


def test_the_guide():
    trained = {name: row for name, row in ROWS.items() if row.more["needs"] == "a trained model"}
    most = max(trained, key=lambda name: trained[name].values[NEEDLES] or 0)
    assert most == "ReRoPE, log n†"
    for column in (AT_HOME, LONG, FAR):
        extend, rerope = (ROWS[name].values[column] for name in ("Self-Extend, log n†", "ReRoPE, log n†"))
        assert abs(extend - rerope) < 1
    for name in ("YaRN", "Llama 3’s rule"):
        assert percent("rope", "natural", 64) - ROWS[name].values[AT_HOME] == pytest.approx(4, abs=0.3)
    assert percent("rope-window", "natural") - percent("yarn", "natural") == pytest.approx(8, abs=0.5)
    assert percent("rope-window", "far copies") - percent("yarn", "far copies") == pytest.approx(4, abs=0.5)
    for column in (AT_HOME, LONG, FAR, OVER, NEEDLES):
        best = max(ROWS.values(), key=lambda row: -math.inf if row.values[column] is None else row.values[column])
        if column == AT_HOME:
            assert best.values[column] - ROWS["HWFA"].values[column] < 0.5
        else:
            assert best.name == ("Sinusoidal, squeezed" if column == OVER else "HWFA")
    for name in ("PoSE (one jump), log n", "InvLeaky, moving window, log n"):
        assert ROWS[name].values[LONG] < percent(
            f"{'skip-positions' if 'PoSE' in name else 'invleaky-moving'}-logn-window", "natural"
        )


def ends(row: str, metric: str, prefix: str = "", length: int = 512) -> tuple[float, float]:
    """The interval of a share, cut at 0 and at 100, or of a difference, in points."""
    low, high = (100 * line(row, metric, length)[f"{prefix}{end}"] for end in ("low", "high"))
    return (low, high) if prefix else (max(0.0, low), min(100.0, high))


CHOICE = {  # the rows of the table of advice, from the top
    "ReRoPE with log n†": "rerope-w32-logn-test", "A window": "rope-window", "LongRoPE": "longrope", "YaRN": "yarn",
    "YaRN, tuned": "yarn", "Plain RoPE, tuned": "rope", "HWFA": "hwfa-w16", "PoSE": "skip-positions-logn",
}  # fmt: skip
TUNED = {"YaRN, tuned": "small-tuned-0.1", "Plain RoPE, tuned": "small-tuned-10"}


def test_the_advice_has_the_numbers_of_the_scoreboard():
    """Row by row; that of the tuned model has those of its own rung."""
    section = LESSON[LESSON.index("## Which method do I take?") : LESSON.index("## One number is not enough")]
    lines = [text for text in section.splitlines() if text.startswith("|")][2:]
    lines = [text for text in lines if not text.endswith("| | | | |")]  # those are headings of groups
    assert len(lines) == len(CHOICE)
    for (method, row), text in zip(CHOICE.items(), lines, strict=True):
        _, take, *numbers = (cell.strip() for cell in text.strip("|").split("|"))
        assert take.startswith(f"**{method}**")
        own = WHOLE.where(rung=TUNED.get(method, "small"), row=row)
        found = {(each["metric"], each["length"]): each for each in own}
        home = percent("rope", "natural", 64) - 100 * found["natural", 64]["mean"]
        lost = home if method in TUNED else 100 * found["tax", 64]["mean"]
        needle = found["needle", 512]
        low, high = max(0.0, 100 * needle["low"]), min(100.0, 100 * needle["high"])
        shown = f"{100 * needle['mean']:.0f}" + ("" if low == high else f" ({low:.0f}–{high:.0f})")
        at_home = f"{round(lost, 1) + 0.0:.1f}".replace("-", "−")
        at_home = f"0 (on: {at_home})" if "off up to $N$" in take else at_home
        said = [at_home, f"{100 * found['far copies', 512]['mean']:.1f}", shown]
        assert numbers == said, method
        assert ("off up to $N$" in take) is (method in ("LongRoPE", "YaRN"))
    assert "from unrounded means of the seeds that both have." in section
    gained = [100 * of_seed(seed, "rerope-w128", "far copies", 2048)["ahead_mean"] for seed in (0, 1)]
    assert min(gained) > 5
    said = "In far copies ReRoPE helps both trainings: it is {:.0f} and {:.0f} points over the window."
    assert said.format(*gained) in DEEPER
    behind = [-100 * line(row, "natural")["ahead_mean"] for row in ("longrope", "yarn")]
    assert "LongRoPE is on all bytes {:.0f} points behind a window (one seed). YaRN is behind it by {:.0f}".format(
        *behind
    ) in DEEPER  # fmt: skip
    longrope = line("longrope", "tax", 64)
    assert longrope["seeds"] == 1
    assert "and can search for the frequencies on long texts | **LongRoPE** ({doc}`05_circles`; one seed)," in section
    assert "**YaRN, tuned**, always on (the numbers are those of 0.1 %)" in section
    assert "is not the difference of two cells of the column *all bytes, 64*." in DEEPER
    # What that sentence on fewer seeds is about: the columns differ by less.
    assert percent("rope", "natural", 64) - percent("longrope", "natural", 64) < 100 * longrope["mean"] - 0.2
    assert {line(row, "natural")["seeds"] for row in ("rope", "yarn", "rope-window")} == {5}
    far = {method: float(text.strip("|").split("|")[3]) for method, text in zip(CHOICE, lines, strict=True)}
    assert {method for method, share in far.items() if share > far["A window"]} == {
        "ReRoPE with log n†", *TUNED, "HWFA"
    }  # fmt: skip
    assert "Of these rows only ReRoPE, the tuned models and HWFA are above the window's 72.4 % of far copies" in section
    assert line("hwfa-w16", "needle")["low"] == line("hwfa-w16", "needle")["mean"] == 1
    assert "needles with 95 % intervals; HWFA missed none." in section
    assert "**Plain RoPE, tuned**: in far copies, changes add little |" in section
    tuned = WHOLE.where(rung="small-tuned-10", metric="far copies", length=512)
    assert max(tuned["mean"]) - tuned.where(row="rope")["mean"][0] < 0.025
    short = {row: WHOLE.where(rung="small-tuned-0.1", row=row, metric="far copies", length=512)["mean"][0]
             for row in ("yarn", "longrope")}  # fmt: skip
    assert {round(100 * share) for share in short.values()} == {76}
    assert "After two steps LongRoPE has 76 % of the far copies, as YaRN has." in DEEPER
    assert "Untuned LongRoPE and YaRN are not." in section
    home, layers = RUNGS["small"].train_length, RUNGS["small"].config.layers
    keys = 2 * 512 + (layers - 2) * home
    assert f"With layers 2 and 3, {keys:,} keys, nothing is lost, and all bytes gain a point." in DEEPER
    said = f"in the second and third layer, between two windows of {home}, is too dear: {keys:,} keys."
    assert said in LESSON


def test_an_opened_row_claims_nothing_impossible():
    """A share is at most 100 points ahead, however few the seeds."""
    wide = line("rerope-w16-logn-test", "needle")
    assert wide["ahead_high"] > 1
    assert ROWS["ReRoPE, window 16, log n†"].more["ahead of its window"].endswith("needles: 7.5 to 100.0")
    for row in ROWS.values():
        said = re.findall(r"[\d.]+", row.more["ahead of its window"])
        assert all(float(value) <= 100 for value in said), row.name


def test_most_far_copies_can_be_guessed():
    """Windows of eight reach 28 bytes back, and no source of a far copy."""
    home, layers = RUNGS["small"].train_length, RUNGS["small"].config.layers
    assert f"hand something on from ${layers} \\cdot {home - 1} = {layers * (home - 1)}$ bytes back" in DEEPER
    assert layers * (8 - 1) < home
    said = (
        "Windows of eight cannot: even four reach only {} bytes back, and they have {:.0f}. So most far copies can be"
    )
    assert said.format(layers * (8 - 1), percent("window-8", "far copies")) in LESSON
    said = "those of windows of eight, which reach {}, have {:.0f} % of the far copies too"
    assert said.format(layers * (8 - 1), percent("window-8", "far copies")) in DEEPER
    assert percent("window-8", "far copies") > 0.95 * percent("rope-window", "far copies")


def test_the_guide_has_its_intervals():
    relatives = ("leaky-rerope-w32-logn-test", "rerope-w16-logn-test", "self-extend-w32-logn-test")
    assert all(ends(row, "needle")[1] > percent("rerope-w32-logn-test", "needle") for row in relatives)
    said = "ReRoPE with log n† was half a point above the window ({:.1f} to {:.1f})"
    assert said.format(*ends("rerope-w32-logn-test", "natural", "ahead_")).replace("-", "−") in LESSON
    said = "HWFA gains most of those whose control is sound, 14 points ({:.0f} to {:.0f})."
    assert said.format(*ends("hwfa-w16", "far copies", "ahead_")) in DEEPER
    gains = {row.name: row.values[OVER] for row in CHOOSER.rows if row.values[OVER] is not None}
    assert sorted(gains, key=lambda name: -gains[name])[:2] == ["Sinusoidal, squeezed", "HWFA"]
    behind = [[-end for end in ends("yarn", metric, "ahead_")[::-1]] for metric in ("natural", "far copies")]
    said = "by 8 points on all bytes ({:.0f} to {:.0f}) and by 4 in far copies ({:.1f} to {:.0f})"
    assert said.format(*behind[0], *behind[1]) in DEEPER
    lost = -100 * line("longrope", "natural")["ahead_mean"]
    assert f"LongRoPE is on all bytes {lost:.0f} points behind a window (one seed)" in DEEPER


def test_a_hybrid_does_without_log_n():
    """On the scoreboard's model; three seeds, which the sentence says."""
    found = BOARD.where(rung="small", row="hwfa2-w16", metric="needle", length=512)
    assert found["seeds"] == [3]
    assert found["low"][0] > 0.96
    assert f"trained with no scale it finds {percent('hwfa2-w16', 'needle'):.0f} % of the needles at 512 (" in DEEPER
    (far,) = (layer for layer in RUNGS["small"].rows["hwfa2-w16"].method.test if layer.visible_window is None)
    assert far.scale is None
    assert (far.window, far.slope) == (32, 0.0)


def test_keys_of_hwfa():
    layers = RUNGS["small"].rows["hwfa-w16"].method.test
    assert "**HWFA** has windows in all layers but one, the far layer, which sees everything; HWFA2" in LESSON
    assert "Both have log n in their far layer." in LESSON
    for rung, row in (("small", "hwfa-w16"), ("small", "hwfa2-w16-logn"), ("second", "hwfa-w64"),
                      ("second", "hwfa2-w64-logn")):  # fmt: skip
        plan = RUNGS[rung].rows[row].method
        for each in (*plan.train, *plan.test):
            assert (each.scale is None) is (each.visible_window is not None), row
        assert row_label("hwfa2-w16-logn") == "HWFA2"
    assert '"hwfa2-w64-logn": "HWFA2", "hwfa-w64": "HWFA",' in DEEPER
    assert sorted(layer.visible_window or 512 for layer in layers) == [16, 16, 16, 512]
    assert "its layers read $3 \\cdot 16 + 512 = 560$ keys where full attention reads 2,048." in DEEPER
    full = {
        name: sum(layer.visible_window or 512 for layer in plan.method.test)
        for name, plan in RUNGS["small"].rows.items()
        if any(s.visible_window is None for s in plan.method.test)
    }
    assert min(full.values()) == full["hwfa-w16"] == 560
    assert pytest.approx(1 / 4, abs=0.001) == (3 * 16 + 32_768) / (4 * 32_768)


def test_a_far_layer_needs_windows_below():
    """HWFA's far layer, trained over three layers of full attention, is behind its own windows."""
    name = "nope-every-fourth-logn"
    hybrid, without = (RUNGS["small"].rows[row].method for row in ("hwfa-w16", name))
    assert without.test[3] == hybrid.test[3] == without.train[3]
    assert [(layer.frequencies, layer.visible_window) for layer in without.test[:3]] == [
        (layer.frequencies, None) for layer in hybrid.test[:3]
    ]
    for row in (name, name.removesuffix("-logn")):
        assert line(row, "far copies")["ahead_high"] < 0
        assert round(percent(row, "far copies")) == 37
        assert percent(row, "needle") == 0
    assert "gets 37 % of the far copies, and no needle." in DEEPER
    assert "windows with one layer that sees everything for one that you train" in LESSON


def test_no_row_that_only_changes_frequencies_is_over_its_window():
    sure = {row.name for row in CHOOSER.rows if OVER in row.sure}
    only = {row.name for row in CHOOSER.rows if row.tags["Changed"] == {"frequencies"}}
    assert len(only) >= 20
    assert not sure & only
    pressed = {
        row.name for row in CHOOSER.rows if "model" in row.tags["I have"] and "frequencies" in row.tags["Changed"]
    }
    assert {"LongRoPE, searched", "YaRN", "YaRN without its factor"} < pressed
    assert not sure & pressed
    assert (
        "press *all 117*, *a trained model* and *frequencies*: **on this model no change of frequencies at test is"
        in LESSON
    )
    nearer = {row.name for row in CHOOSER.rows if {"distance"} <= row.tags["Changed"] and "model" in row.tags["I have"]}
    assert nearer - sure == {"LM-Infinite"}  # of those that *distance* shows, the one that does not see all keys
    assert len(nearer) == 9
    assert "visible" in ROWS["LM-Infinite"].tags["Changed"]
    assert not [name for name in nearer & sure if "visible" in ROWS[name].tags["Changed"]]
    assert (
        "Now press *distance* there instead. Near distances stay as trained, and every row that keeps all keys in sight"
        in LESSON
    )
    bent = {row.name for row in CHOOSER.rows if row.name.startswith(("ReRoPE", "Leaky", "Self-Extend"))}
    assert "with log n in training or without" in DEEPER
    assert sure >= bent | {"ALiBi", "HWFA", "HWFA2", "FIRE", "Sinusoidal, squeezed"}
    assert "LM-Infinite" not in sure  # a distance bent at test, but not all keys are seen
    assert "a distance bent at test and all keys in sight" in DEEPER
    assert "ALiBi, HWFA and HWFA2; and, barely, FIRE" in DEEPER


def test_the_searched_list_is_the_best_change_of_frequencies():
    """Better than YaRN in each column and nearly free at home, on one seed, and not ahead of its window."""
    searched, yarn = (
        [percent(row, *asked) for asked in (("natural", 64), ("natural", 512), ("far copies", 512), ("needle", 512))]
        for row in ("longrope", "yarn")
    )
    assert all(ours > theirs for ours, theirs in zip(searched, yarn, strict=True))
    assert line("longrope", "far copies")["seeds"] == 1
    assert line("longrope", "far copies")["ahead_mean"] < 0
    assert round(searched[2]) == round(percent("rope-window", "far copies")) == 72
    assert percent("rope", "natural", 64) - searched[0] < 0.5
    behind = [percent("rope-window", metric) - percent("yarn", metric) for metric in ("natural", "far copies")]
    assert [round(lost) for lost in behind] == [8, 4]


def test_one_seed_is_never_sure():
    single = {row.name for row in CHOOSER.rows if row.more["measured on"].startswith("1 seed:")}
    assert single
    assert not single & {row.name for row in CHOOSER.rows if row.sure}


def test_plain_attention_at_test():
    """PoSE and InvLeaky find needles, and on far copies they are level with their windows; ReRoPE is ahead of both."""
    for row in ("skip-positions-logn", "invleaky-moving-logn"):
        found = line(row, "far copies")
        assert found["ahead_low"] < 0 < found["ahead_high"]
        assert round(percent("rope-window", "natural") - percent(row, "natural")) == 2
        assert percent("rerope-w32-logn-test", "natural") > percent(row, "natural") + 2
        assert percent("rerope-w32-logn-test", "far copies") > percent(row, "far copies") + 8
        assert abs(percent("rerope-w32-logn-test", "needle") - percent(row, "needle")) < 3
        behind = line(row, "natural")
        assert behind["ahead_high"] < 0
        assert round(100 * behind["ahead_mean"]) == -1
        assert abs(100 * found["ahead_mean"]) < 1
        assert round(percent(row, "needle"), -1) == 90
    assert "are level with their own windows in far copies. On all bytes they are a point behind." in DEEPER
    found, kept = percent("skip-positions-logn", "needle"), percent("rerope-w32-logn-test", "needle")
    assert f"PoSE finds {found:.0f} % of the needles, and is not surely ahead of its window in far copies." in DEEPER
    assert f"with all four layers it finds all needles, where the mean of five is {kept:.0f} %.)" in DEEPER
    assert "PoSE and InvLeaky find needles, and copy like a window." in LESSON
    assert "which changes the attention in training only (the numbers are PoSE's)" in LESSON
    assert "At 512 bytes our seeds cannot tell the two apart." in DEEPER
    for metric in ("natural", "far copies", "needle"):
        _, low, high = paired_ahead("skip-positions-logn", "invleaky-moving-logn", metric)
        assert low < 0 < high, metric


def test_the_gaps_change_and_the_order_does_not():
    shown = ["ntk-aware", "llama3", "yarn", "window-8", "rope-window", "rerope-w32-logn-test", "hwfa-w16"]
    gaps = {}
    for metric in ("natural", "far copies"):
        found = [percent(row, metric) for row in shown]
        assert found == sorted(found)
        gaps[metric] = [100 * line(shown[place], metric)["ahead_mean"] for place in (5, 6)]
    assert gaps["natural"] == pytest.approx([0.5, 2.1], abs=0.1)
    assert [round(gap) for gap in gaps["far copies"]] == [7, 14]
    said = "half a point above the window (−0.1 to 1.0), which may be nothing; on far copies it is 7 points above."
    assert f"{said} HWFA has 14 over its own window, instead of 2. The four rows above them stay left" in LESSON
    for row in ("llama3", "yarn"):
        assert line(row, "natural")["ahead_mean"] < line(row, "far copies")["ahead_mean"] - 0.02
    assert all(100 * line(row, "far copies")["ahead_mean"] < 0 for row in shown[:4])
    assert line("rerope-w32-logn-test", "natural")["ahead_low"] < 0
    # The control of a row has the frequencies of its training, and so YaRN's has plain RoPE's.
    whole, cut = (BOARD.where(row=row, metric="far copies", length=512)["mean"][0] for row in ("yarn", "rope-window"))
    assert line("yarn", "far copies")["training"] == line("rope-window", "far copies")["training"] == "rope"
    assert whole - cut == pytest.approx(line("yarn", "far copies")["ahead_mean"], abs=1e-4)
    assert "with the frequencies of their training (for YaRN, plain RoPE's)" in LESSON
    assert "over the same weights run as trained with every layer limited to the last 64 bytes" in CHOOSER.caption
    fallen = [round(100 * line("ntk-aware", metric)["ahead_mean"]) for metric in ("natural", "far copies")]
    assert fallen == [-18, -28]
    said = (
        "NTK-aware even falls: to see far text, at angles that its middle hands never met in training ({doc}`03_radix`)"
    )
    assert said in LESSON
    turned = (rl.rope_frequencies(32), rl.ntk_frequencies(32, 8.0))
    new = [
        plain * 64 < 2 * math.pi and slow * 512 > 1.01 * plain * 64
        for plain, slow in zip(*(each.tolist() for each in turned), strict=True)
    ]
    assert not new[0]
    assert not new[-1]
    assert any(new[4:12])
    eight, yarn = (percent(row, "natural") for row in ("window-8", "yarn"))
    assert f"The window of eight is *better* than YaRN, {eight:.1f} to {yarn:.1f}." in LESSON
    drawn = rl.figures.scoreboard_gaps(STORED["rows"], {"yarn": "YaRN"})
    assert "YaRN -7.8 and -3.9" in drawn.alt
    # Plain ReRoPE is not drawn there, and does change places.
    cell = LESSON[LESSON.index("rl.figures.scoreboard_gaps") : LESSON.index("Look at the two lowest rows")]
    assert re.findall(r'"([\w-]+)": "', cell) == [row for row in shown if row != "rope-window"]
    bent = [100 * line("rerope-w32", metric)["ahead_mean"] for metric in ("natural", "far copies")]
    said = "Plain ReRoPE crosses its window: on average it is {:.1f} points behind it on all bytes, and {:.1f} ahead in"
    assert said.format(-bent[0], bent[1]) in DEEPER
    assert line("rerope-w32", "far copies")["ahead_low"] > 0


def test_how_far_two_columns_rank_alike():
    """All bytes and far copies do, over all rows; LongRoPE is an exception, and needles are others."""
    rows = [row.values for row in CHOOSER.rows if row.values[LONG] is not None]

    def alike(a: int, b: int, some: list[tuple[float | None, ...]]) -> float:
        return summary.rank_correlation([row[a] for row in some], [row[b] for row in some])

    assert f"over all rows they rank like all bytes, to {alike(LONG, FAR, rows):.2f}" in DEEPER
    assert "Needles do reorder the better rows." in DEEPER
    best = sorted(rows, key=lambda row: -row[LONG])[:20]
    assert alike(LONG, NEEDLES, best) < 0.6 < alike(LONG, FAR, best)
    natural, far = (percent("longrope", metric) - percent("window-8", metric) for metric in ("natural", "far copies"))
    said = "LongRoPE, on one seed {:.0f} points behind the window of eight on all bytes, is {:.0f} ahead in far copies"
    assert said.format(-natural, far) in DEEPER
    # And so against the window of 64 on the same seeds.
    own, eight = (
        [line(row, metric)["ahead_mean"] for metric in ("natural", "far copies")] for row in ("longrope", "window-8")
    )
    assert own[0] < eight[0]
    assert own[1] > eight[1]


def test_what_yarn_loses_is_lost_near():
    """Seed 0 and the 12 documents of the cell: a window on top of YaRN gives back one point of seven."""
    model, texts = live.load(), live.windows()[:12]
    yarn = rl.scheme("yarn", dim=32, factor=8.0, train_length=64)
    window = rl.scheme("window", dim=32, visible_window=64)
    plain, cut, whole = (
        live.percent(model, plan, texts, 512) for plan in (window, yarn.replace(visible_window=64), yarn)
    )
    assert [round(plain - each) for each in (whole, cut)] == [7, 6]
    assert "YaRN is seven points behind a window of 64. Put that window on top of it, so that nothing far can" in LESSON
    assert "it is still six behind. Most of what it loses, it loses near." in LESSON


def test_yarn_reads_far_and_does_not_gain():
    """Seed 0: what the far keys bring YaRN where reach helps, by document; and elsewhere they cost."""
    model, texts = live.load(), live.windows()[:12]
    yarn = rl.scheme("yarn", dim=32, factor=8.0, train_length=64)
    window = rl.scheme("window", dim=32, visible_window=64)
    whole, cut, plain = (
        live.percent(model, plan, texts, 512, "far copies") for plan in (yarn, yarn.replace(visible_window=64), window)
    )
    assert round(whole - cut) == 4
    assert plain > whole + 2
    copies = metrics.far_copies(texts, 64)[0]
    with torch.no_grad():
        hits = [model(texts[:, :-1], (plan,) * 4).argmax(-1) == texts[:, 1:]
                for plan in (yarn, yarn.replace(visible_window=64))]  # fmt: skip
    gained = hits[0].double() - hits[1].double()
    far, near = (interval((gained * of).sum(1).numpy()[None], of.sum(1).double().numpy()) for of in (copies, ~copies))
    assert 100 * far.mean == pytest.approx(whole - cut, abs=0.1)
    assert far.low > 0 > near.high
    # The table of the steps: of the damage near by, of the reach, of both; and of both on all seeds and documents.
    cell = """for name in ("RoPE, window of 64", "YaRN, window of 64", "YaRN"):
    share = live.percent(model, plans[name], texts, 512, "far copies")"""
    assert cell in LESSON
    with torch.no_grad():
        hits.append(model(texts[:, :-1], (window,) * 4).argmax(-1) == texts[:, 1:])
    steps = [interval(((hits[a].double() - hits[b].double()) * copies).sum(1).numpy()[None],
                      copies.sum(1).double().numpy()) for a, b in ((1, 2), (0, 1), (0, 2))]  # fmt: skip
    assert steps[0].mean + steps[1].mean == pytest.approx(steps[2].mean, abs=1e-6)
    board = line("yarn", "far copies")
    cells = [
        *([100 * end for end in step] for step in steps),
        [100 * board[f"ahead_{end}"] for end in ("mean", "low", "high")],
    ]
    heads = "YaRN's frequencies in", "the window removed", "both", "both, five seeds, 64 documents"
    for head, (mean, low, high), sign in zip(heads, cells, ("", "+", "", ""), strict=True):
        assert f"| {head} | {sign}{mean:.1f} | {low:.1f} to {high:.1f} |".replace("-", "−") in LESSON
    assert board["seeds"] == 5
    assert cells[1][1] > 0 > cells[3][2]
    assert "So YaRN does read far on this seed: the second step surely gains. But the last line is surely" in LESSON
    assert "negative: **what it reaches does not pay for what it damages.**" in LESSON


def test_why_windows_rise_with_the_length():
    """Seed 0 and 12 documents: past the beginnings a window of 8 has as much right in 64 bytes as in 512."""
    model, texts = live.load(), live.windows()[:12]
    plan = rl.scheme("window", dim=32, visible_window=8)
    whole = live.by_place(model, plan, texts, parts=512)
    later = [live.by_place(model, plan, texts[:, first : first + 65], parts=64) for first in range(64, 512, 64)]
    parts = (torch.stack(later), whole.unflatten(1, (8, 64))[:, 1:].transpose(0, 1))
    (short, long), (short_rest, long_rest) = (
        [part[..., of].mean() for part in parts] for of in (slice(8), slice(16, 64))
    )
    assert short < long - 4
    assert abs(short_rest - long_rest) < 0.2
    assert "since in a longer text fewer bytes stand at the beginning, with little before them. Behind" in DEEPER


def test_yarn_behind_a_window_falls():
    """Seed 0, all documents: in the first bytes it damages little, in the last ones of 64 much."""
    model, texts = live.load(), live.windows()[:, :65]
    window = rl.scheme("window", dim=32, visible_window=64)
    yarn = rl.scheme("yarn", dim=32, factor=8.0, train_length=64).replace(visible_window=64)
    plain, damaged = (live.by_place(model, plan, texts, parts=4).double().mean(dim=0) for plan in (window, yarn))
    lost = plain - damaged
    assert lost[0] < 2 < 4 < lost[-1]
    assert "Behind YaRN's window they fall a little, since YaRN damages those first bytes least.)" in DEEPER
    few = live.windows()[:12]
    assert live.percent(model, yarn, few, 512) < live.percent(model, yarn, few, 64)


def test_seeds_in_an_interval():
    """The formula, where chance does not make it smaller than one of its parts; and Student's factor for two seeds."""
    random = np.random.Generator(np.random.Philox(key=5))
    seeds, documents = 4, 9
    cells = 50 + 5 * random.normal(size=(seeds, 1)) + 9 * random.normal(size=documents)
    cells = cells + random.normal(size=cells.shape)
    of_seed, of_document, mean = cells.mean(axis=1), cells.mean(axis=0), cells.mean()
    m_s = documents * ((of_seed - mean) ** 2).sum() / (seeds - 1)
    m_d = seeds * ((of_document - mean) ** 2).sum() / (documents - 1)
    rest = cells - of_seed[:, None] - of_document + mean
    m_e = (rest**2).sum() / ((seeds - 1) * (documents - 1))
    variance = (m_s + m_d - m_e) / (seeds * documents)
    parts = m_s**2 / (seeds - 1) + m_d**2 / (documents - 1) + m_e**2 / ((seeds - 1) * (documents - 1))
    freedom = (m_s + m_d - m_e) ** 2 / parts
    found = interval(cells, np.ones(documents))
    low, high = (student(freedom, x) for x in (2.0, 13.0))
    assert low < 0.95 < high
    factor = (found.high - found.low) / 2 / math.sqrt(variance)
    assert student(freedom, factor) == pytest.approx(0.95, abs=1e-4)
    apart = interval(np.array([[1.0] * 9, [0.0] * 9]), np.ones(9))  # two seeds, all documents alike
    assert (apart.high - apart.low) / 2 / 0.5 == pytest.approx(12.706, abs=1e-3)
    under_the_root = r"\max(M_S + M_D - M_E,\, M_S,\, M_D)/(S\,D)"
    assert "Few seeds that disagree make $t$ larger, up to 12.7 for two: Self-Extend's" in DEEPER
    needles = line("self-extend-w32-logn-test", "needle")
    assert [round(100 * needles[end]) for end in ("mean", "low")] == [78, 22]
    assert "Self-Extend's 78 % of needles, from three, may be anything from 22 on." in DEEPER
    assert "count seeds as well as documents ({doc}`deeper/12_shootout`), but with one seed documents only." in LESSON
    assert "(A lead is *sure* if its 95 % interval lies above 0.)" in LESSON
    assert "Among 117 rows about three leads may look sure by chance (2.5 in a hundred)." in LESSON
    assert len(ROWS) == 117
    assert round(0.025 * len(ROWS)) == 3
    said = (
        "Each row is a mean of up to five seeds (click a name to see how many), over 64 documents, so close ones cannot"
    )
    assert said in LESSON
    assert len(live.windows()) == 64
    assert {row.more["measured on"].split()[0] for row in ROWS.values()} == {"1", "2", "3", "5"}
    assert needles["seeds"] == 3
    assert needles["high"] > 1
    assert f"with ${under_the_root}$ under the root" in DEEPER
    crossed = interval(np.array([[2.0, 0.0], [-2.0, 0.0]]), np.ones(2))  # M_S = M_E = 4, M_D = 0
    assert (crossed.high - crossed.low) / 2 == pytest.approx(12.706 * math.sqrt(4 / (2 * 2)), abs=1e-3)
    needles = ROWS["Self-Extend, log n†"].more
    assert needles["95 % intervals"].endswith("needles at 512: 22.3 to 100.0")
    assert needles["measured on"].startswith("3 seeds")


def student(freedom: float, t: float) -> float:
    """The chance that a variable of Student's distribution is within ±t, by the trapezoid rule."""
    x = np.linspace(-t, t, 200_001)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    norm = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    return float(np.trapezoid(density, x) * norm)


def test_a_gain_over_a_ruined_control_is_no_reach():
    """The row that is first by the column that counts has less than half of what a plain window has."""
    first = max((row for row in CHOOSER.rows if row.values[OVER] is not None), key=lambda row: row.values[OVER])
    assert first.name == "Sinusoidal, squeezed"
    said = "{:.0f} points over its window. It gets {:.0f} % of the far copies, where a plain window has {:.0f}"
    numbers = first.values[OVER], first.values[FAR], percent("rope-window", "far copies")
    assert said.format(*numbers) in LESSON
    assert first.values[NEEDLES] == 0
    ruined = percent("sinusoidal-window", "far copies")
    assert "and a late number is new to the weights, however few keys a query sees." in LESSON
    assert f"That of the squeezed sinusoidal table, which is ahead, too, is ruined: it has {ruined:.0f} %." in DEEPER
    fire = line("fire", "far copies")
    assert fire["ahead_low"] > 0
    assert fire["mean"] < line("rope-window", "far copies")["mean"]
    behind = percent("rope-window", "far copies") - percent("fire-window", "far copies")
    assert f"FIRE's control is {behind:.0f} points behind a plain window." in DEEPER


def test_what_cannot_be_told_from_rerope():
    """Needles of Self-Extend: three seeds that say little. A window is as good where nothing far is needed."""
    needles = line("self-extend-w32-logn-test", "needle")
    assert (needles["seeds"], round(100 * needles["mean"])) == (3, 78)
    assert needles["low"] < line("rerope-w32-logn-test", "needle")["mean"] < 1 < needles["high"]
    assert "a window of 16, Leaky ReRoPE and Self-Extend have three seeds. These are too few to tell" in DEEPER
    relatives = ("rerope-w16-logn-test", "leaky-rerope-w32-logn-test", "self-extend-w32-logn-test")
    assert {line(row, "needle")["seeds"] for row in relatives} == {3}
    rerope = line("rerope-w32-logn-test", "far copies")
    for row in ("rerope-w16-logn-test", "leaky-rerope-w32-logn-test", "self-extend-w32-logn-test"):
        assert rerope["low"] < line(row, "far copies")["mean"] < rerope["high"]
    assert "level with it on everything else" not in LESSON
    far = [paired_ahead(row, "rerope-w32-logn-test", "far copies") for row in relatives]
    rest = [paired_ahead(row, "rerope-w32-logn-test", "natural") for row in relatives]
    assert far[0][1] < 0 < far[0][2]
    assert rest[0][1] < 0 < rest[0][2]
    assert [round(each[0], 1) for each in rest[1:]] == [0.5, 0.5]
    assert min(each[1] for each in rest[1:]) > 0
    (leaky, leaky_ends), (extend, extend_ends) = ((-mean, (-high, -low)) for mean, low, high in far[1:])
    assert leaky == extend
    said = "{:.1f} points behind it on these seeds ({:.1f} to {:.1f} and {:.1f} to {:.1f}, in pairs), and on all bytes"
    assert said.format(extend, *extend_ends, *leaky_ends) in DEEPER
    said = "On the same three it is {:.1f} points behind in far copies and {:.1f} ahead on all bytes,"
    assert f"{said.format(extend, rest[2][0])} and needles cannot tell them apart." in LESSON
    said = "has it ahead in far copies, {:.1f} to {:.1f}, but compares its three seeds with ReRoPE's five."
    assert said.format(*(percent(row, "far copies") for row in (relatives[2], "rerope-w32-logn-test"))) in LESSON
    assert set(right(relatives[2], "far copies")) < set(right("rerope-w32-logn-test", "far copies")) == set(range(5))
    _, low, high = paired_ahead(relatives[2], "rerope-w32-logn-test", "needle")
    assert low < 0 < high
    assert "The window of 16 cannot be told from 32 there." in DEEPER
    assert abs(percent("rope-window", "natural") - percent("rerope-w32-logn-test", "natural")) < 1


def test_the_opened_row_has_the_interval_of_the_gain():
    found = line("rerope-w32-logn-test", "far copies")
    said = ROWS["ReRoPE, log n†"].more["ahead of its window"]
    assert "far copies: {:.1f} to {:.1f};".format(*(100 * found[f"ahead_{end}"] for end in ("low", "high"))) in said
    assert said.startswith("all bytes: −0.1 to 1.0; ")
    assert ROWS["A window of 64 bytes"].more["ahead of its window"] == "–"
    assert "far copies: 4.1 to 14.4" in ROWS["HWFA2"].more["ahead of its window"]


@pytest.mark.parametrize("name", [name for name in RUNGS["small"].rows if not name.endswith("-window")])
def test_the_code_of_a_row_is_what_was_measured(name: str):
    plan = RUNGS["small"].rows[name]
    method, code = plan.method, row_code(name, plan)
    first, *others = re.findall("`([^`]+)`", code)
    known = {"rl": rl, "Scheme": rl.Scheme, "FrequencySpec": rl.FrequencySpec, "LogN": rl.LogN, "inf": math.inf}
    made = eval(first, known)
    if isinstance(made, rl.Method):
        assert (made.train, made.test, made.schedule) == (method.train, method.test, method.schedule)
        assert (made.train_positions, made.attend) == (method.train_positions, method.attend)
        assert (made.test_positions == method.test_positions) is ("at test 0, 1, 2, …" not in code)
        assert not plan.outside
        return
    layers = [made, *(eval(text, known) for text in others if text.startswith("Scheme"))]
    assert list(dict.fromkeys(method.test)) == layers
    assert method.attend is None is method.schedule
    trained = [eval(text, known) for text in others if text.startswith("rl.METHODS")]
    assert [made.train_positions for made in trained] == [method.train_positions] * (method.train_positions is not None)
    assert all(f"`{option}={value!r}`" in code for option, value in plan.outside.items())
    assert (method.test_positions is not None) is ("positions `" in code)


def test_the_codes_of_two_methods_differ():
    """Self-Extend at test is no plain RoPE, and PoSE has jumps."""
    codes = {row.name: row.more["as code"] for row in CHOOSER.rows}
    assert codes["Self-Extend, log n†"] != codes["Plain RoPE, log n†"]
    assert codes["PoSE (one jump), log n"].startswith('`rl.METHODS["skip-positions"]')


def test_two_layers_do_as_well_as_four():
    """Seed 0 and the 12 documents of the figure; what the lesson's code cells make."""
    model, texts = live.load(), live.windows()[:12]
    near = rl.scheme("window", dim=32, visible_window=64)
    far = rl.scheme("rerope", dim=32, window=32, scale=rl.LogN(64, clip=True))
    for metric in ("far copies", "needle"):
        pair, four = (live.percent(model, plan, texts, 512, metric) for plan in ([near, far, far, near], far))
        assert pair > four - 1, metric
    pair, four = (live.percent(model, plan, texts, 512) for plan in ([near, far, far, near], far))
    assert round(pair - four) == 1
    alone = live.percent(model, [near, far, near, near], texts, 512, "needle")
    assert alone == 100
    second, third, none = (
        live.percent(model, plan, texts, 512, "far copies")
        for plan in ([near, far, near, near], [near, near, far, near], near)
    )
    assert abs(second - none) < 0.5
    assert third > none + 8
    assert "and adds no far copies to the window's" in DEEPER
    assert "In this model the second layer finds needles, and the third copies" in LESSON
    assert "live.windows()[:12]" in DEEPER
    assert "live.windows()[:12]" in LESSON


def test_numbers_of_the_metrics():
    assert round(100 * STORED["tests"]["small"]["far_copies"]) == 12
    assert f"even a window of 64 has {percent('rope-window', 'far copies'):.0f} %" in LESSON
    found = [percent(row, "needle", 64) for row in ("rope", "yarn")]
    assert f"Half of the training texts had one, and at home our plain RoPE finds {found[0]:.0f} %." in LESSON
    said = "YaRN finds {:.0f} % of the needles at 64 already, which its tax of {:.0f} points does not show:"
    assert said.format(found[1], percent("yarn", "tax", 64)) in DEEPER
    assert [STORED["recipes"][rung]["needles"] for rung in ("small", "second")] == [0.5, 0.5]
    assert STORED["recipes"]["small"]["needles"] == 0.5  # half of the windows
    behind = [row for row in CHOOSER.rows if row.tags["Changed"] == {"frequencies"}]
    assert all(row.values[LONG] < percent("window-8", "natural") for row in behind)
    changed = [row for row in CHOOSER.rows if "model" in row.tags["I have"] and "frequencies" in row.tags["Changed"]]
    assert max(row.values[LONG] for row in changed) < percent("window-8", "natural") - 2
    assert percent("hwfa-w16", "natural") > percent("window-8", "natural")  # trained with other frequencies
    assert "on all bytes every untuned change of frequencies is behind a window of eight bytes." in DEEPER


def test_what_log_n_does():
    bare, scaled = (percent(row, "needle") for row in ("rerope-w32", "rerope-w32-logn-test"))
    assert f"At 512 bytes ReRoPE finds {bare:.0f} % of the needles, and with log n† {scaled:.0f}." in LESSON
    places = [percent("rerope-w32", f"needle {depth}") for depth in ("0", "0.5", "1")]
    of_seeds = {row: [right(row, f"needle {depth}") for depth in ("0", "0.5", "1")]
                for row in ("rerope-w32", "rope-window")}  # fmt: skip
    begin, middle, end = of_seeds["rerope-w32"]
    assert set(begin) == set(range(5))
    assert all(begin[seed] > middle[seed] >= end[seed] for seed in begin)
    assert max(begin.values()) > 90 > 10 > min(begin.values())
    assert [max(of[seed] for of in (begin, middle, end)) < 10 for seed in range(5)] == [False, True, False, True, False]
    assert "On each seed the beginning keeps most; but two of the five find hardly any anywhere" in LESSON
    near = sum(of_seeds["rope-window"][2].values()) / 5
    said = "{:.0f} % of those at the beginning of the text, {:.0f} in the middle, and {:.0f} right before the question"
    assert f"{said.format(*places)}, just where a window of 64 finds {near:.0f}." in LESSON
    said = "{:.0f} % of those at the beginning, {:.0f} in the middle and {:.0f} at the end"
    assert said.format(*places) in DEEPER
    assert f"YaRN finds {percent('yarn', 'needle', 64):.0f} % of the needles at 64 already" in DEEPER
    assert percent("yarn-logn-test", "needle") < 10
    at_home = {percent(row, "needle", 64) for row in ("rerope-w32", "rerope-w32-logn-test")}
    assert len(at_home) == 1
    assert round(at_home.pop()) == 99
    said = "against its length. Means of five seeds, with 95 % intervals."
    assert said in LESSON
    shown = {each["seeds"] for row in ("rope-window", "rerope-w32", "rerope-w32-logn-test")
             for each in BOARD.where(row=row, metric="needle")}  # fmt: skip
    assert shown == {5}
    drawn = LESSON[LESSON.index("rl.figures.scoreboard_lengths(") : LESSON.index("What goes wrong without it?")]
    three = re.findall(r'"([\w-]+)": "', drawn)
    assert three == ["rope-window", "rerope-w32", "rerope-w32-logn-test"]
    assert "it keeps the third that stands within its reach." in drawn
    assert all(percent("rope-window", "needle", length) == pytest.approx(33, abs=1.1) for length in (128, 256, 512))
    assert 0.5 < percent("rerope-w32-logn-test", "natural") - percent("rerope-w32", "natural") < 1.5
    second = read_table()
    home = [pick(second, name, "passkey", 1, "found").value for name in ("hwfa2-w8-f1", "hwfa2-w8-f1-logn")]
    at_home = [pick(second, name, "passkey", 1, "found").value for name in row_names(second)]
    assert sum(value < 0.1 for value in at_home) / len(at_home) == pytest.approx(1 / 3, abs=0.05)
    far = [pick(second, name, "passkey", 8, "found").value for name in ("hwfa2-w8-f1", "hwfa2-w8-f1-logn")]
    assert far[0] < 0.02 < 0.3 < home[0]
    assert far[1] > home[1] / 2
    assert "That is no rule. On the copy of the articles' model it does not" in DEEPER
    # Without log n no row whose layers all see everything keeps its look-ups; with it all do better.
    for row in ("rerope-w16", "rerope-w32", "leaky-rerope-w32", "self-extend-w32"):
        assert (
            percent(row, "needle") < 50 < min(percent(f"{row}{log_n}", "needle") for log_n in ("-logn-test", "-logn"))
        )


def test_the_layer_that_reads_needs_log_n():
    """Seed 0 and two documents of the table: the first layer decides, by log n or by a window."""
    model, texts = live.load(), live.windows()[:2]
    near = rl.scheme("window", dim=32, visible_window=64)
    far = rl.scheme("rerope", dim=32, window=32, scale=rl.LogN(64, clip=True))
    bare = far.replace(scale=None)
    assert bare == rl.scheme("rerope", dim=32, window=32)
    cut = bare.replace(visible_window=64)
    said = "with log n† or a window in the first layer alone, this seed finds 47 or all of 48 needles ({doc}"
    assert said in LESSON
    # Measured on lesson 8's page, whose tests take the head away.
    there = (ROOT / "book" / "08_rerope.md").read_text("utf8")
    assert "Silence the third head on the five bytes that ask, `\"` to `1`, and it reads 94 %; on the needle's" in there
    assert "on the needle's five digits instead, and it reads none." in there
    assert "and 94 % of the needles at the beginning are still found; take it away from the needle's digits" in LESSON
    for plan in ([far, bare, bare, bare], [cut, bare, bare, bare]):
        assert live.percent(model, plan, texts, 512, "needle") == 100
    for plan in ([bare] * 4, [bare, far, far, far], [bare, bare, bare, near]):
        begin, _, end = live.digits(model, plan, texts, 512).all(dim=2).double().mean(dim=1).tolist()
        assert begin == 1
        assert end == 0


def test_tuned_models():
    """Plain RoPE, tuned the same way, is the control of every method that is published with a tuning."""
    curves = {metric: summary.tuned_curves(WHOLE, metric, 512) for metric in ("natural", "far copies", "needle")}
    assert set(curves["natural"]) == {"rope", "pi", "ntk-aware", "yarn", "longrope", "rerope-w32"}
    natural = {row: {share: 100 * found.mean for share, found in curve.items()}
               for row, curve in curves["natural"].items()}  # fmt: skip
    assert round(natural["yarn"][0] - natural["rope"][0]) == 19
    assert 0 < natural["yarn"][10] - natural["rope"][10] < 1
    assert max(natural[row][1] for row in natural) - min(natural[row][1] for row in natural) > 20
    gained = [natural["rope"][share] - natural["rope"][0] for share in (1, 10)]
    best = max(curve[10] for curve in natural.values()) - natural["rope"][0]
    assert gained[1] > 0.95 * best > gained[0]
    far = curves["far copies"]
    over = paired_ahead("yarn", "rope-window", "far copies", rung="small-tuned-0.1", other_rung="small")
    shares = [100 * far[row][0.1].mean for row in ("rope", "yarn")]
    said = "After two steps it has {:.0f} % of the far copies, where YaRN has {:.0f} and is surely above the window."
    assert said.format(*shares) in LESSON
    assert over[1] > 0
    begins = paired_ahead("rerope-w32", "yarn", "far copies", rung="small", other_rung="small-tuned-0.1")
    assert begins[1] < 0 < begins[2]
    assert "Where it may change, untuned ReRoPE is already about as high as YaRN after two steps." in LESSON
    # The cell subtracts means, of three seeds and of five: that is what the pairs say.
    window = WHOLE.where(rung="small", row="rope-window", metric="far copies", length=512)["mean"][0]
    assert round(100 * (far["yarn"][0.1].mean - window), 1) == over[0]
    assert "after two steps, in pairs on three seeds, {:.1f} to {:.1f}.".format(*over[1:]) in DEEPER
    names = [row for row in far if row != "rope"]
    paired = {(row, metric): paired_ahead(row, "rope", metric, rung="small-tuned-10")
              for row in names for metric in ("far copies", "needle")}  # fmt: skip
    best = max(paired, key=lambda each: paired[each][0] if each[1] == "far copies" else -100)
    assert best == ("rerope-w32", "far copies")
    assert f"the best, ReRoPE, is {paired[best][0]:.1f} points ahead of it (" in LESSON
    assert "ahead of it ({:.1f} to {:.1f}). And the window,".format(*paired[best][1:]) in LESSON
    assert "points ahead of plain RoPE there ({:.1f} to {:.1f}, in pairs).".format(*paired[best][1:]) in DEEPER
    assert all(paired[row, "needle"][1] < 0 for row in names)
    leads = [paired_ahead("rerope-w32", row, "far copies", rung=f"small-tuned-{share}")
             for row in ("rope", "yarn") for share in ("0.1", "1", "10")]  # fmt: skip
    assert min(low for _, low, _ in leads) > 0
    told = "On the figure's three seeds, document by document, ReRoPE is surely ahead of YaRN after two, twenty and two"
    assert told in DEEPER
    assert f"in the end by {leads[-1][0]:.1f} points, though the bars overlap." in DEEPER
    assert all(far["yarn"][share].high > far["rerope-w32"][share].low for share in (1, 10))
    assert paired["pi", "needle"][0] < -40
    pi = summary.tuned_curves(WHOLE, "needle", 512)["pi"][10]
    assert pi.low < 0.01 < 0.97 < pi.high
    assert f"PI's {100 * pi.mean:.0f} % may be anything." in DEEPER
    three = """NTK-aware by {:.0f} points ({:.0f} to {:.0f}), ReRoPE by {:.0f} ({:.0f} to {:.0f}), YaRN {:.0f} ({:.0f}
        to {:.0f})."""
    of_three = [end for row in ("ntk-aware", "rerope-w32", "yarn") for end in paired[row, "needle"]]
    assert (
        "In pairs none of the five is surely ahead of plain RoPE: " + " ".join(three.format(*of_three).split())
        in DEEPER
    )
    # Chen et al., arXiv 2306.15595, section 1 and table 4; Peng et al., arXiv 2309.00071, sections 1 and 4.1.
    assert "For LLaMA, 10,000 steps of plain RoPE" in LESSON
    assert "moved the usable length from 2,048 tokens to 2,560 only {cite}`chen2023interpolation`." in LESSON
    assert "YaRN's authors took less than a thousandth of theirs." in LESSON
    assert "YaRN's authors tuned for 400 steps." in DEEPER
    assert 100 * far["rope"][1].mean < percent("rope-window", "far copies") < 100 * far["rope"][1].high
    assert far["pi"][1].high < far["rope"][1].low
    worse = 100 * (far["rope"][1].mean - far["pi"][1].mean)
    assert f"PI is {worse:.0f} points behind plain RoPE in far copies" in DEEPER
    needles = {row: curve[10] for row, curve in curves["needle"].items()}
    ends = [
        round(100 * end)
        for end in (needles["ntk-aware"].mean, needles["ntk-aware"].low, min(needles["ntk-aware"].high, 1))
    ]
    assert "only NTK-aware's interval is narrow: {} % ({} to {})".format(*ends) in DEEPER
    lows = {row: found.low for row, found in needles.items()}
    assert min(lows.pop("rope"), lows.pop("ntk-aware")) > 0.6 > 0.5 > max(lows.values())
    said = "After two hundred, only the needles of plain RoPE and NTK-aware have intervals that stay above 60 %."
    assert said in DEEPER
    assert {line["seeds"] for line in WHOLE.where(rung="small-tuned-10")} == {3}
    assert [STORED["recipes"][f"small-tuned-{share}"]["steps"] for share in ("0.1", "1", "10")] == [2, 20, 200]
    assert all(curve[0.1] > curve[0] for curve in natural.values())  # every line moves up
    there = {metric: WHOLE.where(rung="small-at-512", row="rope", metric=metric, length=512) for metric in curves}
    assert there["natural"]["seeds"] == [1]
    assert "Dashed, plain RoPE trained at 512 from the start, one seed." in DEEPER
    assert "Dotted, untuned, ReRoPE with log n† above and the window below. What is not tuned has five seeds," in DEEPER
    assert "Means of three seeds, of five at 0 %, with 95 % intervals. Dotted, the window of 64, untuned." in LESSON
    drawn = LESSON[LESSON.index("rl.figures.scoreboard_tuned(") : LESSON.index("The thick one: plain RoPE")]
    assert re.findall(r'"([\w-]+)": "', drawn) == ["rope", "pi", "yarn", "rerope-w32", "rope-window"]
    assert max(curve[10].mean for curve in far.values()) == far["rerope-w32"][10].mean
    lead = 100 * (max(far[row][10].mean for row in ("pi", "yarn")) - far["rope"][10].mean)
    assert lead < 1
    assert all(far["pi"][share].mean < far["rope"][share].mean for share in (0, 0.1, 1))
    untuned = (*far, "rope-window", "rerope-w32-logn-test")
    assert {row: line(row, "needle")["seeds"] for row in untuned} == dict.fromkeys(untuned, 5) | {"longrope": 1}
    assert all(percent("rerope-w32-logn-test", metric) > percent("rope-window", metric) for metric in curves)
    short, long = (STORED["recipes"][rung] for rung in ("small", "small-at-512"))
    texts = [recipe["steps"] * recipe["batch"] for recipe in (short, long)]
    assert texts[0] * short["train_length"] == texts[1] * long["train_length"]
    assert texts[0] == 8 * texts[1]  # each with the same chance of a needle
    assert short["needles"] == long["needles"]
    assert "as many bytes in longer texts hold an eighth of the needles" in DEEPER
    assert there["needle"]["mean"] == [0]
    assert WHOLE.where(rung="small-at-512", row="rope-logn", metric="needle", length=512)["mean"] == [0]
    for curve in curves.values():
        assert curve["rerope-w32"][1].mean == max(each[1].mean for each in curve.values())
    assert natural["rerope-w32"][1] == max(curve[1] for curve in natural.values())
    behind = 100 * (max(curve[10].mean for curve in far.values()) - far["rope"][10].mean)
    assert f"of the changes tried the best, ReRoPE, is {behind:.0f} points ahead of plain RoPE there" in DEEPER
    assert len(far) == 6
    assert "So let them train on at 512, and ReRoPE too." in LESSON
    assert "Here are all six rows that were tuned" in DEEPER
    third = percent("rope-window", "needle", 512) / 100 + 0.04
    assert {row for row, each in needles.items() if each.low > third} == {"rope", "ntk-aware"}
    fewer = {row: 100 * (needles["rope"].mean - each.mean) for row, each in needles.items()}
    assert fewer.pop("pi") > 40 > 5 > max(fewer.values())
    assert "After twenty, still no method is 2 points ahead of ReRoPE with log n†, untuned." in DEEPER
    for metric, curve_of in curves.items():
        best = max(curve[1].mean for curve in curve_of.values())
        most = {"natural": 2, "far copies": 1.5, "needle": 0}[metric]
        assert 100 * best - percent("rerope-w32-logn-test", metric) < most, metric
    assert "**ReRoPE with log n†** was not tuned, and not tried on the larger model." in LESSON
    assert "rerope-w128-logn-test" not in set(WHOLE.where(rung="second")["row"])
    assert not [
        row for share in ("1", "10") for row in WHOLE.where(rung=f"small-tuned-{share}")["row"] if "logn" in row
    ]
    bound = {metric: each["mean"][0] for metric, each in there.items()}
    assert all(curve[10].mean > bound["needle"] for curve in curves["needle"].values())
    assert "after 10 % every tuned row is ahead of it in far copies, and it finds no needle" in DEEPER
    (hybrid,) = WHOLE.where(rung="small-at-512", row="hwfa2-w16-logn", metric="needle", length=512)["mean"]
    assert f"HWFA2, trained likewise, finds {100 * hybrid:.0f} %." in DEEPER
    assert abs(natural["longrope"][10] - natural["yarn"][10]) < 0.5
    for metric in ("natural", "far copies"):
        assert there[metric]["mean"][0] < min(curve[10].mean for curve in curves[metric].values())


def test_the_orders():
    pairs = {metric: summary.beside_published(BOARD, metric) for metric in ("natural", "repeated")}
    assert {len(both) for both in pairs.values()} == {24}
    assert "Of the 24 rows that we share the same twelve are the better ones" in LESSON
    assert "about 100 million parameters, on Chinese text" in LESSON
    assert "and about 100 million parameters." in (ROOT / "book" / "articles_model.md").read_text("utf8")
    told = {"natural": (0.86, 0.35), "repeated": (0.78, -0.31)}
    assert "the correlation on natural text is 0.86, where 1 would be the same order, and the same twelve are" in DEEPER
    assert "Among these twelve it is 0.35, and the articles' order hardly holds (chance alone reaches 0.6)" in DEEPER
    for metric, both in pairs.items():
        found = summary.agreement(both)
        assert (round(found.all, 2), round(found.better_half, 2)) == told[metric]
    there = sorted(pairs["natural"], key=lambda pair: -pair.there)
    here = sorted(pairs["natural"], key=lambda pair: -pair.here)
    assert here[0].row == "hwfa-w16" == there[8].row  # our first and their ninth
    assert min(published_rows(), key=lambda row: row.trained).name == "HWFA"  # at home
    first, hybrid = there[0], there[8]
    assert row_label(first.row) == "ReRoPE, log n"
    said = (
        "Their first, ReRoPE with log n, leads it there by {:.1f} points on natural text, and is {:.1f} behind it here"
    )
    assert said.format(first.there - hybrid.there, hybrid.here - first.here) in DEEPER
    places = [[pair.row for pair in order].index("rerope-w32-logn-test") for order in (there, here)]
    assert places == [4, 3]
    assert "ReRoPE with log n† is fifth there and fourth here." in DEEPER
    assert "HWFA is our first and their ninth, and at the training length their last." in DEEPER
    better = there[: (len(there) + 1) // 2]
    assert len(better) == 12
    random = np.random.Generator(np.random.Philox(key=1))
    chance = [summary.rank_correlation([pair.there for pair in better], list(random.permutation(len(better))))
              for _ in range(2000)]  # fmt: skip
    assert np.quantile(np.abs(chance), 0.95) == pytest.approx(0.6, abs=0.03)
    for metric in ("natural", "repeated"):
        pairs = summary.beside_published(WHOLE, metric)
        best = [{p.row for p in sorted(pairs, key=key)[: len(pairs) // 2]}
                for key in (lambda p: -p.there, lambda p: -p.here)]  # fmt: skip
        assert best[0] == best[1]
    assert (
        "the same twelve are the better ones, by all tokens there and by all bytes here, so **both tables agree"
        in LESSON
    )
    assert "Among the twelve better ones the order hardly holds ({numref}`fig-shootout-order`)." in LESSON
    value, _, high = (100 * share for share in difference("alibi", "window"))
    assert high < 0
    assert round(-value) == 13
    assert line("alibi", "far copies")["ahead_low"] > 0


def test_the_untuned_window_is_drawn():
    shown = rl.figures.scoreboard_tuned(WHOLE, {"rope": "RoPE"}, control={"rope-window": "window, untuned"})
    assert f"far copies, window, untuned: {percent('rope-window', 'far copies'):.1f}" in shown.alt
    assert '"rerope-w32-logn-test": "ReRoPE, log n†, untuned"' in DEEPER
    assert 'control={"rope-window": "window, untuned"})' in LESSON
    assert "on the one seed tried it gains about a point ({doc}" in LESSON


def test_the_columns_are_drawn():
    shown = rl.figures.shootout_columns()
    assert shown.alt.count("far copies") == shown.alt.count('key = "48213"') == 1
    near = [line("rope-window", f"needle {depth}")["mean"] for depth in ("0", "0.5", "1")]
    assert max(near[:2]) < 0.01 < 0.9 < near[2]
    assert STORED["tests"]["small"]["depths"] == [0, 0.5, 1]
    assert "A needle counts if all five digits are right. A third of the needles lie in the window," in LESSON


def test_layers_are_drawn():
    shown = rl.figures.shootout_layers({"no layer": [64.1, 71.3, 33.3], "layer 2": [64.1, 71.4, 95.8]})
    assert "layer 2: 64, 71 and 96" in shown.alt
    with pytest.raises(ValueError, match="found must have 3 values for each choice"):
        rl.figures.shootout_layers({"x": [1.0]})


def test_yarn_against_the_window():
    """What the cell of the deeper page shows, and that what it subtracts is what the pairs say."""
    code = DEEPER[DEEPER.index('far = {"row": "yarn"') :]
    names = {"board": WHOLE, "results": results, "rl": rl}
    exec(code[: code.index("rl.figures.table")], names)
    shown = eval(code[code.index("rl.figures.table") : code.index("\n```")], names)
    cells = list(shown.rows.values())
    assert cells[0] == ("−3.9", "−7.3", "−0.5")
    assert cells[1] == (
        f"{paired_ahead('yarn', 'rope-window', 'far copies', rung='small-tuned-0.1', other_rung='small')[0]}",
        "–",
        "–",
    )
    assert [row[0] for row in cells[2:]] == ["8.5", "12.6"]
    assert all(float(row[1]) > 0 for row in cells[2:])


def test_hwfa2_of_the_copy_needs_log_n():
    """One full layer: as many needles at home with log n as without it; here none is needed."""
    second = read_table()
    home, far = ([pick(second, name, "passkey", times, "found").value for name in ("hwfa2-w8-f1", "hwfa2-w8-f1-logn")]
                 for times in (1, 8))  # fmt: skip
    assert abs(home[0] - home[1]) < 0.05
    assert far[0] < 0.02 < 0.25 < far[1]
    assert percent("hwfa2-w16", "needle") > 95
    said = "with the scale and without it about as many keys are found at home, and only with it are they found at 512"
    assert said in DEEPER


def test_what_use_it_prints():
    """Its cell, and the numbers that it shows: of a seed that is better than the mean."""
    cell = LESSON[LESSON.index('plan = rl.scheme("rerope"') : LESSON.index("(`clip=True` is the dagger")]
    plans = {"RoPE, window of 64": rl.scheme("window", dim=32, visible_window=64)}
    names = {"rl": rl, "live": live, "model": live.load(), "texts": live.windows()[:12], "plans": plans}
    said: list[str] = []
    exec(cell[: cell.index("\n```")], names | {"print": said.append})
    assert said == [
        f"{name} % of the needles"
        for name in ("plain RoPE: 0", "window of 64: 33", "ReRoPE: 44", "ReRoPE, log n†: 100")
    ]
    assert percent("rerope-w32", "needle") < 44
    assert percent("rerope-w32-logn-test", "needle") < 100


def test_the_seeds_of_the_larger_model_are_drawn():
    pairs = {"far copies": summary.on_two_rungs(WHOLE, "far copies")}
    options = {"seeds": STORED["each_seed"], "control": "rope-window", "there": "there", "here": "here"}
    shown = rl.figures.scoreboard_rungs(pairs, {"yarn": "YaRN", "hwfa-w64": "HWFA"}, **options)
    for row, name in (("yarn", "YaRN"), ("hwfa-w64", "HWFA")):
        ends = [
            100
            * (
                of_seed(seed, row, "far copies", 2048)["mean"]
                - of_seed(seed, "rope-window", "far copies", 2048)["mean"]
            )
            for seed in (0, 1)
        ]
        assert "{}: {:.1f}, {:.1f} and".format(name, *ends) in shown.alt
    assert shown.alt.count("YaRN: 8.5, 12.6 and -3.9") == 1
    with pytest.raises(ValueError, match="names must be of rows on both rungs"):
        rl.figures.scoreboard_rungs(pairs, {"pose": "PoSE"}, **options)
    assert "Filled, each of the two seeds; hollow, a mean." in LESSON
    left = []
    rungs = DEEPER[DEEPER.index("rungs = {metric") :]
    drawn = re.findall(r'"([\w-]+)": "', rungs[: rungs.index("}, seeds=")])
    for metric in ("natural", "far copies"):
        here = {pair.row: pair.here for pair in summary.on_two_rungs(WHOLE, metric)}
        for row in drawn:
            for seed in (0, 1):
                own, cut = (of_seed(seed, each, metric, 2048)["mean"] for each in (row, "rope-window"))
                if own - cut < here[row] - here["rope-window"]:
                    left.append((row, metric, seed))
    assert left == [("ntk-mixed", "natural", 1)]
    assert "but for one seed of NTK-mixed on all bytes: on average every row shown gains on the window." in DEEPER


def test_labels_of_the_lesson_have_tests():
    for label in re.findall(r":label: ((?:eq|thm|lem|cor|def)-[\w-]+)", LESSON):
        assert f"test_{label.replace('-', '_')}" in globals()


# --- in a browser --------------------------------------------------------------------------------------------------


@pytest.fixture
def table(browser: Browser, server: str) -> Iterator[Locator]:
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    tab.set_default_timeout(60_000)
    tab.goto(f"{server}/book/12_shootout.html", wait_until="domcontentloaded")
    yield tab.locator("#rl-scoreboard-chooser")
    tab.close()


def shown_names(table: Locator) -> list[str]:
    heads = "(t) => [...t.querySelectorAll('tr[data-row]:not([hidden]) th')].map((h) => h.innerText)"
    names: list[str] = table.evaluate(heads)
    return names


@pytest.mark.book
@pytest.mark.browser
def test_the_table_is_sorted_filtered_and_opened(table: Locator) -> None:
    assert shown_names(table) == [row.name for row in CHOOSER.rows if row.short]
    table.get_by_role("button", name="needles, 512").click()
    needles = [ROWS[name].values[NEEDLES] for name in shown_names(table)]
    assert needles == sorted(needles, reverse=True)
    table.get_by_role("button", name="needles, 512").click()
    needles = [ROWS[name].values[NEEDLES] for name in shown_names(table)]
    assert needles == sorted(needles)
    table.get_by_role("button", name=f"all {len(ROWS)}").click()
    table.get_by_role("button", name="a trained model").click()
    table.get_by_role("button", name="frequencies").click()
    free = [row for row in CHOOSER.rows if "model" in row.tags["I have"]]
    wanted = {row.name for row in free if "frequencies" in row.tags["Changed"]}
    assert set(shown_names(table)) == wanted
    assert table.locator(".rl-count").inner_text() == f"{len(wanted)} of {len(ROWS)} rows"
    yarn = table.get_by_role("button", name="YaRN", exact=True)
    assert not table.locator("tr.rl-more:visible").count()
    yarn.focus()
    yarn.press("Enter")
    opened = table.locator("tr.rl-more:visible")
    assert "FrequencySpec('yarn'" in opened.inner_text()
    assert yarn.get_attribute("aria-expanded") == "true"


@pytest.mark.book
@pytest.mark.browser
def test_without_a_script_every_row_is_there(browser: Browser, server: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{server}/book/12_shootout.html", wait_until="domcontentloaded")
    assert tab.locator("#rl-scoreboard-chooser tr[data-row]:visible").count() == len(ROWS)
    context.close()


def test_the_larger_model_keeps_the_order_and_turns_one_verdict() -> None:
    for metric in ("natural", "far copies", "repeated"):
        pairs = summary.on_two_rungs(WHOLE, metric)
        assert len(pairs) >= 15
        assert summary.agreement(pairs).all > 0.85
        best = max(pairs, key=lambda pair: pair.there), max(pairs, key=lambda pair: pair.here)
        assert [pair.row for pair in best] == ["hwfa-w64"] * 2
    agreed = [summary.agreement(summary.on_two_rungs(WHOLE, metric)) for metric in ("natural", "far copies")]
    assert [each.rows for each in agreed] == [19] * 2
    # Two sizes agree better than two models.
    assert agreed[0].better_half > 0.8 > 0.4 > summary.agreement(summary.beside_published(BOARD, "natural")).better_half
    random = np.random.Generator(np.random.Philox(key=1))
    half = np.arange((19 + 1) // 2)
    by_chance = random.permuted(np.tile(half, (200_000, 1)), axis=1)
    found = np.abs(1 - 6 * ((by_chance - half) ** 2).sum(axis=1) / (len(half) ** 3 - len(half)))
    kept, unsure = (each.better_half for each in agreed)
    assert (found >= kept - 1e-9).mean() < 0.01 < 0.05 < (found >= unsure - 1e-9).mean()
    assert "24 rows of the articles, 19 of the larger model" in DEEPER
    yarn = [of_seed(seed, "yarn", "far copies", 2048) for seed in (0, 1)]
    assert all(each["ahead_low"] > 0 for each in yarn)
    assert [round(100 * each["ahead_mean"], 1) for each in yarn] == [8.5, 12.6]  # a cell shows them
    assert "Each seed's lead is sure over documents, but two seeds are few." in LESSON
    here = {pair.row: pair.here for pair in summary.on_two_rungs(WHOLE, "far copies")}
    assert round(100 * (here["rope-window"] - here["yarn"])) == 4
    # The lesson draws four of them, in far copies.
    assert "by 8.5 points with one seed and by 12.6 with the other." in LESSON
    four = re.findall(r'"([\w-]+)": "', LESSON[LESSON.index("rl.figures.scoreboard_rungs(") :].split("control=")[0])
    assert four == ["ntk-aware", "yarn", "rerope-w128", "hwfa-w64"]
    assert f"so HWFA has {100 * (here['hwfa-w64'] - here['rope-window']):.0f} on the small model, not 14." in LESSON
    # Of the rows of the figure those cross the line that the text names.
    rungs = DEEPER[DEEPER.index("rungs = {metric") :]
    drawn = re.findall(r'"([\w-]+)": "', rungs[: rungs.index('there="2 million')])
    for metric, wanted in (
        ("far copies", {"yarn", "invleaky-w64-logn"}),
        ("natural", {"rerope-w128", "rerope-w128-logn"}),
    ):
        pairs = {pair.row: (pair.there, pair.here) for pair in summary.on_two_rungs(WHOLE, metric)}
        control = pairs["rope-window"]
        assert {row for row in drawn if pairs[row][1] < control[1] and pairs[row][0] > control[0]} == wanted, metric
        assert all(pairs[row][0] - control[0] > pairs[row][1] - control[1] for row in drawn), metric
    assert "InvLeaky crosses the line there, too, and ReRoPE on all bytes" in DEEPER
    far_pairs = {pair.row: (pair.there, pair.here) for pair in summary.on_two_rungs(WHOLE, "far copies")}
    leads = [100 * (far_pairs["rerope-w128"][end] - far_pairs["yarn"][end]) for end in (1, 0)]
    assert "every row shown gains on the window" in DEEPER
    said = "and plain ReRoPE's lead over YaRN in far copies falls from {:.0f} points to {:.0f}."
    assert said.format(*leads) in DEEPER
    there = {pair.row: pair.there for pair in summary.on_two_rungs(WHOLE, "natural")}
    assert there["rope-window"] > there["yarn"]
    assert "(On all bytes it stays behind, {numref}`fig-shootout-rungs-all`.)" in LESSON
    shares = [100 * of_seed(seed, row, "needle", length)["mean"]
              for seed in (0, 1)
              for row, length in (("rope", 256), ("rerope-w128", 2048))]  # fmt: skip
    said = """The first finds {:.0f} % of its needles at home and, with ReRoPE on a text eight times as long,
        {:.0f} %; the second finds {:.0f} % at home and {:.0f} % there, without any log n."""
    assert " ".join(said.format(*shares).split()) in LESSON
    assert shares[3] > 97
    keeps = (
        f"a larger model, in the one seed that learned to find them, keeps {shares[3]:.0f} % with ReRoPE alone at eight"
    )
    assert keeps in (ROOT / "book" / "06_entropy.md").read_text("utf8")
    bent, turned = ("rerope-w128", "rerope-w128-logn"), ("rope", "rope-logn", "invleaky-w64-logn")
    others = ("yarn", "yarn-logn", "rope-window", "invleaky-w64-logn-window", "hwfa2-w64-logn")
    finds = {(seed, row, length): of_seed(seed, row, "needle", length)["mean"]
             for seed in (0, 1) for row in (*turned, *bent, *others) for length in (256, 2048)}  # fmt: skip
    for row in turned:
        assert finds[0, row, 256] < 0.07 < 0.75 < finds[1, row, 256]
    for row in bent:
        assert finds[0, row, 2048] < 0.01 < 0.97 < finds[1, row, 2048]
    assert max(finds[1, "yarn", 2048], finds[1, "yarn-logn", 2048]) < 0.55
    assert finds[1, "invleaky-w64-logn", 2048] < finds[1, "invleaky-w64-logn-window", 2048]
    assert min(finds[seed, "hwfa2-w64-logn", length] for seed in (0, 1) for length in (256, 2048)) > 0.98
    hwfa = WHOLE.where(rung="second", row="hwfa-w64", metric="needle")
    assert (hwfa["seeds"], hwfa["mean"]) == ([2, 2], [1, 1])
    assert "2,048 at test, two seeds (the trainings above). There, *far* means more than 256 bytes back." in LESSON
    assert RUNGS["second"].home == RUNGS["second"].train_length == 256
    assert "HWFA stays first, and NTK-aware stays far behind. But YaRN crosses the line." in LESSON
    assert "HWFA and HWFA2 learned it, and keep it, with both seeds." in DEEPER
    assert "with seed 1 all three did." in DEEPER
    assert "YaRN keeps about half or less, InvLeaky less than a window." in DEEPER
    copy = pick(read_table(), "rope", "passkey", 1, "found")
    asked = copy.predictions * copy.seeds
    assert (round(copy.value * asked, 3), asked) == (1, 120)
    assert f"at home, plain RoPE {100 * copy.value:.0f} % (one of {asked})." in DEEPER
    for row in ("rope", "pi"):
        for metric in ("natural", "far copies"):
            pairs = {pair.row: pair for pair in summary.on_two_rungs(WHOLE, metric)}
            lost = [100 * (getattr(pairs["rope-window"], end) - getattr(pairs[row], end)) for end in ("there", "here")]
            assert min(lost) > 26.5
    assert {8: "Eight"}[len(drawn)] + " of the 19 rows, and all bytes as well:" in DEEPER
    assert "InvLeaky has a fixed window; plain RoPE and PI lie 27 points and more below." in DEEPER
    assert "invleaky-w64-logn" in drawn  # no moving window
    width, layers = (getattr(RUNGS["second"].config, name) for name in ("width", "layers"))
    assert (width, layers) == (192, 6)
    assert "six layers, two million weights" in LESSON


# --- the open questions ----------------------------------------------------------------------------------------------


def test_what_the_open_questions_say_of_the_scoreboard():
    text = (ROOT / "book" / "open_questions.md").read_text("utf8")
    jump, window = "skip-positions-logn", "skip-positions-logn-window"
    assert line(jump, "natural")["seeds"] == 3
    shown = [percent(window, "natural"), percent(window, "far copies"), percent(window, "needle")]
    assert [round(value, 1) for value in shown] == [63.1, 70.9, 33.0]
    assert "63.1 % of all bytes at 512" in text
    assert "70.9 % of the far copies and 33 % of the needles" in text
    assert paired_ahead(window, "rope-window", "natural") == (-1.3, -1.8, -0.8)
    assert paired_ahead(window, jump, "natural") == (1.0, 0.5, 1.6)
    assert round(percent(jump, "needle")) == 89
    assert [round(percent(row, metric)) for metric in ("natural", "repeated") for row in ("pi", "rope")] == [
        29, 37, 30, 36
    ]  # fmt: skip
    assert difference("pi", "rope", "not repeated")[2] < 0 < difference("pi", "rope", "repeated")[1]


def test_a_window_tuned_alike():
    """How much of what tuning gains is more training: a window's own gain, and the leads over it."""
    table = results("tuned_window")["rows"]
    percents = (0.0, 0.1, 1.0, 10.0)

    def one(percent, row, metric="far copies", end="mean"):
        return 100 * table.where(percent=percent, row=row, metric=metric)[end][0]

    window = [one(percent, "rope-window") for percent in percents]
    gains = [share - window[0] for share in window[1:]]
    assert max(gains) < 1.5
    natural = [one(percent, "rope-window", "natural") for percent in (0.0, 10.0)]
    said = "from {:.1f} % of the far copies to {:.1f}, {:.1f} and {:.1f}, from {:.1f} % of all bytes to {:.1f}"
    assert said.format(*window, *natural) in DEEPER
    assert {round(one(percent, "rope-window", "needle")) for percent in percents} == {33}
    assert "the needles stay at 33 %" in DEEPER
    parts = ("ahead_mean", "ahead_low", "ahead_high")
    for row, name in (("rope", "plain RoPE"), ("yarn", "YaRN"), ("rerope-w32", "ReRoPE")):
        cells = [
            "{:.1f} ({:.1f} to {:.1f})".format(*(one(percent, row, end=end) for end in parts))
            for percent in percents[1:]
        ]
        assert f"| {name} | {' | '.join(cells)} |".replace("-", "−") in DEEPER
    ends = [one(10.0, "rope", "natural", end) for end in parts]
    assert "after 200 steps plain RoPE is {:.1f} ahead ({:.1f} to {:.1f})".format(*ends) in DEEPER
    others = [one(10.0, row, "natural", "ahead_mean") for row in ("yarn", "rerope-w32")]
    assert "YaRN {:.1f}, ReRoPE {:.1f}. `python -m experiments tuned_window`".format(*others) in DEEPER
    # Begun anew, it is the scoreboard's seed 0 but for its last bits.
    for row in ("rope-window", "yarn", "rerope-w32"):
        assert abs(one(0.0, row) - right(row, "far copies")[0]) < 2
