"""The second half of chapter 12: its test sets, its stored table and what the text says about it, its explorable, the
shipped models."""

from __future__ import annotations

import re
import statistics
from itertools import permutations, product
from pathlib import Path

import pytest
import torch

import rope_lessons as rl
from rope_lessons.figures import shootout as figures
from rope_lessons.lab import __main__ as command
from rope_lessons.lab import sizes, training
from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table import scoring, shipped
from rope_lessons.lab.table.documents import difference
from rope_lessons.lab.table.knobs import knobs
from rope_lessons.lab.table.lines import Line, pick, read_table, recipe_of, row_names
from rope_lessons.lab.table.published import beside_published, published_rows
from rope_lessons.lab.table.scoring import SETS
from rope_lessons.lab.text import Piece as TextPiece
from rope_lessons.lab.text import natural_windows, prepare, repeated_windows
from rope_lessons.scoreboard.summary import Pair, agreement, rank_correlation
from rope_lessons.stored import results

ROOT = Path(__file__).parents[2]
CHAPTER = (ROOT / "book" / "deeper" / "12_shootout.md").read_text("utf8")
N = 64
LINES = read_table()
ROWS = training.CONFIGS["gau-0.3m"].rows
NATURAL, REPEATED = SETS


def percent(row: str, kind: str = NATURAL, times: int = 8, metric: str = "accuracy") -> float:
    return 100 * pick(LINES, row, kind, times, metric).value


# --- the sets and the tax ------------------------------------------------------------------------------------------


def test_def_shootout_natural(tmp_path):
    """At every length the same bytes are predicted, each once; what comes before them changes."""
    texts = [bytes((number * 7 + step) % 251 for step in range(900)) for number in range(3)]
    pieces = [TextPiece(bytes(5000), False), *(TextPiece(content, True) for content in texts)]
    corpus = prepare("tiny", "x", lambda: pieces, tmp_path)
    windows, documents = natural_windows(corpus, 16 * 32, 3)
    assert sorted(documents.tolist()) == [0, 1, 2]
    for window, number in zip(windows.tolist(), documents.tolist(), strict=True):
        assert bytes(window) == texts[number][: 16 * 32 + 1]
    for times in (1, 2, 4, 8, 16):
        length = 32 * times
        cut = scoring.cut(windows, length)
        assert cut.shape == (3 * 16 // times, length + 1)
        assert torch.equal(cut[:, 1:].reshape(3, -1), windows[:, 1:])  # the predicted ones
        assert torch.equal(cut[1::1, 0][: 16 // times - 1], cut[:-1, -1][: 16 // times - 1])


def test_def_shootout_repeated():
    by_hand = torch.tensor([list(b"abcdefghi"), list(b"jklmnopqr")])
    assert [bytes(row) for row in repeated_windows(by_hand, 4).tolist()] == [b"ababababa", b"jklmjklmj"]
    pieces = torch.arange(8 * (8 * N + 1)).view(8, -1)
    for number, (piece, made) in enumerate(zip(pieces, repeated_windows(pieces, N), strict=True)):
        period = (N // 2, N, 2 * N, 4 * N)[number % 4]
        assert torch.equal(made, piece[:period].repeat(17)[: len(piece)])


@pytest.mark.parametrize("times", [1, 2, 4, 8, 16])
def test_eq_shootout_copyable(times):
    """Counted: tokens more than a period behind the first, in a set where the periods take equal turns."""
    length, m = times * N, times.bit_length()
    pieces = torch.arange(m * (length + 1)).view(m, -1)
    made = repeated_windows(pieces, N)
    later = 0
    for row in made:
        period = int((row[1:] == row[0]).nonzero()[0]) + 1
        later += sum(index > period for index in range(1, length + 1))
    assert later / (m * length) == pytest.approx(1 - (1 - N / (2 * length)) / m)


def test_copyable_in_the_set_of_the_table():
    """Counted in the eight windows: the shares that are not those of the formula, and those of the documents."""
    found = {}
    for times in (1, 2, 4, 8, 16):
        length = times * N
        places = torch.arange(8 * (16 * N + 1)).view(8, -1)
        made = repeated_windows(scoring.cut(places, length), N)
        later = torch.tensor([[place in row[:at] for at, place in enumerate(row)] for row in made.tolist()])
        # All but the first byte of the second copy: it comes without a warning.
        found[times] = (later.sum(dim=1) - 1).view(8, -1).double().mean(dim=1) / length
    assert [round(100 * shares.mean().item(), 1) for shares in found.values()] == [50.0, 62.5, 71.5, 76.6, 85.2]
    assert [f"{100 * share:.1f}" for share in sorted(found[8].tolist())] == ["62.5"] * 4 + ["90.6"] * 4
    assert "90.6 % of its bytes can be copied; the others have 128 and 256, and 62.5 %" in CHAPTER


def test_eq_shootout_tax():
    """Of every row, from its own accuracies."""
    own = {
        line.training: line.value
        for line in LINES
        if line.row == OWN and (line.set, line.metric) == (NATURAL, "accuracy")
    }
    for name in row_names(LINES):
        line = pick(LINES, name, NATURAL, 1)
        tax = pick(LINES, name, NATURAL, 1, "tax").value
        assert tax == pytest.approx(own[line.training] - line.value, abs=2e-6)


# --- the stored table ----------------------------------------------------------------------------------------------


def test_table_is_that_of_the_package():
    """All rows of the package, of one recipe."""
    assert set(row_names(LINES)) == set(ROWS)
    recipe, config = recipe_of(), training.CONFIGS["gau-0.3m"]
    for key in ("train_length", "factor", "batch", "steps", "optimizer", "learning_rate", "copies", "shift_keys"):
        assert recipe[key] == getattr(config, key), key
    assert recipe["documents"] == 8  # the text says eight
    assert {line.times for line in LINES} == {1, 2, 4, 8, 16}


# --- the shipped models --------------------------------------------------------------------------------------------


def test_shipped_models_have_what_was_stored():
    """One row, one window; the chapter's cell does all."""
    before = shipped.accuracies()
    windows = shipped.windows()
    assert windows.shape[1] == 16 * N + 1
    model, recipe = shipped.load("rope")
    assert recipe.seed == 0
    found = shipped.retest(model, recipe, "rope", windows)
    for kind, values in found.items():
        assert values.mean().item() == pytest.approx(before["rope"][kind], abs=0.01)
    served = {row for name in shipped.names() for row in before
              if ROWS[row].training == ROWS[name].training}  # fmt: skip
    assert served == set(before)


# --- the figures ---------------------------------------------------------------------------------------------------


def test_names_of_rows_in_pictures():
    names = {name: figures.full_label(name) for name in ROWS}
    assert len(set(names.values())) == len(ROWS)
    assert names["dynamic-ntk-logn-test"] == "dynamic NTK, log n†"
    assert names["kna-logn-ntk-fixed"] == "KNA + NTK-fixed, log n"
    assert names["invleaky-w16-logn-b80000"] == "InvLeaky w16 base 80000, log n"
    assert {figures.group_of(name) for name in ROWS} == set(figures.GROUPS)


def test_rank_correlation():
    assert figures.ranks([0.1, 0.5, 0.5, 0.2]) == [4, 1.5, 1.5, 3]
    assert rank_correlation([1, 2, 3], [4, 5, 9]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [9, 5, 4]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)


def test_sortable_table_says_what_the_table_says():
    shown = rl.figures.shootout_rows(LINES, ROWS)
    by_label = {row.name: row for row in shown.rows}
    assert len(by_label) == len(ROWS)
    for name in ROWS:
        row = by_label[figures.full_label(name)]
        natural = [percent(name, NATURAL, times) for times in (1, 8)]
        assert row.values[:3] == pytest.approx((*natural, percent(name, REPEATED)))
        assert {knob: row.more[knob] for knob in knobs(ROWS[name])} == knobs(ROWS[name])
        assert row.more["on the command line"] == f"`{name}`"
    assert sum(row.short for row in shown.rows) == len(figures.SHORT)


def test_table_as_a_picture():
    """Every row is named once, in one of the groups."""
    alts = [rl.figures.shootout_table(LINES, [group]).alt for group in figures.GROUPS]
    for name in ROWS:
        said = f" {figures.full_label(name)} {percent(name):.1f} and {percent(name, REPEATED):.1f}"
        assert sum(said in alt for alt in alts) == 1, name


# --- what the text says about the table ----------------------------------------------------------------------------


def gain(first: str, second: str, kind: str = NATURAL) -> tuple[float, float, float]:
    """Difference in points, and its interval."""
    value, low, high = (100 * share for share in difference(first, second, kind))
    return value, low, high


def surely(first: str, second: str, kind: str = NATURAL) -> bool:
    return gain(first, second, kind)[1] > 0


def of(group: str) -> list[str]:
    return [name for name in ROWS if figures.group_of(name) == group]


def test_differences_are_those_of_the_table():
    """The two stored files are of the same models."""
    for name in ROWS:
        for kind in SETS:
            assert gain(name, "window", kind)[0] == pytest.approx(
                percent(name, kind) - percent("window", kind), abs=1e-3
            )


def test_who_uses_a_long_text():
    """Above the window: bent distances and hybrids. No row that changes frequencies only. NoPE and ALiBi learn less."""
    above = {name for name in ROWS if surely(name, "window")}
    assert not above & set(of("frequencies"))
    assert {name for name in ROWS if name.startswith(("hwfa", "rerope-w16", "rerope-w32", "rerope-w48"))} <= above
    assert {"kna-rerope-w16", "cosa-rerope-w16"} <= above
    assert {figures.group_of(name) for name in above} <= {"distance", "visibility and bias", "scale: key norm"}
    assert all(percent(name, times=1) < percent("rope", times=1) - 5 for name in ("nope", "alibi"))


def test_the_answer_to_the_prediction():
    assert surely("rerope-w32", "window")
    assert surely("window", "rope")
    assert surely("window", "ntk-fixed")
    assert abs(gain("ntk-fixed", "rope")[0]) < 2.5
    assert all(surely(name, "pi") for name in ("rope", "ntk-fixed"))
    assert percent("rope", times=1) - percent("rope") < 6  # a few points
    assert gain("pi", "rope", REPEATED)[0] > 0


def test_along_the_text():
    def halves(row: str, kind: str) -> tuple[float, float]:
        """The eighth after the training length, and the last quarter."""
        along = pick(LINES, row, kind).along
        return 50 * sum(along[2:4]), 25 * sum(along[12:])

    begin, end = halves("rope", NATURAL)
    assert end < begin
    begin, end = halves("rerope-w32-logn-test", NATURAL)
    assert end > begin + 3
    assert halves("rerope-w32-logn-test", REPEATED)[1] > 75
    assert halves("window", REPEATED)[1] < 75
    begin, end = halves("pi", REPEATED)
    assert begin < halves("rope", REPEATED)[0] - 5
    assert end > halves("rope", REPEATED)[1] + 5


def test_accuracies_are_less_certain_than_differences():
    for name in ("rope", "ntk-mixed", "rerope-w32", "hwfa-w16"):
        line = pick(LINES, name)
        _, low, high = gain(name, "window")
        assert high - low < 60 * (line.high - line.low)
        assert 3 < 50 * (line.high - line.low) < 8


def test_taxes():
    taxes = {name: percent(name, times=1, metric="tax") for name in ROWS}
    assert taxes.pop("random-positions") < -5
    assert {name for name, tax in taxes.items() if tax > 6} == {"pi", "pi-logn", "pi-logn-test"}
    assert all(0.5 < taxes[name] < 3 for name in ("ntk-mixed", "yarn"))
    assert abs(taxes["ntk-fixed"]) < 1
    free = ("rope-logn-test", "window", "lambda", "dynamic-ntk", "dynamic-ntk-logn", "hwfa-w16", "rerope-w64")
    assert all(taxes[name] == 0 for name in free)
    assert pick(LINES, "rerope-w16", times=1, metric="tax").high < 0


def test_needles():
    found = {name: percent(name, "passkey", metric="found") for name in ROWS}
    assert found["rope"] < 5
    assert found["rerope-w32"] < 10
    assert found["rerope-w32-logn-test"] < 3
    assert found["rerope-w32-logn"] > found["rerope-w32"] + 5
    for full in (1, 2):
        assert found[f"hwfa2-w8-f{full}-logn"] > 10 > 2 > found[f"hwfa2-w8-f{full}"]
    assert found["window"] < 2
    most = sorted(found, key=lambda name: found[name], reverse=True)
    assert "hwfa-w16" in most[:3]
    assert all(re.match(r"hwfa-w16|hwfa2-w8-f1-logn|(kna|qna|cosa)(-logn|-yarn)", name) for name in most[:7])
    bare = [name for name in ROWS if knobs(ROWS[name])["scale"] in ("1", "unit k", "unit q")]
    assert max(found[name] for name in bare) < 10
    plain = [name for name in bare if name.startswith("hwfa2")]
    assert len(plain) == 8
    assert {f"hwfa2-w8-f{full}-logn" for full in (1, 2)} <= set(ROWS) - set(bare)
    assert surely("hwfa2-w8-f1", "window")


def test_what_holds_in_both_tables():
    """On natural text, by sign here and there."""
    theirs = {row.ours(N, 8.0, 4): row.natural for row in published_rows()}
    for first, second in (
        ("rope", "pi"),
        ("ntk-mixed-logn", "ntk-mixed-logn-test"),
        ("ntk-fixed-logn", "ntk-fixed-logn-test"),
        ("rerope-w32", "yarn"),
        ("rerope-w32-logn", "invleaky-w16-logn"),
        ("kna", "rope"),
    ):
        assert theirs[first] > theirs[second]
        assert gain(first, second)[0] > 0, (first, second)
    assert 0 < theirs["ntk-mixed"] - theirs["ntk-fixed"] < 1
    assert abs(gain("ntk-mixed", "ntk-fixed")[0]) < 2
    for kind in SETS:
        _, published, ours = zip(*beside_published(LINES, kind), strict=True)
        assert rank_correlation(published, ours) > 0.5


def test_what_does_not():
    """The six points of the list, in its order, and the sentence behind it."""
    published = {row.ours(N, 8.0, 4): row for row in published_rows()}

    def there(first: str, second: str, kind: str = NATURAL) -> float:
        of = "natural" if kind == NATURAL else "repeated"
        return getattr(published[first], of) - getattr(published[second], of)

    assert int(there("ntk-fixed", "rope")) == 16
    assert int(there("kna", "rope")) == 24
    assert gain("ntk-fixed", "rope")[0] < 3
    assert gain("kna", "rope")[0] < 10
    assert round(there("yarn", "ntk-mixed")) == 7
    assert 0 < gain("yarn", "ntk-mixed")[0] < 2
    assert not surely("ntk-mixed", "yarn")
    assert there("yarn", "ntk-mixed", REPEATED) > 20
    assert gain("yarn", "ntk-mixed", REPEATED)[1] > 5
    assert published["rerope-w64"].natural < 9
    assert abs(gain("rerope-w64", "window")[0]) < 2
    assert {row.name.split("-")[0] for row in sorted(published.values(), key=lambda row: row.repeated)[:5]} == {
        "PI",
        "ReRoPE",
    }
    assert gain("pi", "rope", REPEATED)[0] > 0
    assert "hwfa-w16" in sorted(ROWS, key=percent, reverse=True)[:3]
    for kind in SETS:
        for other in ("rerope-w32-logn", "invleaky-w16-logn"):
            assert there("hwfa-w16", other, kind) < 0
            assert gain("hwfa-w16", other, kind)[0] > 0
        assert gain("rerope-w32-logn", "invleaky-w16-logn", kind)[0] > 0
    assert all(0 > there("hwfa-w16", other) > -1 for other in ("rerope-w32-logn", "invleaky-w16-logn"))
    assert max(published, key=lambda name: published[name].repeated) == "cosa-logn-rerope-w16"
    assert all(gain("cosa-logn-rerope-w16", "hwfa-w16", kind)[0] > -3 for kind in SETS)
    assert not any(surely(name, "hwfa-w16") for name in ROWS)
    assert percent("hwfa-w16", times=1) > percent("rope", times=1) + 0.5
    assert min(published.values(), key=lambda row: row.trained).name == "HWFA"
    for name in ROWS:
        if name.startswith("hwfa2") and name in published:
            assert gain("hwfa-w16", name)[0] > -0.5
            assert there(name, "hwfa-w16") > 0 or name.startswith("hwfa2-w32-f1")
    close = ("rerope-w16", "rerope-w32"), ("leaky-rerope-w16-k16-logn", "rerope-w16-logn")
    assert all(abs(there(*pair)) < 1 and there(*pair) * gain(*pair)[0] < 0 for pair in close)


def test_needles_at_home_and_near():
    """Without a scale the key is hardly found at 64 bytes either, nor right before the question."""

    def found(name: str, times: int) -> Line:
        return pick(LINES, name, "passkey", times, "found")

    for plain, scaled in (("rope", "rope-logn"), ("rerope-w32", "rerope-w32-logn")):
        assert found(plain, 1).value < 0.1
        assert found(scaled, 1).value > found(plain, 1).value + 0.1
        assert found(plain, 8).along[-1] < 0.05


def test_rope_in_the_second_half():
    """Some eight points behind the window on natural text."""
    along = [pick(LINES, name).along[8:] for name in ("window", "rope")]
    behind = 100 * (sum(along[0]) - sum(along[1])) / 8
    assert 7.5 < behind < 8.5


def test_taxes_of_the_frequency_changes():
    taxes = {name: percent(name, times=1, metric="tax") for name in ROWS}
    fixed = [tax for name, tax in taxes.items() if "ntk-fixed" in name]
    assert len(fixed) == 9
    assert 0.5 < min(fixed) < max(fixed) < 1.2
    assert all(1.7 < taxes[name] < 3.1 for name in taxes if "yarn" in name)
    assert all(1.8 < taxes[name] < 2.1 for name in taxes if name.startswith("ntk-mixed"))


def test_the_seventh_point():
    published = {row.ours(N, 8.0, 4): row.repeated for row in published_rows()}
    larger, usual = "invleaky-w16-logn-b80000", "invleaky-w16-logn"
    assert -1.5 < published[larger] - published[usual] < -0.5
    assert gain(larger, usual, REPEATED)[1] > 0


def test_frequency_changes_are_behind_the_window():
    """Those of a pretrained model, on natural text; YaRN and dynamic NTK are about level."""
    kinds = ("pi", "ntk-", "dynamic", "yarn", "rope")
    names = [name for name in ROWS if name.startswith(kinds) and ROWS[name].training == ROWS["rope"].training]
    assert len(names) == 16
    assert all(surely("window", name) for name in names)
    _, low, high = gain("dynamic-ntk", "yarn")
    assert low < 0 < high


def test_log_n_is_a_part_of_what_hwfa2_lacks():
    """On repeated text it takes more than half of the way to HWFA; on natural text it does nothing that can be seen."""
    for full in (1, 2):
        bare, scaled = f"hwfa2-w8-f{full}", f"hwfa2-w8-f{full}-logn"
        assert gain(scaled, bare, REPEATED)[1] > 0
        assert gain("hwfa-w16", scaled, REPEATED)[0] < gain("hwfa-w16", bare, REPEATED)[0] / 2
        _, low, high = gain(scaled, bare)
        assert low < 0 < high


def test_what_is_known_to_be_different():
    recipe, large = training.CONFIGS["gau-0.3m"], training.CONFIGS["gau-87m"]
    assert (recipe.config.head_dim, large.config.head_dim) == (64, 128)
    model = sizes.build(recipe.config, seed=0)
    assert model.layers[0].alpha == pytest.approx(4 ** (1 / 3))
    assert round(4 ** (1 / 3), 2) == 1.59
    assert not [part for part in model.modules() if isinstance(part, torch.nn.Dropout)]


def test_the_order_without_seed_0():
    """Of the rows that the chapter prints, none that are surely apart change places."""
    stored = results("table_documents")
    later = [place for place, seed in enumerate(stored["seeds"]) if seed]
    assert len(later) == len(stored["seeds"]) - 1
    main = re.search(r"MAIN = \((.*?)\)", CHAPTER, re.DOTALL)
    assert main
    names = re.findall(r'"([^"]+)"', main[1])
    assert len(names) > 8

    def mean(name: str, kind: str) -> float:
        return statistics.mean(sum(stored["hits"][name][kind][place]) for place in later)

    for (first, second), kind in product(permutations(names, 2), SETS):
        if surely(first, second, kind):
            assert mean(first, kind) > mean(second, kind), (first, second, kind)


def test_guide():
    """Log n in training costs nothing and helps every conversion; the best rows are those that the text names."""
    assert percent("rope-logn", times=1) > percent("rope", times=1) - 0.5
    for name in ("ntk-old", "ntk-fixed", "ntk-mixed", "ntk-aware", "dynamic-ntk"):
        assert gain(f"{name}-logn", name)[0] > 0
    for times in (1, 2, 4, 8, 16):
        assert percent("hwfa-w16", times=times) > max(percent(name, times=times) for name in ROWS) - 1
    own = ROWS["rope"].training
    pretrained = sorted((name for name in ROWS if ROWS[name].training == own), key=percent, reverse=True)
    assert all(name.startswith("rerope") for name in pretrained[:6])
    above = [name for name in pretrained if surely(name, "window")]
    assert above
    assert all(name.startswith("rerope") for name in above)
    for name in ("window", "lambda", "pi"):
        assert percent(name, times=8) > percent(name, times=1)
    frequencies = [name for name in pretrained if figures.group_of(name) == "frequencies"]
    assert max(frequencies, key=lambda name: percent(name, REPEATED)).startswith("yarn")


def test_small_differences_can_be_sure():
    """Between rows with the same model. The chapter says it of differences of less than a point."""
    own = [name for name in ROWS if ROWS[name].training == ROWS["rope"].training]
    small = [pair for pair in permutations(own, 2) if 0 < gain(*pair)[0] < 1]
    assert any(surely(*pair) for pair in small)


def test_commands_of_the_chapter():
    """Every line that runs the lab can be read by it."""
    lines = [line for block in re.findall(r"```bash\n(.*?)```", CHAPTER.replace("\\\n", ""), re.DOTALL)
             for line in block.splitlines() if "rope_lessons.lab" in line]  # fmt: skip
    assert len(lines) >= 8
    for line in lines:
        options = command.parse(line.partition("rope_lessons.lab")[2].split())
        assert options.command in ("train", "table")


def test_sizes_in_the_text():
    assert 300 < sizes.parameters("gau-96m") / recipe_of()["parameters"] < 400


def test_methods_that_the_table_lacks():
    names = " ".join(row_names(LINES))
    for name in ("by-parts", "llama3", "longrope", "self-extend"):
        assert name not in names
    assert "NTK-by-parts, Llama 3's rule, LongRoPE and Self-Extend are not among them" in CHAPTER


def test_the_scale_decides_how_far_a_look_up_of_hwfa2_carries():
    """About as many keys at home, and at 512 bytes only with log n."""

    def found(row: str, times: int) -> float:
        return pick(LINES, row, "passkey", times, "found").value

    bare, scaled = "hwfa2-w8-f1", "hwfa2-w8-f1-logn"
    assert abs(found(bare, 1) - found(scaled, 1)) < 0.05 < 0.25 < found(bare, 1)
    assert found(bare, 8) < 0.02 < 0.25 < found(scaled, 8)


def test_within_the_better_half_the_ranks_hardly_agree():
    for kind in SETS:
        found = agreement([Pair(*row) for row in beside_published(LINES, kind)])
        assert found.better_half < 0.4 < 0.7 < found.all
