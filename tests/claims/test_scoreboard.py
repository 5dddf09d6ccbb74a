"""Claims that models of the scoreboard decide, and the encoders of chapter 10. All from stored results."""

import math

import pytest
import torch

from rope_lessons.stored import results
from tests.seeds import ahead, bits, right
from tools.project import ROOT

BOARD = results("scoreboard")["rows"]
ENCODERS = results("random_positions")


def percent(row, metric, length, column="mean"):
    return 100 * BOARD.where(rung="small", row=row, metric=metric, length=length)[column][0]


def losses(training, test, length):
    return ENCODERS["controls"].where(training=training, test=test, length=length)["loss"]


def test_sinusoidal_at_twice_the_length():
    shown = [round(percent("sinusoidal", "natural", length), 1) for length in (64, 128, 512)]
    assert shown == [60.3, 40.4, 20.9]
    assert percent("sinusoidal", "natural", 128, "high") < percent("sinusoidal", "natural", 64, "low")
    assert round(percent("rope", "natural", 128), 1) == 56.9
    assert set(BOARD.where(row="sinusoidal", rung="small")["seeds"]) == {3}


def test_learned_table_at_home_and_beyond():
    assert ahead("learned", "sinusoidal", "natural", 64) == (1.6, 1.2, 2.0)
    with pytest.raises(ValueError, match="no row has"):
        percent("learned", "natural", 128)
    assert [round(percent(row, "natural", 512)) for row in ("learned-pi", "sinusoidal", "rope", "alibi")] == [
        29, 21, 37, 63
    ]  # fmt: skip


def test_loss_of_alibi_and_of_added_sines_at_length():
    alibi, sines = ([percent(row, "loss", length) / 100 for length in (64, 512)] for row in ("alibi", "sinusoidal"))
    assert [round(x, 2) for x in (*alibi, *sines)] == [1.52, 1.42, 1.51, 3.39]
    assert [round(percent("rope-window", "loss", length) / 100, 2) for length in (64, 512)] == [1.42, 1.35]


BASES = {100: "rope-b100", 1000: "rope-b1000", 100_000: "rope-b100000", 1_000_000: "rope-b1e+06"}


def test_bases_in_training():
    """Level at home; at 512 all fall, 100,000 more than 10,000 and a million, so that it is not the size."""
    for row in (*BASES.values(), "rope-per-head"):
        assert len(bits(row)) == 3
        mean, low, _ = ahead(row, "rope", "natural", 64)
        assert -0.5 < mean < 0
        assert low >= -0.8
        assert percent(row, "natural", 512) < percent("rope-window", "natural", 512) - 25
    found = {base: ahead(row, "rope", "natural") for base, row in BASES.items()}
    for base in (100, 1000, 1_000_000):
        assert found[base][1] < 0 < found[base][2]
    shown = [round(percent(row, "natural", 512), 1) for row in ("rope", *BASES.values())]
    assert shown == [37.3, 34.0, 37.6, 30.4, 37.2]


def test_base_1000_for_short_texts():
    """The rule of document 002 gives it to 64 and to 512 bytes."""
    assert ahead("rope-b1000", "rope", "natural", 64) == (-0.2, -0.8, 0.4)
    assert ahead("rope-b1000", "rope", "natural") == (0.3, -5.3, 5.8)
    assert [len(bits(row)) for row in ("rope-b1000", "rope")] == [3, 5]
    assert round(2 * math.pi * 1000 ** (1 - 2 / 512)) == 6116


def test_a_large_base_at_length():
    assert ahead("rope-b100000", "rope", "natural") == (-6.9, -9.5, -4.3)
    assert ahead("rope-b1e+06", "rope", "natural") == (-0.1, -7.4, 7.3)


def test_a_base_for_each_head():
    assert ahead("rope-per-head", "rope", "natural", 64) == (-0.3, -0.7, 0.1)
    assert ahead("rope-per-head", "rope", "natural") == (-2.7, -15.0, 9.6)


def test_remedies_on_the_scoreboard():
    rows = ("alibi", "sandwich", "rerope-w32", "rerope-w32-logn-test")
    assert [round(percent(row, "needle", 512)) for row in rows] == [58, 51, 27, 88]
    assert [BOARD.where(rung="small", row=row)["seeds"][0] for row in rows] == [3, 3, 5, 5]
    assert all(percent(row, "natural", 512) > percent("rope", "natural", 512) + 20 for row in rows)
    assert all(percent(row, "needle", 64) > 90 for row in rows)


def test_masked_language_model_with_a_window():
    """Fifteen tokens to each side, three seeds, 64 bytes; and at 512 no other reading is better."""
    lost = [
        near - full for near, full in zip(losses("plain", "window 16", 64), losses("plain", "0, 1, 2", 64), strict=True)
    ]
    assert max(lost) < 0.012
    near, full = losses("plain", "window 16", 512), losses("plain", "0, 1, 2", 512)
    assert all(a + 0.4 < b for a, b in zip(near, full, strict=True))


def test_largest_position_of_random_subsets():
    """The range that is twice the test length is the best in each seed, of 1, 2, 4, 8 and 16 times."""
    twice = losses("random, 1024", "grid", 512)
    four = ENCODERS["rows"].where(encoding="rope", training="random", positions="grid", log_n=False, length=512)["loss"]
    others = [losses(f"random, {places}", "grid", 512) for places in (512, 4096, 8192)]
    for other in (four, *others):
        assert all(a < b for a, b in zip(twice, other, strict=True))
    at_home = [losses(f"random, {places}", "grid", 64) for places in (512, 1024, 4096)]
    assert all(a < b < c for a, b, c in zip(*at_home, strict=True))
    assert [round(2048 / length, 1) for length in (500, 1500)] == [4.1, 1.4]  # the published range


def test_random_slopes():
    """Level with ALiBi's on all bytes, and no farther than a window."""
    assert len(bits("alibi-random")) == len(bits("alibi")) == 3
    assert ahead("alibi-random", "alibi", "natural") == (0.8, -0.4, 2.1)
    assert ahead("alibi-random", "alibi", "natural", 64)[0] == 1.9
    assert ahead("alibi-random", "alibi", "natural", 64)[1] > 0
    assert ahead("alibi", "alibi-random", "far copies") == (2.7, 1.3, 4.1)
    assert {round(share, 1) for share in right("alibi-random", "needle").values()} == {33.3}
    assert {round(share, 1) for share in right("alibi-random-window", "needle").values()} == {33.3}
    page = (ROOT / "book" / "deeper" / "07_local.md").read_text("utf8")
    assert "on all bytes at 512 (0.8 points ahead, −0.4 to 2.1), and at home 1.9 ahead." in page
    assert "of far copies such a model gets 2.7 points less (1.3 to 4.1)" in page
    slopes = torch.rand(100_000, 4, generator=torch.Generator().manual_seed(0))
    assert (slopes < 1 / 64).any(dim=1).double().mean() < 0.07  # ALiBi's two flattest of four heads have 1/64 and less


def test_other_slopes_and_windows_are_no_better():
    """With log n, on the seed that all have; as the deeper page of lesson 9 has it."""
    rule, others = "invleaky-w16-logn", {name: f"invleaky-{name}-logn" for name in ("r8", "r11", "w8", "w32")}
    assert {name: set(bits(row)) for name, row in others.items()} == {name: {0} for name in others}
    behind = {name: ahead(rule, row, "natural") for name, row in others.items()}
    assert {name: lead[0] for name, lead in behind.items()} == {"r8": 1.7, "r11": 0.7, "w8": 20.3, "w32": 0.2}
    assert {name for name, lead in behind.items() if lead[1] > 0} == {"r8", "r11", "w8"}
    for metric, length in (("natural", 64), ("natural", 512), ("far copies", 512), ("needle", 64), ("needle", 512)):
        _, low, high = ahead("invleaky-w32-logn", rule, metric, length)
        assert low < 0 < high, (metric, length)  # level
    assert max(right(others[name], "needle")[0] for name in ("r8", "r11", "w8")) < 1.1
    assert [round(right(row, "needle", 64)[0]) for row in (others["r8"], others["r11"], rule)] == [67, 58, 89]
    page = (ROOT / "book" / "deeper" / "09_invleaky.md").read_text("utf8")
    said = "slopes of 8 and 11 are behind it by 1.7 and 0.7 points of all bytes at 512 (each surely, over documents)"
    assert said in page
    assert "At home they find 67 and 58 %, where the rule finds 89 on this seed." in page
    bent = {name: right(f"invleaky-{name}-logn-window", "natural", 64)[0] for name in ("w8", "w16")}  # as in training
    assert {name: round(share, 1) for name, share in bent.items()} == {"w8": 62.5, "w16": 62.5}
    assert "they get 62.5 % of all bytes there, as the rule's do, and find 98 % of the needles." in page
    assert round(right("invleaky-w8-logn-window", "needle", 64)[0]) == 98
