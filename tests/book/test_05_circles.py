"""One test for each labelled equation and theorem of chapter 05, for its explorable and its remarks on libraries."""

from __future__ import annotations

import functools
import itertools
import math
from functools import partial
from pathlib import Path

import pytest
import sympy
import torch

import rope_lessons as rl
from rope_lessons.figures import circles as figures
from rope_lessons.models import byte_lm
from rope_lessons.stored import results
from tests.llama import last_states, llama
from tests.seeds import ahead, right

TEXT = (Path(__file__).parents[2] / "book" / "05_circles.md").read_text("utf8")
STORED = results("circles")
CASES = [(128, 4096, 10_000.0), (8, 512, 10_000.0), (64, 64, 10_000.0), (128, 8192, 500_000.0)]


def speeds(frequencies: torch.Tensor, base: float = 10_000.0) -> torch.Tensor:
    return frequencies / rl.rope_frequencies(2 * len(frequencies), base)


# --- the derivation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "length", "base"), CASES)
def test_eq_circles_turns(dim, length, base):
    """Counted by walking: how often the hand has come past its start."""
    frequencies = rl.rope_frequencies(dim, base)
    turned = rl.circles.turns(frequencies, length)
    for t in (0, dim // 4, dim // 2 - 1):
        angle, walked = 0.0, 0
        for _ in range(length):
            angle += float(frequencies[t])
            if angle >= 2 * math.pi:
                angle, walked = angle - 2 * math.pi, walked + 1
        assert walked + angle / (2 * math.pi) == pytest.approx(float(turned[t]), rel=1e-9)


def test_turns_by_hand():
    assert 64 / (2 * math.pi) == pytest.approx(10.2, abs=0.05)
    assert rl.circles.turns(rl.rope_frequencies(4), 64).tolist() == pytest.approx([10.186, 0.10186], rel=1e-4)
    assert rl.circles.turns(rl.rope_frequencies(4), 5).tolist() == pytest.approx([0.8, 0.008], abs=0.005)
    turned = rl.circles.turns(rl.rope_frequencies(128), 4096)
    assert (int((turned >= 1).sum()), int((turned >= 32).sum()), round(float(turned[0]))) == (46, 21, 652)
    assert float(turned[45]) == pytest.approx(1.004, abs=5e-4)
    assert round(float(turned[20])) == 37


@pytest.mark.parametrize(("dim", "length", "base"), CASES)
def test_eq_circles_pair(dim, length, base):
    """The pair with that number makes that many turns, and pairs up to t(1) are the closed ones."""

    def pair(turned: float) -> float:
        return dim / 2 * math.log(length / (2 * math.pi * turned)) / math.log(base)

    for turned in (0.2, 1, 7, 32):
        omega = base ** (-2 * pair(turned) / dim)
        assert length * omega / (2 * math.pi) == pytest.approx(turned)
    closed = int((rl.circles.turns(rl.rope_frequencies(dim, base), length) >= 1).sum())
    assert closed == math.floor(pair(1)) + 1
    assert math.log10(512 / (2 * math.pi)) == pytest.approx(1.911, abs=5e-4)  # d = 8


@pytest.mark.parametrize(("dim", "length", "base"), CASES)
@pytest.mark.parametrize(("slow", "fast"), [(1, 32), (1, 4), (0.5, 2)])
def test_eq_circles_parts(dim, length, base, slow, fast):
    """Written out pair by pair, in Python numbers."""
    found = rl.ntk_by_parts_frequencies(dim, 8, length, base, alpha=slow, beta=fast)
    for t in range(dim // 2):
        omega = base ** (-2 * t / dim)
        kept = min(max((length * omega / (2 * math.pi) - slow) / (fast - slow), 0), 1)
        assert float(found[t]) == pytest.approx(kept * omega + (1 - kept) * omega / 8, rel=1e-12)


def test_parts_by_hand():
    """The table of the section, the toy d = 4, and what NTK does to pairs 20 and 46."""
    assert speeds(rl.ntk_by_parts_frequencies(8, 8, 512)).tolist() == pytest.approx([1, 0.3268, 1 / 8, 1 / 8], abs=5e-5)
    assert round(7.149 / 31, 4) == 0.2306
    toy = rl.ntk_by_parts_frequencies(4, 8, 64, alpha=1, beta=4)
    assert torch.allclose(toy, rl.ntk_frequencies(4, 8, variant="aware"), rtol=1e-12)
    ntk = speeds(rl.ntk_frequencies(128, 8, variant="aware"))
    assert [round(float(ntk[t]), 2) for t in (20, 46)] == [0.52, 0.22]


@pytest.mark.parametrize(("dim", "length", "base"), CASES)
@pytest.mark.parametrize("factor", [2, 8])
def test_thm_circles_reach(dim, length, base, factor):
    """By search over lengths, and a speed a little above 1/κ falls short."""
    plain = rl.rope_frequencies(dim, base)
    is_open = rl.circles.turns(plain, length) < 1
    for slow in (1, 1.5):
        tested = rl.ntk_by_parts_frequencies(dim, factor, length, base, alpha=slow)
        longest = length
        while bool(((longest + 1 - 1) * tested <= (length - 1) * plain * (1 + 1e-12))[is_open].all()):
            longest += 1
        assert longest == 1 + factor * (length - 1)
    faster = plain[is_open] / factor * 1.001
    assert bool((factor * (length - 1) * faster > (length - 1) * plain[is_open]).all())


def test_eq_circles_temperature():
    """Scores of vectors turned with the factor in the tables, against scores without it; and with partial rotary."""
    nu = rl.yarn_attention_factor(8)
    assert nu == 0.1 * math.log(8) + 1
    assert (round(nu, 3), round(nu**2, 3), round(1 / nu**2, 2)) == (1.208, 1.459, 0.69)
    assert (round(rl.yarn_attention_factor(16), 3), round(rl.yarn_attention_factor(16) ** 2, 2)) == (1.277, 1.63)
    q, k = torch.randn(2, 1, 12, dtype=torch.float64)
    frequencies = rl.yarn_frequencies(8, 8, 512)  # 8 of 12 channels turn

    def score(scale: float, channels: slice) -> float:
        turned = (
            rl.apply_rotary(x, torch.tensor([m]), frequencies, layout="half", scale=scale)[:, channels]
            for x, m in ((q, 9), (k, 4))
        )
        a, b = turned
        return float(a @ b.T)

    assert score(nu, slice(0, 8)) == pytest.approx(nu**2 * score(1, slice(0, 8)))
    assert score(nu, slice(8, 12)) == pytest.approx(score(1, slice(8, 12)))
    assert rl.scheme("yarn", dim=64, factor=8, train_length=64).rotary_scale == nu


def test_eq_circles_phi():
    for factor, length in ((8, 4096), (32, 4096), (2, 100)):
        nu = rl.longrope_attention_factor(factor, length)
        assert nu**2 == pytest.approx(1 + math.log(factor) / math.log(length))
        assert nu**2 == pytest.approx(math.log(factor * length, length))
        scale = rl.log_n_scale(torch.tensor([factor * length]), length, clip=True)
        assert nu**2 == pytest.approx(float(scale))
    assert rl.longrope_attention_factor(8, 4096) ** 2 == pytest.approx(1.25)


@pytest.mark.parametrize(("dim", "length", "base"), [*CASES, (64, 131_072, 10_000.0), (64, 4096, 150_000.0)])
def test_eq_circles_code(dim, length, base):
    """Written out pair by pair, in Python numbers."""

    def pair(turned: float) -> float:
        return dim / 2 * math.log(length / (2 * math.pi * turned)) / math.log(base)

    first, last = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), dim - 1)
    found = rl.yarn_frequencies(dim, 8, length, base)
    for t in range(dim // 2):
        kept = 1 - min(max((t - first) / (last - first), 0), 1)
        assert float(found[t]) == pytest.approx((kept + (1 - kept) / 8) * base ** (-2 * t / dim), rel=1e-12)


@pytest.mark.parametrize(("dim", "length", "base"), [(128, 4096, 10_000.0), (128, 8192, 500_000.0), (8, 512, 10_000.0)])
@pytest.mark.parametrize(("slow", "fast"), [(1, 32), (2, 8)])
def test_thm_circles_ramps(dim, length, base, slow, fast):
    turned = rl.circles.turns(rl.rope_frequencies(dim, base), length)
    paper = speeds(rl.ntk_by_parts_frequencies(dim, 1e12, length, base, alpha=slow, beta=fast), base)  # the share
    code = speeds(rl.yarn_frequencies(dim, 1e12, length, base, beta_fast=fast, beta_slow=slow, truncate=False), base)
    in_logs = (torch.log(turned / slow) / math.log(fast / slow)).clamp(0, 1)
    assert torch.allclose(code, in_logs, atol=1e-9)
    between = (turned > slow) & (turned < fast)
    assert bool((code > paper)[between].all())
    assert torch.allclose(code[~between], paper[~between], atol=1e-9)
    # The widest gap, by sympy: the slope of the difference is 0 there, and the second derivative negative.
    tau = sympy.symbols("tau", positive=True)
    gap = sympy.log(tau / slow) / sympy.log(sympy.Rational(fast, slow)) - (tau - slow) / (fast - slow)
    (widest,) = sympy.solve(sympy.diff(gap, tau), tau)
    assert float(widest) == pytest.approx((fast - slow) / math.log(fast / slow))
    assert float(sympy.diff(gap, tau, 2).subs(tau, widest)) < 0


def test_ramps_in_numbers():
    """What the section says of pairs, ends and gaps."""
    tau = 31 / math.log(32)
    assert tau == pytest.approx(8.9, abs=0.05)
    shares = ((tau - 1) / 31, math.log(tau) / math.log(32))
    assert [round(share, 2) for share in shares] == [0.26, 0.63]
    assert [round(share + (1 - share) / 8, 2) for share in shares] == [0.35, 0.68]
    assert math.log10(512 / (2 * math.pi * 32)) == pytest.approx(0.406, abs=5e-4)
    assert float(speeds(rl.yarn_frequencies(8, 8, 512))[1]) == 0.5625
    code, paper = speeds(rl.yarn_frequencies(128, 8, 4096)), speeds(rl.ntk_by_parts_frequencies(128, 8, 4096))
    assert int((code / paper).argmax()) == 36
    assert [t for t in range(64) if code[t] < paper[t] - 1e-12] == [21]  # the rounding outweighs the ramp
    assert float((code / paper).max()) == pytest.approx(2.3, abs=0.05)
    small = rl.ntk_by_parts_frequencies(64, 8, 64)
    assert float(speeds(small)[0]) == pytest.approx(0.38, abs=5e-3)
    assert bool((speeds(small) < 0.4).all())
    assert float(speeds(rl.yarn_frequencies(64, 8, 64))[0]) == 1
    assert float(rl.circles.turns(rl.rope_frequencies(64), 131_072)[31]) == pytest.approx(2.8, abs=0.05)
    assert math.ceil(32 * math.log(131_072 / (2 * math.pi)) / math.log(10_000)) == 35
    last = [float(speeds(f(64, 8, 131_072))[31]) for f in (rl.yarn_frequencies, rl.ntk_by_parts_frequencies)]
    assert last[0] > last[1] > 1 / 8  # 1/8 is what a cut at the last pair would give
    rounded, exact = (rl.yarn_frequencies(64, 32, 4096, 150_000.0, truncate=truncate) for truncate in (True, False))
    assert float((rounded / exact).max()) == pytest.approx(1.76, abs=5e-3)


@pytest.mark.parametrize(("length", "factor", "base"), [(8192, 8, 500_000.0), (4096, 32, 10_000.0)])
def test_eq_circles_llama3(length, factor, base):
    """Meta's three cases by wavelengths, against NTK-by-parts with the limits 1 and 4."""
    plain = rl.rope_frequencies(128, base)
    wanted = []
    for omega in plain.tolist():
        wavelength = 2 * math.pi / omega
        smooth = (length / wavelength - 1) / (4 - 1)
        if wavelength < length / 4:
            wanted.append(omega)
        elif wavelength > length / 1:
            wanted.append(omega / factor)
        else:
            wanted.append((1 - smooth) * omega / factor + smooth * omega)
    wanted = torch.tensor(wanted, dtype=torch.float64)
    assert torch.allclose(rl.ntk_by_parts_frequencies(128, factor, length, base, alpha=1, beta=4), wanted, rtol=1e-12)
    assert torch.allclose(rl.llama3_frequencies(128, factor, length, base), wanted, rtol=1e-12)


def test_llama3_is_close_to_a_switch():
    turned = rl.circles.turns(rl.rope_frequencies(128, 500_000.0), 8192)
    assert ((turned > 1) & (turned < 4)).nonzero().flatten().tolist() == list(range(29, 35))
    assert float(turned[35]) == pytest.approx(0.997, abs=1e-3)
    assert int((turned >= 1).sum()) == 35


def test_eq_circles_longrope():
    """The two lists on either side of the switch, and the other methods as lists."""
    short, long = [1.0, 1.0, 1.5, 2.0], [1.0, 3.0, 8.0, 9.0]
    plain = rl.rope_frequencies(8)
    for length, factors in ((1, short), (512, short), (513, long), (9999, long)):
        found = rl.longrope_frequencies(8, short, long, length=length, train_length=512)
        assert torch.allclose(found * torch.tensor(factors, dtype=torch.float64), plain, rtol=1e-12)
    for frequencies in (
        rl.pi_frequencies(8, 8), rl.ntk_frequencies(8, 8, variant="aware"), rl.yarn_frequencies(8, 8, 512)
    ):  # fmt: skip
        as_list = (plain / frequencies).tolist()
        found = rl.longrope_frequencies(8, [1.0] * 4, as_list, length=513, train_length=512)
        assert torch.allclose(found, frequencies, rtol=1e-12)
    assert (plain / rl.ntk_frequencies(8, 8, variant="aware")).tolist() == pytest.approx(
        [8 ** (2 * t / 6) for t in range(4)]
    )


def test_eq_circles_request():
    """By hand, and: within the training length the model is plain RoPE bit for bit."""
    assert max(1, (6000 + 2192) / 4096) == 2
    factor = max(1.0, (1000 + 500) / 4096)
    assert torch.equal(rl.yarn_frequencies(128, factor, 4096), rl.rope_frequencies(128))
    assert rl.yarn_attention_factor(factor) == 1


def test_eq_circles_seen():
    """8k served, 3k seen, 4k declared: over what is seen no open pair leaves its arc; over what is declared some do."""
    served, seen, declared = 8192, 3072, 4096
    plain = rl.rope_frequencies(128)
    is_open = rl.circles.turns(plain, seen) < 1
    over_seen = rl.ntk_by_parts_frequencies(128, served / seen, seen)
    assert bool(((served - 1) * over_seen <= seen * plain)[is_open].all())
    over_declared = rl.ntk_by_parts_frequencies(128, served / declared, declared)
    assert bool(((served - 1) * over_declared > 1.3 * (seen - 1) * plain)[is_open].any())
    assert served / seen > served / declared


def test_the_switch_in_numbers():
    plain, yarn = rl.rope_frequencies(128), rl.yarn_frequencies(128, 8, 4096)
    seen = (4100 * yarn - 4000 * plain) / yarn
    assert torch.allclose(seen[:21], torch.full((21,), 100.0, dtype=torch.float64))
    assert float(seen[36:].max()) < -4000
    assert float(seen[63]) == pytest.approx(4100 - 8 * 4000)
    assert 2 * math.pi * 10_000 ** (31 / 32) == pytest.approx(47_117, abs=0.5)


# --- what the chapter reads off the small model --------------------------------------------------------------------


def accuracies(table: str, **wanted) -> torch.Tensor:
    """Of every seed, in percent, in the order of the seeds."""
    found = STORED[table].where(**wanted)
    assert found["seed"] == STORED["seeds"], wanted
    return 100 * torch.tensor(found["accuracy"], dtype=torch.float64)


def at(method: str, length: int) -> torch.Tensor:
    return accuracies("rows", method=method, length=length)


def test_results_say_where_they_come_from():
    assert {"date", "hardware", "python", "torch", "seeds", "config"} <= STORED.keys()
    assert STORED["seeds"] == [0, 1, 2, 3, 4]
    chapter_03 = results("radix")
    assert STORED["config"] == chapter_03["config"]
    assert STORED["test_text"] == chapter_03["test_text"]
    # The same models: plain RoPE and PI are measured in both chapters.
    for method in ("rope", "pi", "ntk-aware"):
        for length in (64, 512):
            there, here = (found["rows"].where(method=method, length=length) for found in (chapter_03, STORED))
            assert there["accuracy"] == pytest.approx(here["accuracy"], abs=0.003)


@pytest.mark.parametrize("method", ["yarn", "llama3", "ntk-mixed"])
def test_stored_results_are_those_of_the_checkpoint(method):
    """Seed 0, computed again from the shipped model, by the schemes of the package."""
    options = {} if method == "ntk-mixed" else {"train_length": 64}
    plan = (rl.scheme(method, dim=64, factor=8, **options),) * 2
    hits, _ = byte_lm.evaluate(byte_lm.load(), byte_lm.evaluation_windows(), 512, plan)
    assert 100 * float(hits.mean()) == pytest.approx(float(at(method, 512)[0]), abs=0.3)


def test_ramp_and_temperature():
    """The first two tables of the section."""
    others = ("rope", "pi", "ntk-aware", "ntk-mixed", "by-parts", "llama3", "yarn-ramp")
    assert all(bool((at("yarn", 512) > at(other, 512)).all()) for other in others)
    chapter_03 = results("radix")["rows"]
    means = {
        name: sum(100 * r["accuracy"] for r in chapter_03 if r["method"] == name and r["length"] == 512) / 5
        for name in {row["method"] for row in chapter_03}
    }
    assert max(means, key=means.__getitem__) == "ntk-aware-128"
    assert round(means["ntk-aware-128"], 1) == 44.5
    assert float(at("yarn", 512).min()) > max(means.values())
    by_circles = float((at("yarn-ramp", 512) - at("ntk-aware", 512)).mean())
    by_temperature = float((at("yarn", 512) - at("yarn-ramp", 512)).mean())
    assert by_circles == pytest.approx(5, abs=1)
    assert by_temperature == pytest.approx(8.5, abs=0.05)
    assert float((at("yarn-ramp", 512) - at("rope", 512)).mean()) == pytest.approx(11.5, abs=0.05)
    assert float((at("yarn", 512) - at("rope", 512)).mean()) == pytest.approx(20, abs=0.05)
    gain = {
        name: float((at(f"{name}-temperature" if name != "yarn" else name, 512) - at(plain, 512)).mean())
        for name, plain in (("rope", "rope"), ("pi", "pi"), ("ntk-aware", "ntk-aware"), ("llama3", "llama3"),
                            ("yarn", "yarn-ramp"))
    }  # fmt: skip
    said = {"rope": 3.3, "pi": 2.6, "ntk-aware": 4.3, "llama3": 9.0, "yarn": 8.5}
    assert gain == pytest.approx(said, abs=0.06)
    assert float(at("yarn", 512).mean() - at("ntk-aware-temperature", 512).mean()) > 2


def test_entropy_of_attention():
    def entropy(method: str, length: int) -> torch.Tensor:
        found = STORED["entropies"].where(method=method, length=length)
        assert found["seed"] == STORED["seeds"]
        return torch.tensor(found["entropy"])

    trained, plain = entropy("rope", 64), entropy("rope", 512)
    ramp, yarn = entropy("yarn-ramp", 512), entropy("yarn", 512)
    assert bool((plain > trained + 1).all())
    assert bool((ramp.mean(0) < plain.mean(0)).all())
    assert bool((ramp > yarn + 0.5).all())
    ntk = entropy("ntk-aware", 512).mean(0)
    assert bool(((ntk - plain.mean(0)).abs() < 0.2).all())  # NTK's slower hands change little
    assert bool((yarn.mean(0) - trained.mean(0) < 0.4 * (plain.mean(0) - trained.mean(0))).all())


def test_the_rule_for_the_temperature_is_not_sharp():
    def curve(method: str, length: int) -> dict[float, float]:
        factors = sorted({row["attention_factor"] for row in STORED["temperatures"]})
        return {a: float(accuracies("temperatures", method=method, length=length, attention_factor=a).mean())
                for a in factors}  # fmt: skip

    long = curve("yarn", 512)
    assert max(long.values()) - min(long[a] for a in (1.2, 1.3, 1.4)) < 1.5
    assert long[1.2] - long[1.0] > 5
    short = list(curve("rope", 64).values())
    assert short[-1] < short[0] - 1
    assert all(later < earlier + 0.2 for earlier, later in itertools.pairwise(short))
    assert math.sqrt(1 + math.log(8) / math.log(64)) == pytest.approx(1.22, abs=6e-3)


def test_the_tax():
    plain = at("rope", 64)
    tax = {name: float((plain - at(name, 64)).mean()) for name in ("ntk-aware", "yarn", "pi")}
    for name in ("pi", "ntk-aware", "ntk-fixed", "ntk-mixed", "by-parts", "llama3", "yarn-ramp", "yarn"):
        assert bool((at(name, 64) < plain).all()), name
    assert tax["ntk-aware"] == pytest.approx(1, abs=0.6)
    assert tax["yarn"] == pytest.approx(5, abs=0.7)
    assert bool((at("yarn", 64) > at("yarn-ramp", 64)).all())
    assert bool((at("rope-temperature", 64) < plain).all())
    assert tax["pi"] / float(plain.mean()) == pytest.approx(0.5, abs=0.1)


def test_per_request():
    for name in ("pi", "ntk-aware", "dynamic-ntk", "llama3", "yarn"):
        assert torch.equal(at(f"{name}-request", 64), at("rope", 64))
    for name in ("pi", "llama3", "yarn"):
        for length in (128, 256):
            assert bool((at(f"{name}-request", length) > at(name, length)).all()), (name, length)
        assert torch.equal(at(f"{name}-request", 512), at(name, 512))
    worse = [int((at("ntk-aware-request", length) < at("ntk-aware", length)).sum()) for length in (128, 256)]
    assert worse == [4, 5]  # of five seeds
    dynamic = at("yarn-dynamic", 512)
    others = set(STORED["rows"].where(length=512)["method"]) - {"yarn-dynamic"}
    assert all(bool((dynamic > at(method, 512)).all()) for method in others)
    eighths = {
        name: torch.tensor(STORED["rows"].where(method=name, length=512)["accuracy_by_eighth"])
        for name in ("rope", "yarn", "yarn-dynamic")
    }
    assert torch.allclose(eighths["yarn-dynamic"][:, 0], eighths["rope"][:, 0], atol=2e-3)
    yarn = eighths["yarn"].mean(0)
    assert float(yarn.max() - yarn.min()) < 0.1  # nearly flat
    assert [round(100 * float(yarn[i])) for i in (0, -1)] == [53, 49]


def test_one_turn_is_not_a_law():
    def grid(length: int, nu: float) -> dict[tuple[float, float], float]:
        return {
            (slow, fast): float(
                accuracies("limits", slow=slow, fast=fast, length=length, attention_factor=nu).mean()
            )
            for slow in (0.25, 0.5, 1.0, 2.0) for fast in (2.0, 4.0, 8.0, 32.0) if fast > slow
        }  # fmt: skip

    for length, nu in ((64, 1.0), (512, 1.0), (512, 1.2079)):
        found = grid(length, nu)
        for fast in (2.0, 4.0, 8.0, 32.0):
            column = [found[slow, fast] for slow in (0.5, 1.0, 2.0) if fast > slow]
            assert column == sorted(column, reverse=True), (length, nu, fast)
            assert found[0.25, fast] > found[1.0, fast]
        for slow in (0.25, 0.5, 1.0, 2.0):
            others = [found[slow, fast] for fast in (2.0, 4.0, 8.0) if fast > slow]
            assert found[slow, 32.0] < min(others) - 2
        best = max(found, key=found.__getitem__)
        assert best in ((0.25, 2.0), (0.5, 2.0))


def test_seen_or_declared():
    """The larger factor is better for NTK; the smaller one for PI, and beyond 128 for Llama 3's rule and for YaRN."""
    for length in (128, 256, 512):
        better = {
            name: float((accuracies("declared", method=f"{name}-seen", length=length)
                         - accuracies("declared", method=f"{name}-declared", length=length)).mean())
            for name in ("pi", "ntk-aware", "llama3", "yarn")
        }  # fmt: skip
        assert better["ntk-aware"] > 0.5, length
        assert better["pi"] < -1, length
        for name in ("llama3", "yarn"):
            assert better[name] == pytest.approx(0, abs=0.5) if length == 128 else better[name] < -0.5, (length, name)
    ntk = [float(accuracies("stretches", method="ntk-aware", factor=4.0 * x).mean()) for x in (0.5, 1, 2, 4)]
    assert ntk == sorted(ntk)


def test_where_the_smaller_factor_gains():
    """Seed 0: PI's gain comes from the closed pairs; of the other two more from the open ones, at 512 bytes."""
    model, windows = byte_lm.load(), byte_lm.evaluation_windows()[::16]
    plain = rl.rope_frequencies(64)
    closed = rl.circles.turns(plain, 64) >= 1

    def score(frequencies: torch.Tensor, length: int, scale: float) -> float:
        attend = partial(rl.attention, frequencies=frequencies)
        plan = (rl.scheme("rope", dim=64, rotary_scale=scale),) * 2
        return 100 * float(byte_lm.evaluate(model, windows, length, plan, attend=attend)[0].mean())

    def gains(seen: torch.Tensor, declared: torch.Tensor, length: int, scale: float = 1.0) -> list[float]:
        """Of the closed pairs alone, of the open ones alone."""
        mixed = torch.where(closed, declared, seen), torch.where(closed, seen, declared)
        before = score(seen, length, scale)
        return [score(x, length, scale) - before for x in mixed]

    from_closed, from_open = gains(plain * 64 / 256, plain * 85 / 256, 256)
    assert from_closed > 2
    assert from_open < from_closed / 3
    for frequencies, scale in ((rl.llama3_frequencies, 1.0), (rl.yarn_frequencies, rl.yarn_attention_factor(8))):
        from_closed, from_open = gains(frequencies(64, 8, 64), frequencies(64, 512 / 85, 85), 512, scale)
        assert from_open > from_closed > 0


# --- the explorable and its text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("log_length", [6, 9, 12, 17])
@pytest.mark.parametrize("fast", [2, 4, 32, 64])
def test_explorable_speeds_are_the_packages(log_length, fast):
    """The closed forms that the script uses are the package's frequencies."""
    length = 2**log_length
    done, paper, code = figures._speeds(8, fast, length)
    assert torch.allclose(torch.tensor(done, dtype=torch.float64), rl.circles.turns(rl.rope_frequencies(64), length))
    for drawn, exact in (
        (paper, rl.ntk_by_parts_frequencies(64, 8, length, beta=fast)),
        (code, rl.yarn_frequencies(64, 8, length, beta_fast=fast)),
    ):
        assert torch.allclose(torch.tensor(drawn, dtype=torch.float64), speeds(exact), rtol=1e-12)


def test_explorable_says_what_it_shows():
    """9 open pairs at 4096; rings and dots come together at 4; at 64 the rings leave the top and the dots do not."""
    shown = figures.circles_speeds()
    assert ">9 of 32 pairs never went round in 4096 positions<" in shown.svg
    assert "the 9 pairs with less than one turn" in shown.alt

    def apart(fast: int, log_length: int) -> float:
        _, paper, code = figures._speeds(8, fast, 2**log_length)
        return max(abs(a - b) for a, b in zip(paper, code, strict=True))

    assert apart(4, 12) < apart(32, 12) / 2
    _, paper, code = figures._speeds(8, 32, 64)
    assert max(paper) < 0.5
    assert code[0] == 1


# --- what the chapter says about libraries -------------------------------------------------------------------------


def agrees(frequencies: torch.Tensor, expected: torch.Tensor) -> bool:
    """To float32 rounding: a power, a division and a sum, each to 2^-24, and the power's error of some units."""
    return torch.allclose(frequencies.double(), expected, rtol=16 * 2**-24, atol=0)


@pytest.mark.parametrize(
    ("dim", "factor", "length", "base", "extra"),
    [
        (128, 8.0, 4096, 10_000.0, {}),
        (64, 32.0, 4096, 150_000.0, {"truncate": False}),
        (64, 4.0, 131_072, 10_000.0, {}),
        (64, 8.0, 64, 10_000.0, {"beta_fast": 16.0, "beta_slow": 2.0}),
    ],
)
def test_library_yarn(dim, factor, length, base, extra):
    rope = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length, **extra}
    rotary = llama({**rope, "rope_theta": base}, length=int(factor * length), head_dim=dim).rotary_emb
    assert agrees(rotary.inv_freq, rl.yarn_frequencies(dim, factor, length, base, **extra))
    assert rotary.attention_scaling == pytest.approx(rl.yarn_attention_factor(factor))
    cos, _ = rotary(torch.zeros(1, 1, dim), torch.zeros(1, 1, dtype=torch.long))
    assert float(cos[0, 0, 0]) == pytest.approx(rl.yarn_attention_factor(factor), rel=1e-6)
    if dim == 128:  # and it is not the paper's ramp
        assert not torch.allclose(rotary.inv_freq.double(), rl.ntk_by_parts_frequencies(dim, factor, length), rtol=0.5)


def test_library_llama3():
    rope = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    rope |= {"rope_theta": 500_000.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rotary = llama(rope, length=131_072, head_dim=128).rotary_emb
    expected = rl.ntk_by_parts_frequencies(128, 8, 8192, 500_000.0, alpha=1, beta=4)
    assert torch.allclose(rotary.inv_freq.double(), expected, rtol=1e-5)
    assert rotary.attention_scaling == 1


LONGROPE = {
    "rope_type": "longrope", "original_max_position_embeddings": 16, "factor": 4.0,
    "short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 4.0, 4.0, 4.0],
}  # fmt: skip


@torch.no_grad()
def test_what_frequencies_could_do_at_best():
    """LongRoPE's searched factors, seed 0: the numbers of the lesson, and the search behind them."""
    board = results("scoreboard")["rows"]

    def percent(row, metric, length=512):
        return 100 * board.where(rung="small", row=row, metric=metric, length=length)["mean"][0]

    plain, factor = "longrope-without-factor", "longrope"
    assert (
        f"The best that it found has {percent(plain, 'natural'):.1f} % of all bytes and costs nothing at home" in TEXT
    )
    assert board.where(rung="small", row=plain, metric="tax", length=64)["mean"][0] < 0.002
    told = percent(factor, "far copies"), percent(factor, "needle")
    assert "has {:.1f} % of the far copies, as many as the window, and {:.0f} % of the needles".format(*told) in TEXT
    assert abs(told[0] - percent("rope-window", "far copies")) < 0.5
    assert percent(plain, "natural") < percent("rope-window", "natural")
    start, middle, end = (percent(factor, f"needle {place}") for place in ("0", "0.5", "1"))
    assert f"{start:.0f} % of those at the start and {middle:.0f} % of those in the middle" in TEXT
    assert end < 2  # "nearly all are far ones"
    assert [percent("rope-window", f"needle {place}") for place in ("0", "0.5")] == [0, 0]
    assert "There the window finds none" in TEXT
    assert results("longrope")["evaluations"] == {factor: 600, plain: 600}
    assert set(board.where(row=factor, rung="small")["seeds"]) == {1}


def test_library_longrope_switch():
    model = llama(LONGROPE, length=64)
    tokens = torch.randint(50, (1, 20), generator=torch.Generator().manual_seed(1))
    at_once, by_steps = last_states(model, tokens[:, :16])  # up to the training length: no switch
    assert (at_once - by_steps).abs().max() < 1e-5
    at_once, by_steps = last_states(model, tokens)
    assert (at_once - by_steps).abs().max() > 0.1
    for length, factors in ((16, "short_factor"), (17, "long_factor")):
        model(tokens[:, :length], use_cache=False)
        expected = rl.rope_frequencies(16) / torch.tensor(LONGROPE[factors], dtype=torch.float64)
        assert agrees(model.rotary_emb.inv_freq, expected)


def test_library_phi3_drops_the_cache():
    from transformers import DynamicCache, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32}
    sizes |= {"vocab_size": 50, "max_position_embeddings": 64}
    sizes |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    rope = {**LONGROPE, "rope_theta": 10_000.0}
    phi = Phi3ForCausalLM(Phi3Config(original_max_position_embeddings=16, rope_parameters=dict(rope), **sizes))
    plain = LlamaForCausalLM(llama(LONGROPE, length=64).config)

    def kept(model, length: int) -> bool:
        cache = DynamicCache()
        cache.update(*torch.zeros(2, 1, 2, length - 1, 16), 0)
        tokens = torch.zeros(1, length, dtype=torch.long)
        found = model.prepare_inputs_for_generation(tokens, past_key_values=cache, next_sequence_length=1)
        assert found["input_ids"].shape[1] == (1 if found.get("past_key_values") is cache else length)
        return found.get("past_key_values") is cache

    assert kept(phi, 16)
    assert not kept(phi, 17)
    assert kept(phi, 18)
    assert kept(plain, 17)


# --- the scoreboard, as the lesson reads it -------------------------------------------------------------------------


def board(row: str, metric: str, length: int) -> float:
    line = results("scoreboard")["rows"].where(rung="small", row=row, metric=metric, length=length)
    return round(100 * line["mean"][0], 1)


def test_the_lessons_numbers_are_the_scoreboards():
    for said, row, metric, length in (
        ("falls from 62.6 % at home", "rope", "natural", 64),
        ("to 37.3 % at 512 bytes", "rope", "natural", 512),
    ):
        assert said in TEXT
        assert str(board(row, metric, length)) in said
    assert min(round(board(row, "natural", 512)) for row in ("llama3", "yarn-without-factor", "yarn")) >= 55
    assert max(round(board(row, "natural", 512)) for row in ("llama3", "yarn", "yarn-without-factor-logn-test")) <= 57
    assert round(board("ntk-aware", "natural", 512)) == 46
    assert (round(board("rope", "needle", 64)), round(board("yarn", "needle", 64))) == (99, 6)


def test_nothing_in_the_table_beats_the_window():
    rows = ["rope", "pi", "ntk-aware", "ntk-by-parts", "llama3", "yarn-without-factor", "yarn", "yarn-logn-test"]
    rows += ["yarn-without-factor-logn-test"]
    assert "on our model at least as good as any formula in every column" in TEXT
    for metric, length in (("natural", 64), ("natural", 512), ("far copies", 512), ("needle", 64), ("needle", 512)):
        assert max(board(row, metric, length) for row in rows) <= board("rope-window", metric, length)
    assert board("rerope-w32-logn-test", "far copies", 512) > board("rope-window", "far copies", 512)


def test_far_copies_below_the_control_show_damage():
    """Windows of eight see 28 bytes and have nearly as many as the control: most far copies are guessed from nearby."""
    assert "windows of 8, which through four layers reach 28 bytes back, the model has 70 % right" in TEXT
    assert 4 * (8 - 1) == 28
    assert round(board("window-8", "far copies", 512)) == 70
    assert "below the control's 72 % this column shows damage" in TEXT
    assert round(board("rope-window", "far copies", 512)) == 72


def test_the_dials_and_the_tested_model_have_different_hands():
    """Eight hands and sixteen, one after each; by the paper's limits the second speeds differ."""
    assert "sixteen hands per head (the eight that you know and one after each)" in TEXT
    assert torch.allclose(rl.rope_frequencies(32)[::2], rl.rope_frequencies(16))
    second = [round(float(speeds(rl.ntk_by_parts_frequencies(dim, 8, 64))[1]), 2) for dim in (16, 32)]
    assert second == [0.19, 0.26]
    assert "a small model was trained on" in TEXT
    assert "this model" not in TEXT


def test_third_hand_by_hand():
    """1.0186 turns, and not 1.02, give the share and the speed."""
    turned = round(float(rl.circles.turns(rl.rope_frequencies(16), 64)[2]), 4)
    kept = (turned - 1) / 3
    assert (turned, round(kept, 3), round(kept + (1 - kept) / 8, 3)) == (1.0186, 0.006, 0.130)
    assert "- pair 2 makes 1.0186, so $\\mu = 0.006$ and its speed is $0.006 + 0.994/8 = 0.130$" in TEXT


def test_gpt_oss_does_not_round_the_ends():
    from transformers import CONFIG_MAPPING

    rope = CONFIG_MAPPING["gpt_oss"]().rope_parameters
    assert (rope["rope_type"], rope["truncate"]) == ("yarn", False)
    assert "in gpt-oss (its ends unrounded)" in TEXT


def test_each_formula_of_the_figure_pays_and_the_list_does_not():
    """Up by moving left: not so LongRoPE's list without its factor, nor the window."""
    assert "caption: Each formula moves up by moving left; the window moves straight up." in TEXT
    for row in ("ntk-aware", "llama3", "yarn"):
        assert board(row, "natural", 64) < board("rope", "natural", 64)
        assert board(row, "natural", 512) > board("rope", "natural", 512)
    assert board("rope-window", "natural", 64) == board("rope", "natural", 64)
    assert board("longrope-without-factor", "tax", 64) == 0


def test_two_hands_do_nearly_all_the_work():
    plain, whole = board("rope", "natural", 512), board("llama3", "natural", 512)
    assert round(board("slowed-from-a-quarter", "natural", 512) - plain) == 16
    assert (whole - plain) == pytest.approx(18, abs=0.6)
    tax = {row: board("rope", "natural", 64) - board(row, "natural", 64) for row in ("llama3", "slowed-from-a-quarter")}
    assert tax["slowed-from-a-quarter"] / tax["llama3"] == pytest.approx(0.5, abs=0.1)
    added = board("slowed-open", "far copies", 512) - board("slowed-from-a-quarter", "far copies", 512)
    assert round(added) == 5
    switch, ramp = (
        [board(row, "natural", length) for length in (64, 512)] for row in ("slowed-open", "yarn-without-factor")
    )
    assert [round(b - a) for a, b in zip(switch, ramp, strict=True)] == [-1, 2]
    for metric, length in (("natural", 64), ("natural", 512)):
        assert abs(board("slowed-below-a-quarter", metric, length) - board("rope", metric, length)) <= 1.1
    turned = rl.circles.turns(rl.rope_frequencies(32), 64)
    assert [int((turned >= 1).sum()), int(((turned < 1) & (turned >= 0.25)).sum())] == [5, 2]
    assert turned[5:7].tolist() == pytest.approx([0.57, 0.32], abs=0.005)


@functools.cache
def differences() -> dict[tuple[str, str, str, int], tuple[float, ...]]:
    """From the stored bits: by how much one row is ahead of another, with its interval, in percent."""
    bare = "yarn-without-factor"
    pairs = [("yarn", bare), (f"{bare}-logn-test", bare), ("yarn-logn-test", "yarn")]
    found = {(a, b, "far copies", 512): ahead(a, b, "far copies", 512) for a, b in pairs}
    found[("slowed-open", "llama3", "natural", 64)] = ahead("slowed-open", "llama3", "natural", 64)
    for length in (64, 512):
        found[(bare, "slowed-open", "natural", length)] = ahead(bare, "slowed-open", "natural", length)
    for pair in (("slowed-open", "slowed-from-a-quarter"), ("slowed-closed", "rope"), ("llama3", "slowed-open")):
        found |= {(*pair, metric, 512): ahead(*pair, metric, 512) for metric in ("natural", "far copies")}
    return found | {
        ("rope-window", "yarn", m, 512): ahead("rope-window", "yarn", m, 512) for m in ("natural", "far copies")
    }


def test_a_jump_does_hardly_any_harm():
    """A switch against Llama 3's ramp, on all bytes at 512: the interval holds zero; YaRN's longer ramp is ahead."""
    found = differences()
    assert found["llama3", "slowed-open", "natural", 512] == (0.4, -0.4, 1.3)
    assert found["yarn-without-factor", "slowed-open", "natural", 512][1] > 0
    assert "On all bytes at 512 a hard switch at one turn does about as well as Llama 3's ramp" in TEXT
    assert (
        "So the jump as such does hardly any harm here, and a longer ramp helps a little, at a price at home." in TEXT
    )


def test_paired_differences_of_the_lesson():
    found = list(differences().values())
    assert found[0] == (2.1, 0.8, 3.4)
    assert found[1] == (1.8, 0.7, 2.9)
    assert round(found[2][0]) == -1
    assert found[2][2] < 0
    assert found[3] == (1.6, 1.1, 2.0)
    assert "($\\nu$ +2.1, between 0.8 and 3.4; log n† +1.8, between 0.7 and 2.9)" in TEXT
    assert "pays 1.6 points less at home (between 1.1 and 2.0)" in TEXT
    assert found[4:6] == [(-1.1, -1.5, -0.8), (1.7, 1.1, 2.3)]
    said = "gains 1.7 at 512 over the switch (between 1.1 and 2.3), and costs 1.1 at home (between 0.8 and 1.5)"
    assert said in TEXT
    assert found[-2:] == [(7.8, 6.3, 9.2), (3.9, 0.5, 7.3)]
    assert "by 7.8 points on all bytes, between 6.3 and 9.2, and by 3.9 on far copies, between 0.5 and 7.3" in TEXT


def test_the_nine_slowest_hands_are_masked():
    """Alone next to nothing; after pairs 5 and 6 more, though both intervals hold zero."""
    found = differences()
    nine = [found["slowed-open", "slowed-from-a-quarter", metric, 512] for metric in ("natural", "far copies")]
    assert nine == [(1.5, -1.0, 3.9), (5.1, -0.1, 10.3)]
    said = "the nine add 1.5 points on all bytes (between −1.0 and 3.9) and 5.1 on far copies (between −0.1 and 10.3)"
    assert said in TEXT
    assert found["slowed-closed", "rope", "natural", 512] == (0.8, -0.2, 1.8)
    assert found["llama3", "slowed-open", "natural", 512] == (0.4, -0.4, 1.3)
    assert "The closed ones bring nothing at 512 that is sure" in TEXT
    assert found["slowed-closed", "rope", "far copies", 512] == (1.6, -0.6, 3.8)
    assert found["llama3", "slowed-open", "far copies", 512] == (1.5, 0.0, 3.0)
    two, all_of_them = (board(row, "far copies", 512) - board("rope", "far copies", 512)
                        for row in ("slowed-from-a-quarter", "llama3"))  # fmt: skip
    assert (round(two), round(all_of_them)) == (25, 31)
    assert "On far copies it is 25 of 31" in TEXT
    assert "not every one hurts" not in TEXT


def test_the_needles_of_each_seed():
    """Seeds differ enormously: too much to say whether two losses together are more than their sum."""
    kept = [round(of_seed) for of_seed in right("slowed-from-a-quarter", "needle", 64).values()]
    assert kept == [87, 22, 46, 82, 81]
    assert "the five models keep 87, 22, 46, 82 and 81 %" in TEXT
    left = {row: board(row, "needle", 64) for row in ("slowed-closed", "slowed-open", "llama3")}
    assert [round(value) for value in left.values()] == [64, 56, 8]
    assert "Pairs 2 to 4 alone leave 64 %, pairs 5 to 15 leave 56; together they take nearly all." in TEXT


def test_far_needles_are_not_found():
    """At the start and in the middle of 512 bytes."""
    rows = ["rope", "pi", "ntk-aware", "ntk-by-parts", "llama3", "yarn-without-factor", "yarn", "yarn-logn-test"]
    rows += ["yarn-without-factor-logn-test", "rope-window"]
    assert max(board(row, metric, 512) for row in rows for metric in ("needle 0", "needle 0.5")) < 10
    assert "no formula of the table finds one in ten of those at the start or in the middle" in TEXT


def test_the_papers_limits_are_nearly_pi():
    speed = speeds(rl.ntk_by_parts_frequencies(32, 8, 64))
    assert [round(float(x), 2) for x in speed[:2]] == [0.38, 0.26]
    assert float(speed.max()) < 0.39
    assert "the first to 0.38 of its speed, the second to 0.26, nearly as by PI" in TEXT


def test_ntk_aware_with_its_own_factor_gets_as_far():
    """The live table: at 512 the lead of counting is the choice of the factor."""
    from rope_lessons.scoreboard import live

    model, texts = live.load(), live.windows()[:16]

    def percents(name: str, **options) -> list[float]:
        scheme = rl.scheme(name, dim=32, **options)
        return [live.percent(model, scheme, texts, length) for length in (64, 512)]

    ntk = percents("ntk-aware", factor=256)
    for name in ("llama3", "yarn"):
        other = percents(name, factor=8, train_length=64)
        assert 0.6 < other[0] - ntk[0] < 1.4
        assert ntk[1] > other[1] - 0.5
    assert "It gets as far, about a point dearer at home on this seed" in TEXT


def test_tuning_in_numbers():
    """After 200 steps at 512 little is left between YaRN and RoPE with nothing changed."""
    lines = results("scoreboard")["rows"].where(rung="small-tuned-10", metric="natural", length=512)
    found = {row: lines.where(row=row) for row in ("yarn", "rope")}
    assert [round(100 * line["mean"][0], 1) for line in found.values()] == [67.4, 66.6]
    assert all(line["seeds"] == [3] for line in found.values())
    assert "on three seeds, YaRN has 67.4 % of all bytes there, and RoPE with nothing changed 66.6" in TEXT
    assert board("rope-window", "natural", 512) == 64.3
    assert "the window, without training, has 64.3" in TEXT


def test_a_closed_pair_has_no_angle_far_from_a_trained_one():
    """Half a token's turn at most: the sorted angles of training leave no gap of more than a step."""
    for omega in rl.rope_frequencies(128).tolist()[:46]:
        angles = torch.sort(torch.arange(4096, dtype=torch.float64) * omega % (2 * math.pi)).values
        gaps = torch.diff(angles, append=angles[:1] + 2 * math.pi)
        assert float(gaps.max()) <= omega * (1 + 1e-9)


def test_the_two_counts_of_open_agree_but_for_a_close_call():
    plain = rl.rope_frequencies(128)
    assert torch.equal(4096 * plain >= 2 * math.pi, 4095 * plain >= 2 * math.pi)


def test_wavelengths_of_llama_2():
    assert (4096 / 32, 4096 / 1) == (128, 4096)
    found = rl.ntk_by_parts_frequencies(128, 8, 4096)
    plain = rl.rope_frequencies(128)
    wavelength = 2 * math.pi / plain
    assert torch.equal(found == plain, wavelength <= 128)
    assert torch.allclose((found / plain)[wavelength >= 4096], torch.tensor(1 / 8, dtype=torch.float64))


def test_the_rule_of_a_request_falls_short_by_less_than_the_factor():
    for served, seen in ((8192, 4096), (512, 64)):
        factor = served / seen
        assert 1 + factor * (seen - 1) == served - (factor - 1)
        assert (served - 1) / (seen - 1) > factor
    assert "the last $\\kappa - 1$ tokens still stand outside" in TEXT
    assert "thm-circles-reach`, a little larger, passes as well" in TEXT


def test_hands_slowed_are_counted():
    """The switch is not free: five of eight hands turn slower at home, and with the ramp seven."""
    switch = rl.ntk_by_parts_frequencies(16, 8, 64, alpha=1, beta=1.001)
    ramp = rl.ntk_by_parts_frequencies(16, 8, 64, alpha=1, beta=4)
    plain = rl.rope_frequencies(16)
    assert [int((method < plain * (1 - 1e-9)).sum()) for method in (switch, ramp)] == [5, 7]
    assert "slows two more hands than the switch: pair 1, and pair 2 almost by the whole factor" in TEXT
    assert float(ramp[2] / plain[2]) == pytest.approx(1 / 8, abs=0.006)
    shown = rl.figures.dials_explorable(methods={"switch": lambda factor: switch}, method="switch", length=64)
    assert "No hand shows a new angle within 64 tokens. 5 of 8 turn slower than in training." in shown.says
    one = rl.figures.dials_explorable(
        methods={"one": lambda factor: torch.cat([plain[:3] / 8, plain[3:4], plain[4:] / 8])}, method="one"
    )
    assert "1 of 8 hands shows new angles within 512 tokens. 7 of 8 turn slower" in one.says


def test_the_lists_of_phi():
    """What the deeper page reads off its figure."""
    from rope_lessons.hf.released import known

    model = known("Phi-3.5 mini")
    options = dict(model.plan()[0].frequencies.options)
    short, long = (torch.tensor(options[f"{which}_factor"]) for which in ("short", "long"))
    plain = rl.rope_frequencies(96)
    turned = rl.circles.turns(plain, 4096)
    assert model.claimed / 4096 == 32
    is_open = turned < 1
    assert bool(((long[is_open] / 32 - 2).abs() < 0.05).all())
    assert (round(float(turned[22])), round(float(long[22]))) == (10, 42)
    yarn = plain / rl.yarn_frequencies(96, 32, 4096)
    assert float(yarn[22]) == pytest.approx(1.5, abs=0.06)
    assert (round(float(turned[7])), round(float(long[7]), 1)) == (170, 2.6)
    assert float(short[24:].min()) >= 1.98
    assert float(short[23]) < 1.95
    assert "48 pairs of Phi-3.5 mini" in figures.circles_longrope().alt


def test_yarns_letters():
    deeper = (Path(__file__).parents[2] / "book" / "deeper" / "05_circles.md").read_text("utf8")
    assert "its $\\sqrt{1/t}$ is our $\\nu$, its $s$ our $\\kappa$" in deeper
    assert math.sqrt(1 / (1 / rl.yarn_attention_factor(8) ** 2)) == pytest.approx(0.1 * math.log(8) + 1)
