"""One test for each labelled equation and theorem of chapter 02, and for what it says about libraries."""

from __future__ import annotations

import functools
import importlib
import math
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch

import rope_lessons as rl
from rope_lessons.figures import rotary as figures
from rope_lessons.figures.scoreboard import measured
from rope_lessons.stored import results
from tests.book.cells import run_cells
from tests.seeds import ahead, bits, right

PAGE = Path(__file__).parents[2] / "book" / "02_rotary.md"
TEXT = PAGE.read_text("utf8")
DEEPER = (PAGE.parent / "deeper" / PAGE.name).read_text("utf8")
D = 8
FREQUENCIES = rl.rope_frequencies(D)


def rotation(angles: torch.Tensor) -> torch.Tensor:
    """R(φ) as a dense matrix from its definition: 2 x 2 blocks on the diagonal, interleaved pairs."""
    blocks = [torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]) for a in angles.tolist()]
    return torch.block_diag(*blocks).double()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    return rl.apply_rotary(x.view(1, -1), torch.tensor([position]), FREQUENCIES, layout="interleaved")[0]


def test_eq_rotary_wish():
    """RoPE grants it; adding the sinusoidal encoding does not."""
    q, k = random(2, D)
    scores = [turned(q, m) @ turned(k, n) for m, n in ((9, 4), (5, 0), (105, 100))]
    assert max(scores) - min(scores) < 1e-12
    assert torch.equal(turned(q, 0), q)
    e = rl.sinusoidal_encoding(torch.arange(110), D, dtype=torch.float64)
    added = [(q + e[m]) @ (k + e[n]) for m, n in ((9, 4), (5, 0), (105, 100))]
    assert max(added) - min(added) > 0.1


def test_thm_rotary_powers():
    powers_alone_grant_the_wish()
    # Linearity: a map that keeps inner products on vectors is decided by its values on a basis.
    a = torch.matrix_exp(random(D, D) - random(D, D).T)
    q, k = random(2, D, seed=3)
    expanded = (a @ (2 * q - 3 * k) - 2 * (a @ q) + 3 * (a @ k)).norm()
    assert expanded < 1e-10

    # A map that keeps lengths but is not linear breaks inner products, so it cannot grant the wish.
    def folded(x):
        return x if x[0] >= 0 else -x

    pairs = [random(2, D, seed=seed) for seed in range(20)]
    assert max(abs(folded(x) @ folded(y) - x @ y) for x, y in pairs) > 0.1


def powers_alone_grant_the_wish():
    a = torch.matrix_exp(random(D, D) - random(D, D).T)
    powers = {m: torch.linalg.matrix_power(a, m) for m in range(-3, 8)}
    for m, n in ((5, 3), (2, 0), (7, 5), (-1, -3)):
        assert torch.allclose(powers[m].T @ powers[n], powers[2].T, atol=1e-12)
    # The converse, step by step as in the proof: from a table of A_m^T A_n, A_m is recovered as a power of A_1.
    step = {m: powers[m + 1].T @ powers[m] for m in range(5)}
    rebuilt = torch.eye(D)
    for m in range(5):
        rebuilt = rebuilt @ step[m].T
        assert torch.allclose(rebuilt, powers[m + 1], atol=1e-12)
    # Powers of a matrix that is not orthogonal fail.
    b = a + 0.1 * torch.eye(D)
    stretched = [torch.linalg.matrix_power(b, m) for m in range(6)]
    assert not torch.allclose(stretched[5].T @ stretched[3], stretched[2].T @ stretched[0], atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_thm_rotary_pairs(seed):
    a = torch.matrix_exp(random(D, D, seed=seed) - random(D, D, seed=seed).T)
    assert math.isclose(torch.linalg.det(a), 1.0, abs_tol=1e-12)
    values, vectors = torch.linalg.eig(a)
    upper = [c for c in range(D) if values[c].imag > 0]
    omega = torch.stack([values[c].angle() for c in upper])
    columns = [part * math.sqrt(2) for c in upper for part in (vectors[:, c].real, -vectors[:, c].imag)]
    basis = torch.stack(columns, dim=1)
    assert torch.allclose(basis.T @ basis, torch.eye(D), atol=1e-10)
    for m in (1, 3, 10):
        assert torch.allclose(basis @ rotation(m * omega) @ basis.T, torch.linalg.matrix_power(a, m), atol=1e-9)


def test_thm_rotary_pairs_needs_determinant_one():
    """A reflection has one eigenvalue -1: its powers are no product of rotations of pairs."""
    reflection = torch.diag(torch.tensor([-1.0, 1.0]))
    assert not any(torch.allclose(rotation(torch.tensor([w])), reflection) for w in torch.linspace(0, 6.3, 1000))


def test_eq_rotary_pair():
    angle = torch.tensor([0.7])
    x = random(2)
    expected = x[0] * torch.exp(1j * angle) + 1j * x[1] * torch.exp(1j * angle)
    assert torch.allclose(torch.view_as_complex(rotation(angle) @ x), expected)
    assert torch.allclose(
        rl.apply_rotary(x.view(1, 2), torch.tensor([1]), angle, layout="half")[0], rotation(angle) @ x
    )


def test_thm_rotary_relative():
    for a, b in ((3, 5), (-2, 7), (0, 4)):
        left, right = rotation(a * FREQUENCIES), rotation(b * FREQUENCIES)
        assert torch.allclose(left.T @ right, rotation((b - a) * FREQUENCIES), atol=1e-12)
        assert torch.allclose(left.T, rotation(-a * FREQUENCIES), atol=1e-12)


def test_eq_rotary_relative():
    q, k = random(2, D)
    for m, n in ((0, 0), (7, 3), (3, 7), (1000, 1), (2**20, 2**20 - 9)):
        assert math.isclose(turned(q, m) @ turned(k, n), turned(q, m - n) @ k, abs_tol=1e-8)


def test_eq_rotary_sparse():
    x, m = random(D), 13
    cos = (m * FREQUENCIES).cos().repeat_interleave(2)
    sin = (m * FREQUENCIES).sin().repeat_interleave(2)
    swapped = torch.stack((-x[1::2], x[0::2]), dim=1).flatten()
    assert torch.allclose(x * cos + swapped * sin, rotation(m * FREQUENCIES) @ x, atol=1e-12)
    assert torch.count_nonzero(rotation(m * FREQUENCIES)) == 2 * D


def test_eq_rotary_cos_sin():
    q, k = random(2, D)
    even, odd = slice(0, None, 2), slice(1, None, 2)
    for delta in (-5, 0, 1, 40):
        cos, sin = (delta * FREQUENCIES).cos(), (delta * FREQUENCIES).sin()
        dot = q[even] * k[even] + q[odd] * k[odd]
        cross = q[even] * k[odd] - q[odd] * k[even]
        assert math.isclose((dot * cos + cross * sin).sum(), turned(q, delta) @ k, abs_tol=1e-12)
    assert abs((dot * cos).sum() - turned(q, 40) @ k) > 0.1  # the cosine part alone is not the score


def test_eq_rotary_phase():
    q, k = random(2, D)
    z_q, z_k = (torch.view_as_complex(x.view(-1, 2)) for x in (q, k))
    lead = z_k.angle() - z_q.angle()
    for delta in (-5, 0, 1, 40):
        score = (z_q.abs() * z_k.abs() * (delta * FREQUENCIES - lead).cos()).sum()
        assert math.isclose(score, turned(q, delta) @ k, abs_tol=1e-12)


def test_eq_rotary_mean():
    """The moments exactly, from E[x x^T] = I: no sampling."""
    for delta in (0, 3, 100, 5000):
        matrix = rotation(delta * FREQUENCIES)
        # The score is q^T M k with M = R^T. With independent q and k its mean square is the sum of M's squared
        # entries, with q = k its mean is M's trace. R has the same squares and the same trace.
        assert math.isclose(matrix.square().sum(), D)
        kernel = rl.sinusoidal.sinusoidal_kernel(torch.tensor(delta), FREQUENCIES)
        assert math.isclose(matrix.trace(), D * kernel, abs_tol=1e-12)
    q, k = random(2, 20_000, D)
    scores = ((q @ rotation(7 * FREQUENCIES).T) * k).sum(-1)
    assert abs(scores.mean()) < 4 * math.sqrt(D / 20_000)


def test_eq_rotary_bound():
    for seed in range(20):
        q, k = random(2, D, seed=seed)
        h = torch.view_as_complex(q.view(-1, 2)) * torch.view_as_complex(k.view(-1, 2)).conj()
        jump = torch.diff(torch.cat((h, torch.zeros(1)))).abs().max()
        for delta in (0, 1, 10, 1000):
            partial = torch.exp(1j * delta * FREQUENCIES).cumsum(0).abs().sum()
            assert abs(turned(q, delta) @ k) <= jump * partial + 1e-12


def test_eq_rotary_layouts():
    permutation = torch.zeros(D, D)
    for t in range(D // 2):
        permutation[t, 2 * t] = permutation[t + D // 2, 2 * t + 1] = 1
    x, position = random(1, D), torch.tensor([11])
    half = rl.apply_rotary(x, position, FREQUENCIES, layout="half")[0]
    assert torch.allclose(permutation @ rotation(11 * FREQUENCIES) @ permutation.T @ x[0], half, atol=1e-12)


def test_eq_rotary_partial():
    q, k = random(2, 12)
    m, n = torch.tensor([9]), torch.tensor([4])
    score = (
        rl.apply_rotary(q.view(1, -1), m, FREQUENCIES, layout="interleaved")[0]
        @ rl.apply_rotary(k.view(1, -1), n, FREQUENCIES, layout="interleaved")[0]
    )
    assert math.isclose(score, turned(q[:D], 5) @ k[:D] + q[D:] @ k[D:], abs_tol=1e-12)


def library_turn(model: str, function: str, apply: str) -> torch.Tensor:
    """The result of a model file's own rotary on one vector of 8 channels at position 1."""
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    rotate, x = getattr(module, function), torch.arange(1.0, D + 1).view(1, 1, 1, D)
    angle = FREQUENCIES
    wide = angle.repeat(2) if apply == "half" else angle.repeat_interleave(2)
    return (x * wide.cos() + rotate(x) * wide.sin())[0, 0]


@pytest.mark.parametrize(
    ("model", "function", "layout"),
    [
        ("llama", "rotate_half", "half"),
        ("gptj", "rotate_every_two", "interleaved"),
        ("cohere", "rotate_half", "interleaved"),
        ("glm", "rotate_half", "interleaved"),
    ],
)
def test_library_layouts(model, function, layout):
    x = torch.arange(1.0, D + 1).view(1, D)
    ours = rl.apply_rotary(x, torch.tensor([1]), FREQUENCIES, layout=layout)
    assert torch.allclose(library_turn(model, function, layout), ours, atol=1e-6)
    other = "half" if layout == "interleaved" else "interleaved"
    assert not torch.allclose(
        library_turn(model, function, layout),
        rl.apply_rotary(x, torch.tensor([1]), FREQUENCIES, layout=other),
        atol=1e-2,
    )


@pytest.mark.parametrize(
    ("config", "share"),
    [("GPTNeoX", 0.25), ("StableLm", 0.25), ("Phi", 0.5), ("Glm", 0.5), ("Persimmon", 0.5), ("Llama", 1.0)],
)
def test_library_partial_rotary(config, share):
    import transformers

    rope = getattr(transformers, f"{config}Config")().rope_parameters
    assert rope.get("partial_rotary_factor", 1.0) == share


# --- the lesson ---------------------------------------------------------------------------------------------------


@functools.cache
def cells() -> dict[str, Any]:
    """What the lesson's cells have made when the copiers have been tested."""
    return run_cells(PAGE, until="last_token")


def test_the_copiers():
    """What the text says of the figure, and of chapter 1's copiers."""
    made = cells()
    added, turned = (made["by_start"][name] for name in ("added", "turned"))
    assert min(added[0] + made["by_length"]["added"][32]) > 99.5
    assert max(added[8]) < 95
    assert sum(added[16]) / 3 == pytest.approx(100 * 2 / 3, abs=6)
    assert min(right for seeds in turned.values() for right in seeds) > 99.5
    reached = made["by_length"]["turned"]
    assert min(reached[64]) > 98
    assert sum(made["by_length"]["added"][64]) / 3 == pytest.approx(75, abs=5)
    worst, between, best = sorted(reached[512])
    assert 35 < worst < between < 60 < 90 < best
    assert min(right for seeds in made["by_length"]["turned, cut at 31"].values() for right in seeds) > 99.5


def test_a_cut_is_a_cut_of_the_distance():
    """The control gives every farther token the score of the farthest that it may have, on both sides."""
    made, (q, k) = cells(), random(2, 9, 32)
    places, frequencies = torch.arange(9) + 4, rl.rope_frequencies(32)
    found = made["turned_scores"](q, k, places, 3)
    for m in range(9):
        for n in range(9):
            cut = torch.tensor([max(-3, min(3, m - n))])
            expected = rl.apply_rotary(q[m : m + 1], cut, frequencies, layout="interleaved")[0] @ k[n]
            assert math.isclose(found[m, n], expected, abs_tol=1e-9)


def test_the_tables_by_hand():
    quarter = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    for m, n, q, k, score in ((1, 0, (2, 2), (2, 1), 6), (2, 1, (1, 1), (1, 2), 3), (3, 2, (2, 0), (0, 1), 0)):
        assert q == (2 + quarter[m][0], 1 + quarter[m][1])
        assert k == (1 + quarter[n][0], 1 + quarter[n][1])
        assert q[0] * k[0] + q[1] * k[1] == score
        assert f"| {m}, {n} | ${q}$ | ${k}$ | {score} |" in TEXT
    q, k = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0])
    e = torch.tensor(quarter, dtype=torch.float64)
    for m, n, terms in ((1, 0, [3, 2, 1, 0]), (3, 2, [3, -2, -1, 0])):
        assert [int(x) for x in (q @ k, q @ e[n], e[m] @ k, e[m] @ e[n])] == terms
    for m, n, score in ((1, 0, 1), (2, 1, 1), (3, 2, 1), (3, 1, -3)):
        q_m, k_n = (rotation(torch.tensor([at * math.pi / 2])) @ x for at, x in ((m, q), (n, k)))
        assert math.isclose(q_m @ k_n, score, abs_tol=1e-12)
        shown = [f"$({round(float(x[0]))}, {round(float(x[1]))})$" for x in (q_m, k_n)]
        assert f"| {m}, {n} | {shown[0]} | {shown[1]} |" in TEXT


def test_numbers_of_the_lesson():
    """Periods of the first hand and the last; the rows of the scoreboard."""
    frequencies = rl.rope_frequencies(128)
    assert round(2 * math.pi / float(frequencies[0])) == 6
    assert round(2 * math.pi / float(frequencies[-1])) == 54_410
    lines = results("scoreboard")["rows"]
    plain, window = (
        [round(measured(lines, row, "natural", n)[0], 1) for n in (64, 512)] for row in ("rope", "rope-window")
    )
    assert (plain, window[1]) == ([62.6, 37.3], 64.3)
    assert "from 62.6 % to 37.3 %" in TEXT
    assert "64.3 %" in TEXT
    far = [round(measured(lines, row, "far copies", 512)[0], 1) for row in ("rope-window", "rope")]
    assert far[1] < far[0] == 72.4
    assert "the model gets 72.4 % of them" in TEXT
    assert "its far keys do harm" not in TEXT  # a window takes away the distances too
    assert "keys or distances are to blame, this table cannot tell" in TEXT
    assert set(lines.where(rung="small", row="rope")["seeds"]) == {5}  # "one of the five models"


def test_why_a_window_gains_from_a_longer_text():
    """The same bytes, cut into pieces and not: nearly all of the gain is at the beginnings of the pieces."""
    from rope_lessons.lab.rows import TableRow
    from rope_lessons.lab.table.scoring import cut, score
    from rope_lessons.methods import Method
    from rope_lessons.scoreboard import live

    torch.set_default_dtype(torch.float32)
    model, texts = live.load(), live.windows()[:16]

    def right(length: int, window: int | None) -> torch.Tensor:
        plan = (rl.scheme("rope", dim=32, visible_window=window),) * 4
        hits = score(model, TableRow("row", Method("row", plan, plan)), cut(texts, length))[0]
        return 100 * hits.double().view(len(texts), 8, 64).mean(0)  # (piece, place in it)

    gain = right(512, 64) - right(64, None)
    beginnings = float(gain[1:, :8].sum())
    assert beginnings > 0.6 * float(gain.sum()) > 0
    assert float(gain[1:, :8].mean()) > 8 * abs(float(gain[1:, 8:].mean()))


def test_the_fit_on_short_distances():
    """What the deeper page says: as many coefficients as distances, and how good it is; its other fits."""
    distance = torch.arange(512, dtype=torch.float64)
    target = -torch.log1p(distance)
    angles = distance[:, None] * rl.rope_frequencies(64)
    waves = torch.cat((angles.cos(), angles.sin()), dim=1)

    def errors(waves: torch.Tensor, penalty: float) -> tuple[float, float]:
        normal = waves[:64].T @ waves[:64] + penalty * torch.eye(waves.shape[1])
        error = (waves @ torch.linalg.solve(normal, waves[:64].T @ target[:64]) - target).abs()
        return float(error[:64].max()), float(error[64:].max())

    assert waves[:64].shape == (64, 64)
    near, far = errors(waves, 1e-3)
    assert round(near, 2) == 0.08
    assert "with a small penalty on their size" in DEEPER
    assert min(errors(waves, penalty)[1] for penalty in (1e-3, 1e-2, 1e-1, 1.0)) > 6
    round_at_least_once = (63 * rl.rope_frequencies(64) >= 2 * math.pi).repeat(2)
    assert errors(torch.cat((waves[:, round_at_least_once], torch.ones(512, 1)), dim=1), 1e-3)[1] > far


def test_how_much_rounded_angles_change_scores():
    """At an offset of a million, next to scores whose spread is 1; and the deeper page shows its tables as tables."""
    q, k = random(2, 2000, 128, seed=1)

    def change(dtype: torch.dtype) -> float:
        def score(offset: int) -> torch.Tensor:
            places = torch.tensor([offset + 50, offset]).to(dtype)
            angles = (places[:, None] * rl.rope_frequencies(128).to(dtype)).double()
            turned = [rl.rotary.rotate(x, a.cos(), a.sin(), layout="half") for x, a in zip((q, k), angles, strict=True)]
            return (turned[0] * turned[1]).sum(-1) / math.sqrt(128)

        return float((score(1_000_000) - score(0)).square().mean().sqrt())

    assert change(torch.float64) < 1e-8
    assert change(torch.float32) == pytest.approx(0.008, abs=0.001)
    assert change(torch.bfloat16) == pytest.approx(0.97, abs=0.03)
    assert "about 0.008 of the spread with float32 angles, and with bfloat16 angles nearly as much as the" in DEEPER
    assert "print(" not in DEEPER


def head(shares: list[float], length: int, back: int = 3) -> torch.Tensor:
    """The attention, in percent, of a head of length 8 whose squared length has these shares, at each distance."""
    share = torch.tensor(shares) / sum(shares)
    waves = ((torch.arange(length)[:, None] - back) * rl.rope_frequencies(16)[: len(shares)]).cos()
    return 100 * (64 * (waves @ share) / 4).softmax(0)


def test_a_head_of_fast_pairs_finds_its_distance_again():
    """What the text says of the heads with equal pairs, and why 380 looks like 3."""
    for pairs, home, away in ((8, "49", "46"), (4, "79", "50"), (3, "85", "26"), (5, "70", "70")):
        assert [f"{float(head([1] * pairs, length)[3]):.0f}" for length in (64, 512)] == [home, away]
    assert "79 % of the attention instead of 49 %" in TEXT
    assert "84.5 % at home and 26 % in 512" in TEXT
    assert "eight get 49 and 46 %, five 70 and 70 %, four 79 and 50 %" in TEXT
    long = head([1] * 4, 512)
    assert long.topk(2).indices.tolist() == [3, 380]
    assert f"gives it {float(long[380]):.0f} %" in TEXT
    turns = (377 * rl.rope_frequencies(16) / (2 * math.pi)).tolist()
    first, second, third, fourth = (f"{x:.{n}f}" for x, n in zip(turns[:4], (1, 2, 2, 2), strict=True))
    assert f"{first} turns of the first hand, {second} of the second, {third} of the third and {fourth} of" in TEXT
    assert 2 * math.pi / float(rl.rope_frequencies(16)[2]) < 63  # the third hand has come round
    assert "which reach new angles" not in TEXT  # three hands that come round fail too


def test_a_trained_copier_finds_its_distance_again():
    made = cells()
    torch.manual_seed(0)
    worst = made["turned"][made["worst"]]
    assert made["worst"] == 0
    home, away = (made["last_token"](worst, length) for length in (32, 512))
    assert float(home[3]) == pytest.approx(97, abs=1)
    assert int(away.argmax()) == 361
    assert float(away[361]) > 1.5 * float(away[3])
    turns = (358 * rl.rope_frequencies(32) / (2 * math.pi)).tolist()
    assert f"{turns[0]:.1f}, {turns[1]:.1f} and {turns[2]:.1f} turns of its three fastest hands" in TEXT


def test_what_the_lab_says():
    """87 and 83 % with a fifth pair, which turns by 3.8 radians from 3 to 380; 92 % at home without it."""
    assert [f"{float(head([3, 1, 1, 1, 1], length)[3]):.0f}" for length in (64, 512)] == ["87", "83"]
    assert f"{377 * float(rl.rope_frequencies(16)[4]):.1f}" == "3.8"
    assert f"{float(head([4, 3, 2, 1], 512)[380]):.0f}" == "31"
    assert f"{float(head([3, 1, 1, 1], 64)[3]):.0f}" == "92"
    for said in ("This gets 87 % in 64 tokens and 83 % in 512", "by 3.8 radians", "takes 31 %", "get 92 % there"):
        assert said in TEXT


def test_the_explorable_ends_where_it_did_not_begin():
    shown = figures.arrows()
    (shift,) = (knob for knob in shown.knobs if knob.name == "shift")
    assert shift.high * 15 % 360 != 0
    assert [knob.high for knob in shown.knobs if knob.name == "degrees"] == [90]
    assert "= ${place + value.shift}`" in shown.script  # the shift is shown where the thumb stands still
    assert "−24" in shown.svg
    assert 'replace("-", "−")' in shown.script


def test_figure_of_a_head():
    shown = figures.pairs_add_up(rl.rope_frequencies(16))
    assert "49 percent at distance 3" in shown.alt


def test_what_the_base_does_in_training() -> None:
    """The numbers of the deeper page, from every seed of the scoreboard."""
    page = (Path(__file__).parents[2] / "book" / "deeper" / "02_rotary.md").read_text("utf8")
    bases = ("rope-b100", "rope-b1000", "rope-b100000", "rope-b1e+06", "rope-per-head")
    assert all(len(bits(row)) == 3 for row in bases)
    assert all(-0.5 < ahead(row, "rope", "natural", 64)[0] < 0 for row in bases)
    means = [mean(right(row, "natural").values()) for row in ("rope", *bases)]
    assert 30 < min(means) < max(means) < 38
    assert round(mean(right("rope-window", "natural").values())) == 64
    gain, low, high = ahead("rope-b100000", "rope", "natural")
    assert f"100,000 is {-gain} points behind 10,000 ({-high} to {-low})" in page
    level = [ahead(row, "rope", "natural")[1:] for row in ("rope-b1000", "rope-b1e+06")]
    told = "1,000 and a million are level with it ({} to {} and {} to {})"
    assert told.format(*sum(level, ())).replace("-", "−") in page
