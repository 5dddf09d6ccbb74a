"""One test for each labelled equation and theorem of chapter 07, its stored numbers and its remarks on libraries."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import rope_lessons as rl
from experiments import scoreboard_hits as hits
from experiments import scoreboard_table as table
from experiments.scoreboard_jobs import kept_model
from rope_lessons.exercises.local import lab_heads, lab_looks_back, lab_plan
from rope_lessons.figures import local as figures
from rope_lessons.lab.table.passkey import NEEDLE, QUESTION, needle_depth, passkey_windows
from rope_lessons.models import byte_lm, recall
from rope_lessons.scoreboard import live
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.rows import rows
from rope_lessons.scoreboard.scoring import Settings
from rope_lessons.stored import DATA, results
from rope_lessons.streaming import streaming_attention
from tests.book.drawn import Drawn

STORED = results("local")
LESSON, DEEPER = (
    (Path(__file__).parents[2] / "book" / folder / "07_local.md").read_text("utf8") for folder in ("", "deeper")
)


def index_of(length: int) -> torch.Tensor:
    return torch.arange(length)


# --- masks and fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 5, 50])
def test_eq_local_window(window):
    """The mask, and what attention itself does: exactly these keys change the output of a query."""
    length = 12
    mask = rl.local.dense_mask(rl.local.causal_mask, index_of(length), index_of(length))
    mask &= rl.local.dense_mask(rl.local.window_mask(window), index_of(length), index_of(length))
    assert mask.tolist() == [[0 <= i - j < window for j in range(length)] for i in range(length)]
    assert torch.equal(seen_by(rl.scheme("window", dim=8, visible_window=window), length), mask)


def seen_by(scheme, length: int) -> torch.Tensor:
    """Which values reach which outputs: one-hot values come back as the weights."""
    q, k = torch.randn(2, 1, 1, length, 8, generator=torch.Generator().manual_seed(0))
    return rl.attention(q, k, torch.eye(length).view(1, 1, length, length), scheme)[0, 0] > 0


@pytest.mark.parametrize(("window", "layers"), [(3, 2), (5, 3), (1, 4), (4, 1)])
def test_thm_local_field(window, layers):
    """Powers of the mask, and the gradient of a real stack of attention layers."""
    length = 40
    for causal in (True, False):
        mask = rl.local.dense_mask(rl.local.window_mask(window), index_of(length), index_of(length))
        if causal:
            mask &= rl.local.dense_mask(rl.local.causal_mask, index_of(length), index_of(length))
        paths = torch.linalg.matrix_power(mask.double(), layers) > 0
        distance = index_of(length)[:, None] - index_of(length)[None, :]
        reach = (window - 1) * layers
        expected = (distance >= 0) & (distance <= reach) if causal else distance.abs() <= reach
        assert torch.equal(paths, expected)
        query = length - 1 if causal else length // 2
        assert int(paths[query].sum()) == rl.local.receptive_field(window, layers, causal)
        assert torch.equal(depends(window, layers, causal, length, query), expected[query])


def depends(window: int, layers: int, causal: bool, length: int, query: int) -> torch.Tensor:
    """Tokens whose embedding has a gradient from the state of ``query``."""
    torch.manual_seed(0)
    x = torch.randn(1, 1, length, 8, dtype=torch.float64, requires_grad=True)
    scheme = rl.scheme("window", dim=8, visible_window=window, causal=causal)
    state = x
    for _ in range(layers):
        w_q, w_k, w_v = torch.randn(3, 8, 8, dtype=torch.float64) / 3
        state = state + rl.attention(state @ w_q, state @ w_k, state @ w_v, scheme)
    (gradient,) = torch.autograd.grad(state[0, 0, query].sum(), x)
    return gradient[0, 0].abs().amax(dim=-1) > 0


@pytest.mark.parametrize("name", ["rope", "alibi", "nope"])
def test_thm_local_length(name):
    """The byte model with windows: the end of a long text gives the scores that its last tokens alone give."""
    window, layers = 7, 2
    turning = {"dim": 64} if name == "rope" else {}
    plan = (rl.scheme(name, visible_window=window, **turning),) * layers
    model = byte_lm.load().double()
    tokens = byte_lm.evaluation_windows()[:3, :300]
    field = rl.local.receptive_field(window, layers)
    with torch.no_grad():
        whole, end = model(tokens, plan)[:, -1], model(tokens[:, -field:], plan)[:, -1]
        shorter = model(tokens[:, -field + 1 :], plan)[:, -1]
    torch.testing.assert_close(whole, end, rtol=0, atol=1e-11)
    assert (whole - shorter).abs().max() > 1e-4  # one token less is not enough


def test_eq_local_lambda():
    for window, sinks in ((2, 1), (3, 2), (1, 0), (9, 4)):
        mask = rl.local.dense_mask(rl.local.lambda_mask(window, sinks), index_of(8), index_of(8))
        assert mask.tolist() == [[j <= i and (i - j < window or j < sinks) for j in range(8)] for i in range(8)]
    assert torch.equal(seen_by(rl.scheme("lambda", dim=8, visible_window=3, sinks=2), 9),
                       rl.local.dense_mask(rl.local.lambda_mask(3, 2), index_of(9), index_of(9)))  # fmt: skip


@pytest.mark.parametrize(("window", "sinks"), [(5, 2), (3, 1), (2, 4), (30, 3)])
def test_eq_local_streaming(window, sinks):
    """A cache that is trimmed step by step, positions counted inside it, against the distances of the equation."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 20, 8, dtype=torch.float64)
    at_once = streaming_attention(q, k, v, rl.scheme("lambda", dim=8, visible_window=window, sinks=sinks))
    for i in range(20):
        kept = [j for j in range(i + 1) if j < sinks or i - j < window]
        place = torch.arange(len(kept))
        for n, j in enumerate(kept):  # the distance inside the cache
            seen = len(kept) - 1 - n
            assert seen == (i - j if i - j < window else min(i, window + sinks - 1) - j)
        step = rl.attention(
            q[:, :, i : i + 1], k[:, :, kept], v[:, :, kept], rl.scheme("rope", dim=8),
            q_positions=place[-1:], k_positions=place,
        )  # fmt: skip
        torch.testing.assert_close(at_once[:, :, i : i + 1], step, rtol=0, atol=1e-12)


def test_distances_by_hand():
    """Token 1 of four sinks at query 500, in a cache and capped; and one sink, which both show alike."""
    for sinks, token, seen in ((4, 1, (34, 32)), (1, 0, (32, 32))):
        kept = [j for j in range(501) if j < sinks or 500 - j < 32]
        assert (len(kept) - 1 - kept.index(token), min(500 - token, 32)) == seen
    assert "token 1 at $\\min(500, 35) - 1 = 34$, LM-Infinite at $\\min(499, 32) = 32$." in DEEPER
    assert "(With a single sink both show it at $w$.)" in DEEPER


def test_the_widest_window_that_shows_no_new_distance():
    """The farthest that the caches show, in a text of eight times the training length: below N, or one beyond."""
    train = 64

    def streaming(window, sinks):
        return max(
            min(i, window + sinks - 1) - j if i - j >= window else i - j
            for i in range(8 * train)
            for j in range(i + 1)
            if i - j < window or j < sinks
        )

    for sinks in (1, 4):
        assert streaming(train - sinks, sinks) == train - 1
        assert streaming(train - sinks + 1, sinks) == train
    infinite = [max(min(i, window) for i in range(8 * train)) for window in (train - 1, train)]  # its sink, token 0
    assert infinite == [train - 1, train]
    assert "Training showed distances up to $N-1$; StreamingLLM shows the first sink at $w+S-1$." in LESSON
    assert "So keep $w+S \\le N$: with $N = 64$, four sinks leave a window of 60." in LESSON
    assert "So LM-Infinite shows no new distance as long as $w < N$, where StreamingLLM needs $w + S" in DEEPER
    assert "Keep it, at a distance that training showed: $w+S \\le N$." in LESSON


@pytest.mark.parametrize(("window", "sinks"), [(5, 2), (3, 1), (2, 4)])
def test_eq_local_infinite(window, sinks):
    """The scheme of LM-Infinite against the equation, score by score; with one sink it is StreamingLLM."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 20, 8, dtype=torch.float64)
    scheme = rl.scheme("rerope", dim=8, window=window, visible_window=window, sinks=sinks)
    out = rl.attention(q, k, v, scheme)
    omega = rl.rope_frequencies(8)
    for i in (0, 4, 19):
        kept = [j for j in range(i + 1) if j < sinks or i - j < window]
        distance = torch.tensor([min(i - j, window) for j in kept])
        turned = rl.apply_rotary(q[:, :, i : i + 1].expand(-1, -1, len(kept), -1), distance, omega, layout="half")
        weights = ((turned * k[:, :, kept]).sum(-1) / 8**0.5).softmax(-1)
        expected = torch.einsum("bhj,bhjd->bhd", weights, v[:, :, kept])
        torch.testing.assert_close(out[:, :, i], expected, rtol=0, atol=1e-12)
    streaming = streaming_attention(q, k, v, rl.scheme("lambda", dim=8, visible_window=window, sinks=sinks))
    assert torch.allclose(out, streaming, atol=1e-12) == (sinks == 1)
    cache = rl.KVCache(scheme)  # it can be decoded, which StreamingLLM's distances cannot
    steps = [rl.attention(q[:, :, [i]], k[:, :, [i]], v[:, :, [i]], scheme, cache=cache) for i in range(20)]
    torch.testing.assert_close(torch.cat(steps, dim=2), out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sink", [-3.0, 0.0, 2.0])
def test_eq_local_learned_sink(sink):
    """A number in the softmax is a key with that score and no value; and one factor after the kernel."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 9, 16, dtype=torch.float64)
    scheme = rl.scheme("rope", dim=16)
    turned_q, turned_k = (rl.apply_rotary(x, index_of(9), rl.rope_frequencies(16), layout="half") for x in (q, k))
    scores = (turned_q @ turned_k.mT / 4).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    with_sink = torch.cat((scores, torch.full((1, 2, 9, 1), sink).double()), dim=-1).softmax(-1)[..., :9]
    weights = scores.exp() / (math.exp(sink) + scores.exp().sum(-1, keepdim=True))
    torch.testing.assert_close(weights, with_sink, rtol=0, atol=1e-12)
    out, lse = rl.attention(q, k, v, scheme, return_lse=True)
    torch.testing.assert_close(out * torch.sigmoid(lse - sink)[..., None], weights @ v, rtol=0, atol=1e-12)


def test_learned_sink_by_hand():
    silent, found = (torch.tensor([score, 0.0, 2.0]).softmax(0)[0] for score in (0.0, 6.0))
    assert [round(float(x), 2) for x in (silent, found)] == [0.11, 0.98]
    assert [round(math.exp(x), 2) for x in (2, 6)] == [7.39, 403.43]


# --- ALiBi ---------------------------------------------------------------------------------------------------------


def test_eq_local_alibi():
    """Divided by the root of d: the product. Not divided: the price."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 9, 16, dtype=torch.float64)
    scores = q @ k.mT / 4
    distance = index_of(9)[:, None] - index_of(9)[None, :]
    scores = scores - torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256]).double().view(4, 1, 1) * distance
    weights = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
    torch.testing.assert_close(rl.attention(q, k, v, rl.scheme("alibi")), weights @ v, rtol=0, atol=1e-12)


def test_eq_local_slopes():
    for heads in (1, 2, 4, 8, 16, 64):
        assert rl.alibi_slopes(heads).tolist() == [2 ** (-8 * h / heads) for h in range(1, heads + 1)]
    assert [1 / s for s in rl.alibi_slopes(8).tolist()] == [2**h for h in range(1, 9)]
    twelve, sixteen = rl.alibi_slopes(12).tolist(), rl.alibi_slopes(16).tolist()
    assert twelve == rl.alibi_slopes(8).tolist() + sixteen[0:8:2]


def test_eq_local_soft():
    """Against the sum itself, and the numbers by hand."""
    for slope in rl.alibi_slopes(8).tolist():
        weights = torch.exp(-slope * torch.arange(20_000, dtype=torch.float64))
        weights /= weights.sum()
        for n in (1, 10, 300):
            assert float(weights[:n].sum()) == pytest.approx(1 - math.exp(-slope * n), abs=1e-9)
    held = [math.ceil(math.log(100) / slope) for slope in rl.alibi_slopes(8).tolist()]
    assert (held[0], held[-1]) == (10, 1179)
    assert [math.ceil(math.log(100) / slope) for slope in rl.alibi_slopes(4).tolist()][-1] == 1179
    assert RUNGS["small"].config.heads == 4
    assert [1 / slope for slope in rl.alibi_slopes(4).tolist()] == [4, 16, 64, 256]
    assert (round(4 * math.log(100), 1), math.ceil(256 * math.log(100))) == (18.4, 1179)
    assert "In the steepest head 1 % is left after $4 \\ln 100 = 18.4$ steps. The flattest" in LESSON
    assert "The flattest head would take 1,179, more than our texts have" in LESSON


def test_alibi_bound_of_a_far_key():
    """Products within ±S: a key at distance Δ has at most e^(2S - slope Δ) times the weight of the query's own key."""
    torch.manual_seed(0)
    largest, slope = 3.0, 0.25
    products = (2 * torch.rand(1000, 50, dtype=torch.float64) - 1) * largest
    products[0, 0], products[0, 30] = -largest, largest  # the worst case, for Δ = 30
    weights = (products - slope * torch.arange(50)).softmax(-1)
    ratio = weights / weights[:, :1]
    bound = torch.exp(2 * largest - slope * torch.arange(50).double())
    assert (ratio[:, 1:] <= bound[1:] * (1 + 1e-12)).all()
    assert float(ratio[0, 30]) == pytest.approx(float(bound[30]))


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "digits"), [(2, 2, 64, 1), (12, 4, 64, 2), (3, 1, 10, 3)])
def test_eq_local_channel(heads, kv_heads, dim, digits):
    """The product is the score plus slope times i; so PyTorch's fused kernel gives what the reference gives."""
    torch.manual_seed(0)
    length = 300
    q = torch.randn(1, heads, length, dim, dtype=torch.float64)
    k, v = torch.randn(2, 1, kv_heads, length, dim, dtype=torch.float64)
    more_q, more_k = rl.local.alibi_channels(q, k, digits=digits)
    slope = rl.alibi_slopes(heads).view(-1, 1, 1)
    i, j = index_of(length)[:, None], index_of(length)[None, :]
    spread_k, spread_more = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, more_k))
    score = q @ spread_k.mT / dim**0.5 - slope * (i - j)
    torch.testing.assert_close(more_q @ spread_more.mT / dim**0.5, score + slope * i, rtol=0, atol=1e-10)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(
            more_q, spread_more, F.pad(v.repeat_interleave(heads // kv_heads, dim=1), (0, digits)),
            is_causal=True, scale=dim**-0.5,
        )[..., :dim]  # fmt: skip
    torch.testing.assert_close(out, rl.attention(q, k, v, rl.scheme("alibi")), rtol=0, atol=1e-11)


def test_alibi_channels_in_bfloat16():
    """One channel merges positions past 256; two are as good as the type itself, up to 65 535."""
    position = torch.arange(65_536)
    q, k = torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16), torch.zeros(1, 1, 65_536, 8, dtype=torch.bfloat16)
    for digits, exact in ((1, 257), (2, 65_536)):
        _, more_k = rl.local.alibi_channels(q, k, digits=digits)
        found = more_k[0, 0, :, 8:].double().sum(dim=-1)
        wrong = (found != position).nonzero()
        assert len(wrong) == 0 if exact == 65_536 else int(wrong[0]) == exact


# --- HWFA ----------------------------------------------------------------------------------------------------------


def test_eq_local_hwfa():
    """Su's model: 24 layers, 512 tokens; and the plan itself, which is the same in training and at test."""
    share = {w: ((w - 1) * 23 + 1) / 512 for w in (16, 17, 18)}
    assert [round(x, 3) for x in share.values()] == [0.676, 0.721, 0.766]
    assert rl.local.receptive_field(16, 23) == 346
    assert [round(times * 512 / 24) for times in (2, 4)] == [43, 85]  # Su's guess for HWFA2's window
    method = rl.METHODS["hwfa"](layers=24, dim=64, visible_window=16, train_length=512)
    assert method.train == method.test
    assert set(method.train[:-1]) == {rl.scheme("window", dim=64, visible_window=16)}
    assert method.train[-1] == rl.scheme("nope", scale=rl.LogN(512))


def test_hwfa_windows_end_where_the_full_layer_begins():
    """Below the last layer nothing knows more than the field; the last layer knows everything."""
    model = byte_lm.load().double()
    method = rl.METHODS["hwfa"](layers=2, dim=64, visible_window=8, train_length=64)
    tokens = byte_lm.evaluation_windows()[:1, :100]
    changed = tokens.clone()
    changed[0, 10] = 255
    with torch.no_grad():
        states = [model.blocks[0](model.embedding(x), lambda q, k, v: rl.attention(q, k, v, method.test[0]))
                  for x in (tokens, changed)]  # fmt: skip
        ends = [model(x, method.test)[0, -1] for x in (tokens, changed)]
    differs = (states[0] - states[1]).abs().amax(dim=-1)[0] > 0
    assert differs.nonzero().flatten().tolist() == list(range(10, 18))
    assert (ends[0] - ends[1]).abs().max() > 0


def test_hwfa2_changes_its_full_layers_only():
    method = rl.METHODS["hwfa2"](layers=12, dim=64, visible_window=64, window=256, full_layers=2)
    differ = [n for n, (a, b) in enumerate(zip(method.train, method.test, strict=True)) if a != b]
    assert differ == [4, 8]  # a third and two thirds of the stack
    assert method.train[4] == rl.scheme("rope", dim=64)
    assert method.test[4] == rl.scheme("rerope", dim=64, window=256)


# --- the explorables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "layers"), [(5, 3), (3, 2), (12, 1), (1, 6), (2, 6), (12, 6)])
def test_explorable_reaches_what_the_masks_reach(window, layers):
    """A cone: in each layer the states that powers of the mask lead to, the text at the bottom."""
    index = index_of(figures.TOKENS)
    mask = rl.local.dense_mask(rl.local.lambda_mask(window, 0), index, index).double()
    shown, drawn = Drawn(figures.local_reach(window, layers)), {level: [] for level in range(layers + 1)}
    for cell in shown.outlines("reached"):
        x, y = (int(number) for number in cell.partition("h")[0].split())
        drawn[figures.MOST - (y - figures.TOP) // figures.STEP].append((x - figures.LEFT) // figures.CELL)
    for level, columns in drawn.items():
        paths = torch.linalg.matrix_power(mask, layers - level)[-1]
        assert columns == paths.nonzero().flatten().tolist()
    known = len(drawn[0])
    assert shown.text("title").endswith(f" can know {known} of {figures.TOKENS}")
    assert known == min(figures.TOKENS, rl.local.receptive_field(window, layers))
    rays = [ray for ray in shown.outlines("rays") if ray]
    assert len(rays) >= layers
    assert rays[0].startswith(f"{figures.LEFT + figures.CELL * (figures.TOKENS - 1) + 10} ")


@pytest.mark.parametrize("policy", ["all", "window", "true", "closed up"])
@pytest.mark.parametrize("token", [0, 5, 6, 14, 17])
def test_cache_explorable_keeps_what_the_masks_show(policy, token):
    """Bytes, distances and red boxes, against the Λ-mask and the equations."""
    losses_of = {"all": 5.53, "window": 2.42, "true": 2.01, "closed up": 1.63}
    shown = Drawn(figures.local_cache(losses_of, 1.74, token, policy))
    window, sinks = figures.CACHED, {"true": 1, "closed up": 1}.get(policy, 0)
    length = len(figures.STREAM)
    seen = rl.local.dense_mask(rl.local.lambda_mask(window, sinks), index_of(length), index_of(length))[token]
    kept = list(range(token + 1)) if policy == "all" else seen.nonzero().flatten().tolist()
    distances = [token - j for j in kept]
    if policy == "closed up":
        distances = [token - j if token - j < window else min(token, window + sinks - 1) - j for j in kept]
    filled = [j for j in range(length) if shown.parts[f"box{j}"].attrib["fill"] != "none"]
    assert filled == kept
    assert [int(shown.text(f"far{n}")) for n in range(len(kept))] == distances
    assert not any(shown.text(f"far{n}") for n in range(len(kept), length))
    red = [n for n in range(len(kept)) if "wash-red" in shown.parts[f"slot{n}"].attrib["fill"]]
    assert red == [n for n, distance in enumerate(distances) if distance >= figures.KNOWN]
    keys = "1 key" if len(kept) == 1 else f"{len(kept)} keys"
    assert shown.text("title") == f"Byte {token} sees {keys}, the farthest at {max(distances)}"
    bold = [name for n, name in enumerate(losses_of) if shown.parts[f"way{n}"].attrib["font-weight"] == "bold"]
    assert bold == [policy]


def test_cache_explorable_opens_on_the_window_and_says_what_was_measured():
    """Four bars, as long as their numbers, that of the window in front; and a line where home is."""
    losses_of = {"all": 5.53, "window": 2.42, "true": 2.01, "closed up": 1.63}
    shown = figures.local_cache(losses_of, 1.74)
    drawn = Drawn(shown)
    assert list(figures.POLICIES) == list(losses_of)
    for n, (name, loss) in enumerate(losses_of.items()):
        said, bar, value = drawn.parts[f"way{n}"]
        assert (said.text, value.text) == (figures.POLICIES[name], f"{loss:.2f}")
        assert int(bar.attrib["width"]) == pytest.approx(60 * loss, abs=0.5)
        assert bar is drawn.parts[f"bar{n}"]
    assert drawn.parts["way1"].attrib["font-weight"] == "bold"
    (home,) = (part for part in drawn.every if part.get("stroke-dasharray"))
    assert home.attrib["d"].startswith(f"M{180 + 60 * 1.74:.0f} ")
    caption = " ".join(shown.caption.split())
    assert f"a window of {figures.CACHED} and training texts of {figures.KNOWN} bytes;" in caption
    assert "the bars were measured with 32 and 64." in caption
    assert "Dashed: 1.74, at home." in caption
    sinks = results("local")
    assert (sinks["window"], sinks["config"]["length"]) == (32, 64)
    assert figures.SLOT > 1.3 * 21  # two digits at the size of its type, and a gap


def test_ahead_figure_draws_the_stored_differences():
    """Means and intervals of the scoreboard; and a control is the row's own weights in a window of 64."""
    small = rows(layers=4, dim=32, train_length=64)
    names = {"lambda": "first 4", "streaming": "StreamingLLM", "alibi": "ALiBi", "hwfa2-w16-logn": "2", "hwfa-w16": "1"}
    drawn = rl.figures.scoreboard_gaps(results("scoreboard")["rows"], names)
    (axis,) = drawn.figure.axes
    drawn_lines = iter(axis.lines[: 4 * len(names)])  # an interval and its mean, of two metrics of each row
    for row in names:
        for metric in ("natural", "far copies"):
            bar, dot = next(drawn_lines), next(drawn_lines)
            stored = [board(row, metric, 512, f"ahead_{end}") for end in ("mean", "low", "high")]
            assert [*dot.get_xdata(), *bar.get_xdata()] == pytest.approx(stored, abs=0.051)
    assert "The hybrids' other layers keep their windows of 16" in DEEPER
    assert [layer.visible_window for layer in small["alibi-window"].method.test] == [64] * 4
    assert [layer.visible_window for layer in small["hwfa2-w16-logn-window"].method.test] == [16, 16, 64, 16]
    for row in ("lambda", "streaming"):
        lines = results("scoreboard")["rows"].where(rung="small", metric="natural", length=512)
        assert lines.where(row=row)["training"] == lines.where(row="rope-window")["training"] == ["rope"]


def test_distances_figure_is_a_lambda():
    """The last query of each panel: two sinks, nothing between, the window."""
    said = figures.local_distances().alt
    assert "true distance: 6, 5, 1, 0; StreamingLLM: 3, 2, 1, 0; LM-Infinite: 2, 2, 1, 0." in " ".join(said.split())
    fewer = figures.local_distances(methods=["StreamingLLM"])
    assert "true distance: 6, 5, 1, 0; StreamingLLM: 3, 2, 1, 0." in " ".join(fewer.alt.split())
    assert [axis.get_xlabel() for axis in fewer.figure.axes] == ["key"] * 2
    assert "a text of seven tokens, with a window of 2 and two sinks" in LESSON
    assert "Seven tokens, a window of 2 and two sinks" in DEEPER
    assert "LM-Infinite shows both at 2" in DEEPER


def test_hybrid_figure_has_the_full_layers_where_the_methods_have_them():
    options = {"layers": 4, "dim": 32, "visible_window": 16, "train_length": 64}
    for plan, full in (
        (rl.METHODS["hwfa"](**options).test, 3),
        (rl.METHODS["hwfa2"](**options, window=32).test, 2),
    ):
        assert [n for n, layer in enumerate(plan) if layer.visible_window is None] == [full]
    said = figures.local_hybrid().alt
    assert "HWFA: in layer 4 everything is seen, green" in said
    assert "HWFA2: in layer 3 everything is seen, a broader blue band" in said
    drawn = [parameter.default for parameter in inspect.signature(figures.local_hybrid).parameters.values()]
    assert drawn == [4, 5, 10, ("HWFA", "HWFA2")]
    for name, layer in (("HWFA", 4), ("HWFA2", 3)):
        one = figures.local_hybrid(methods=[name])
        assert f"{name}: in layer {layer} everything is seen" in one.alt
        assert len(one.figure.axes) == 4
        assert one.figure.axes[0].get_ylabel() == "query"
        assert [axis.get_xlabel() for axis in one.figure.axes] == ["key"] * 4
    assert "drawn with windows of 5; rows are queries" in LESSON
    assert "drawn with windows of 5 and a cap of 10" in DEEPER


def test_attention_figure_gives_the_share_of_its_own_picture():
    """The title was the share of the second half, 18 %, above a column with 56 %."""
    (row,) = STORED["attention"].where(model="rope")
    here = round(100 * sum(weights[0] for weights in row["weights"][1:]) / 23)
    assert here == 56
    (other,) = STORED["attention"].where(model="rope without start")
    drawn = figures.local_attention({"no start byte": other, "start byte": row})
    assert f"start byte: {here} percent in the picture, {100 * row['first']:.0f} percent later" in drawn.alt
    assert drawn.figure.axes[1].get_title().endswith(f"first byte: {here} % here")
    assert "in the titles its mean over the 23 later queries" in DEEPER


# --- the stored numbers --------------------------------------------------------------------------------------------


def rows_of(method: str, test: str = "as the method says") -> list[dict]:
    return list(STORED["rows"].where(method=method, test=test))


def losses(model: str, test: str) -> list[float]:
    return [loss[test] for loss in STORED["sinks"].where(model=model)["loss"]]


def test_stored_file_is_complete():
    """Every seed in every row, and where it comes from."""
    seeds = STORED["seeds"]
    for method in ("rope", "window", "alibi", "hwfa"):
        assert [row["seed"] for row in rows_of(method)] == seeds
    for model in ("rope", "rope without start", "chapter 03"):
        assert len(losses(model, "64")) == len(seeds)


def test_recomputes_rows_of_the_shipped_model():
    """Seed 0 with RoPE: the loss with and without its sink, the weight on the first byte, and some questions."""
    model = byte_lm.load(DATA / "local_byte_lm.safetensors")
    windows = byte_lm.evaluation_windows()
    reader = recall.started(model)
    near = (rl.scheme("window", dim=64, visible_window=32),) * 2
    lam = (rl.scheme("lambda", dim=64, visible_window=32, sinks=1),) * 2
    (stored,) = STORED["sinks"].where(model="rope", seed=0)
    for name, plan, options in (("window", near, {}), ("StreamingLLM, 1", lam, {"attend": streaming_attention})):
        _, loss = byte_lm.evaluate(reader, windows, 512, plan, **options)
        assert abs(float(loss.mean()) - stored["loss"][name]) < 0.02
    weights = recall.attention_weights(model, recall.with_start(windows[:, :64]))
    found = torch.stack([layer[:, :, 32:, 0].mean(dim=(0, 2)) for layer in weights])
    assert torch.allclose(found, torch.tensor(stored["first_token"]), atol=2e-3)
    capped = {"dim": 64, "window": 32}
    for name, row in (
        ("LM-Infinite, 1", rl.scheme("rerope", **capped, visible_window=32, sinks=1)),
        ("ReRoPE, log n", rl.scheme("rerope", **capped, scale=rl.LogN(64, clip=True))),
    ):
        right = recall.answered(model, windows[::2], 192, 512, (row,) * 2)
        (kept,) = (row for row in rows_of("rope", name) if row["seed"] == 0)
        assert abs(float(right.double().mean()) - kept["recall"]["192"]) < 0.04


def test_chapter_03_has_no_sink():
    """What the section says: even with a window at test nothing is lost, in every seed."""
    even = sum(1 / n for n in range(33, 65)) / 32
    assert round(100 * even, 1) == 2.1
    for row in STORED["sinks"]:
        if row["model"] == "chapter 03":
            assert max(max(layer) for layer in row["first_token"]) < even
            assert row["loss"]["window"] < row["loss"]["64"]
            assert row["loss"]["512"] > row["loss"]["64"] + 1


def test_sink_of_the_model_with_a_start_byte():
    """In every seed: a window costs a lot, one sink at a known distance mends it, at its true distance only in part."""
    for row in STORED["sinks"]:
        loss, first = row["loss"], max(max(layer) for layer in row["first_token"])
        if row["model"] == "rope":
            assert first > 0.1
            assert loss["window"] > loss["64"] + 0.6
            assert loss["512"] > 5
            for kind in ("StreamingLLM", "LM-Infinite"):
                for sinks in (1, 4):
                    assert loss[f"{kind}, {sinks}"] < loss["64"]
                    assert loss[f"{kind}, {sinks}"] == pytest.approx(loss[f"{kind}, 1"], abs=0.02)
            assert loss["StreamingLLM, 1"] == pytest.approx(loss["LM-Infinite, 1"], abs=1e-4)
            assert loss["true distance, 1"] > loss["StreamingLLM, 1"] + 0.1
        elif row["model"] == "rope without start":
            assert first < 0.1
            assert loss["window"] < loss["64"] + 0.1
            assert loss["LM-Infinite, 1"] > loss["window"] - 0.05
    assert mean_loss("rope without start", "window") < mean_loss("rope without start", "64")  # "it does no harm"
    gained = [
        mean_loss("rope", "window") - mean_loss("rope", f"{kind}, 1") for kind in ("StreamingLLM", "true distance")
    ]
    assert round(gained[0], 2) == 0.79
    assert round(gained[1], 2) == 0.41
    assert gained[1] / gained[0] == pytest.approx(0.5, abs=0.03)
    assert "With one it does, and the first byte, moved up, takes 0.79 off." in LESSON
    assert "and takes only 0.41 off the baseline, not 0.79." in LESSON


def test_one_baseline_for_all_that_is_said_of_sinks():
    """All numbers of the recall model are means of the same three seeds on the same texts, beside one bare window."""
    section = LESSON.partition("## Build a sink")[2].partition("## A window with soft edges")[0]
    assert section.count('"512, a window of 32: the baseline": "window"') == 1
    assert "an eighth of the texts" not in section
    assert "2.44" not in section  # that of seed 0 alone
    for name in ("sinks", "kept", "swapped", "learned"):
        lines = STORED[name].where(model="rope") if name == "sinks" else STORED[name]
        assert sorted(set(lines["seed"])) == STORED["seeds"] == [0, 1, 2]
    for row in STORED["swapped"].where(byte="start", place=0):  # the same test in both tables, for each seed
        (other,) = STORED["sinks"].where(model="rope", seed=row["seed"])
        assert row["loss"] == pytest.approx(other["loss"]["StreamingLLM, 1"], abs=0.001)
        assert row["weight"] == pytest.approx(max(max(layer) for layer in other["first_token"]), abs=0.001)


def test_what_the_methods_see():
    """The list under the figure, seed by seed."""
    far = ("40", "56", "96", "192", "384")
    best = rows_of("rope", "LM-Infinite, 1")
    capped = rows_of("rope", "ReRoPE, log n")
    for n in range(len(STORED["seeds"])):
        rope, window, alibi, hwfa = (rows_of(name)[n] for name in ("rope", "window", "alibi", "hwfa"))
        assert set(rope["recall_short"].values()) == {1.0}  # "at home the model always knows it"
        assert rope["long"]["loss"] > 5
        assert rope["recall"]["384"] < 0.1
        for row in (best[n], window, hwfa):
            assert row["recall"]["8"] == row["recall"]["24"] == 1
            assert max(row["recall"][distance] for distance in far) < 0.15
            assert max(row["recall_short"][distance] for distance in ("40", "56")) < 0.15
        others = (window, alibi, hwfa, capped[n], rope)
        assert all(best[n]["long"]["loss"] < row["long"]["loss"] for row in others)
        assert hwfa["long"]["loss"] > window["long"]["loss"] > window["short"]["loss"]
        assert alibi["long"]["loss"] > alibi["short"]["loss"] + 0.3
        assert alibi["recall"]["56"] == 1
        assert set(capped[n]["recall"].values()) == {1.0}
        assert capped[n]["long"]["loss"] < min(window["long"]["loss"], alibi["long"]["loss"], hwfa["long"]["loss"])
    assert sum(row["recall"]["384"] == 1 for row in rows_of("alibi")) == 2


def test_alibi_needs_its_sink_and_a_window():
    for row in STORED["alibi"]:
        loss = row["loss"]
        assert loss["window, sink capped"] == pytest.approx(loss["64"], abs=0.03)
        assert min(loss["window"], loss["sink capped"]) > loss["64"] + 0.05
    assert [math.ceil(math.log(100) * one_over) for one_over in (16, 256)] == [74, 1179]
    assert [1 / slope for slope in rl.alibi_slopes(2).tolist()] == [16, 256]


def mean_loss(model: str, test: str) -> float:
    found = losses(model, test)
    return round(sum(found) / len(found), 2)


def test_the_lessons_losses_are_the_stored_ones():
    for test, value in (("64", 1.74), ("512", 5.53), ("window", 2.42), ("true distance, 1", 2.01)):
        assert mean_loss("rope", test) == value
    assert round(math.log(256), 2) == 5.55
    assert abs(mean_loss("rope", "512") - math.log(256)) < 0.05
    assert mean_loss("rope", "StreamingLLM, 1") == 1.63
    masked = [row["short"]["loss"] for row in rows_of("rope", "LM-Infinite, 1")]  # 64 bytes: half of what 1.63 gains
    assert round(sum(masked) / len(masked), 2) == 1.68
    assert "yet 2.42 is far above the 1.74 that it has at home" in LESSON
    assert "with this mask the pieces have 1.68, too, as the older experiment below shows" in DEEPER
    first = [
        [round(100 * max(max(layer) for layer in seed)) for seed in STORED["sinks"].where(model=model)["first_token"]]
        for model in ("rope", "rope without start")
    ]
    assert (min(first[0]), max(first[0])) == (18, 26)
    assert first[1] == [1, 1, 1]
    for row in STORED["attention"]:  # the figure: the same head as in the other table, of seed 0
        (same,) = STORED["sinks"].where(seed=0, model=row["model"])["first_token"]
        assert row["first"] == max(max(layer) for layer in same) == same[row["layer"]][row["head"]]
        assert [len(weights) for weights in row["weights"]] == list(range(1, 25))
        assert all(abs(sum(weights) - 1) < 0.02 for weights in row["weights"])


def kept_shares() -> list[float]:
    """Of each seed: what the strongest head gives the start byte, moved up to a window of 32."""
    assert STORED["kept"]["seed"] == STORED["seeds"]
    return [max(max(layer) for layer in seed) for seed in STORED["kept"]["first_token"]]


def test_the_share_of_a_sink_is_measured_where_it_is_lost():
    """Among 33 keys at known distances, far into the text: stored of each seed, and of seed 0 come back."""
    assert [round(100 * share) for share in kept_shares()] == [30, 34, 42]
    assert round(100 / 33) == 3
    assert "Moved up, the start byte is one of 33 keys; an even look would give it 3 %." in LESSON
    assert "The strongest of four heads gives it 30 to 42 %, by seed." in LESSON
    assert "hold 30, 34 and 42 % in the second half of 512 bytes (strongest head, by seed)" in DEEPER
    model, values = byte_lm.load(DATA / "local_byte_lm.safetensors"), torch.eye(512).expand(1, 2, 512, 512)
    row, found = rl.scheme("lambda", dim=64, visible_window=32, sinks=1), []

    def attend(q, k, v, scheme):  # as StreamingLLM; for one-hot values come the weights
        found.append(streaming_attention(q, k, values.expand(len(q), -1, -1, -1), scheme))
        return streaming_attention(q, k, v, scheme)

    with torch.no_grad():
        model(recall.with_start(byte_lm.evaluation_windows()[::8, :512]), (row,) * 2, attend)
    weights = torch.stack(found)[:, :, :, 256:]  # (layers, texts, heads, queries, keys)
    assert set((weights > 0).sum(dim=-1).flatten().tolist()) == {33}
    assert torch.allclose(weights[..., 0].mean(dim=(1, 3)), torch.tensor(STORED["kept"]["first_token"][0]), atol=0.015)


BYTES = {"start": recall.START, "newline": ord("\n"), "e": ord("e"), "its own": None}


def test_this_model_looks_for_the_symbol():
    """In every seed: another byte in the first place is no sink, a start byte elsewhere draws weight."""
    for row in STORED["swapped"]:
        (baseline,) = STORED["sinks"].where(model="rope", seed=row["seed"])
        if (row["byte"], row["place"]) == ("start", 0):
            assert row["weight"] > 0.15
            assert row["loss"] < baseline["loss"]["window"] - 0.7
        elif row["place"] == 0:
            assert row["weight"] < 0.025
            assert row["loss"] > baseline["loss"]["window"]  # "no better than the baseline"
    assert "with a newline instead, the loss is no better than the baseline." in LESSON
    looks = STORED["swapped"].where(byte="newline", place=0)["weight"]
    assert round(100 * sum(looks) / len(looks)) == 1
    assert "Even the head that looks most at a newline gives it 1 % of its weight" in LESSON
    behind = [round(100 * weight) for weight in STORED["swapped"].where(place=20)["weight"]]
    assert (min(behind), max(behind)) == (8, 13)
    assert max(behind) < min(round(100 * weight) for weight in STORED["swapped"].where(byte="start", place=0)["weight"])
    assert "a start byte at place 20, behind an ordinary first byte, still draws 8 to 13 %, but in first" in DEEPER


def test_the_table_of_the_newline_says_where_its_weights_are_from():
    """As the next test measures them, of the second half of 64 bytes; there an even look gives 2.1 %."""
    assert round(100 * sum(1 / n for n in range(33, 65)) / 32, 1) == 2.1
    means = [
        100 * sum(STORED["swapped"].where(byte=byte, place=0)["weight"]) / 3 for byte in ("start", "newline", "its own")
    ]
    assert means == pytest.approx([22.0, 1.3, 1.1], abs=0.051)
    said = DEEPER.replace('"\n    "', "")  # a caption in pieces
    assert "strongest head, last 32 of 64 bytes, all visible, mean of three seeds; an even look would give 2.1." in said


def test_swaps_of_the_shipped_model_come_back():
    model, windows = byte_lm.load(DATA / "local_byte_lm.safetensors"), byte_lm.evaluation_windows()
    kept = (rl.scheme("lambda", dim=64, visible_window=32, sinks=1),) * 2
    for byte, place in (("newline", 0), ("start", 20)):
        (stored,) = STORED["swapped"].where(seed=0, byte=byte, place=place)

        def put(tokens, place=place, byte=BYTES[byte]):
            tokens = tokens.clone()
            tokens[:, place] = byte
            return tokens

        def read(tokens, plan, attend, put=put):
            return model(put(tokens), plan, attend)

        looked = torch.stack(recall.attention_weights(model, put(windows[:, :64])))[:, :, :, 32:, place]
        _, loss = byte_lm.evaluate(read, windows, 512, kept, attend=streaming_attention)
        assert float(looked.mean((1, 3)).max()) == pytest.approx(stored["weight"], abs=0.005)
        assert float(loss.mean()) == pytest.approx(stored["loss"], abs=0.02)


def test_a_parked_value_is_shorter_and_not_short():
    """In the strongest sink; and the head that answers parks a tenth."""
    model, windows = byte_lm.load(DATA / "local_byte_lm.safetensors"), byte_lm.evaluation_windows()
    values = []

    def attend(q, k, v, scheme):
        values.append(v.norm(dim=-1))
        return rl.attention(q, k, v, scheme)

    with torch.no_grad():
        model(recall.with_start(windows[:, :64]), None, attend)
    length = values[1][:, 0]
    assert round(float(length[:, 0].mean()), 1) == 3.8
    assert length[:, 0].std() < 1e-4  # the same in every text
    assert round(float(length[:, 1:].mean()), 1) == 5.6
    (stored,) = STORED["sinks"].where(model="rope", seed=0)
    assert max(max(layer) for layer in stored["first_token"]) == stored["first_token"][1][0]
    asked = recall.with_start(windows[:, :64])
    asked[:, 24], asked[:, 50] = recall.SECRET + 7, recall.QUESTION
    weights = torch.stack(recall.attention_weights(model, asked)).mean(dim=1)  # (layers, heads, seq, seq)
    assert [int(n) for n in (weights[:, :, 50, 24] > 0.9).nonzero()[0]] == [0, 1]  # another head answers
    assert 0.08 < float(weights[0, 1, 40:50, 0].mean()) < 0.12
    assert float(weights[1, 0, 50, 0]) < 0.05
    assert "The strongest sink is in the second layer, and it too is nearly empty when a question is asked." in DEEPER


def test_parking_is_not_all_that_makes_a_sink():
    """The same secrets without a start byte: no sink, and no worse at home. What parks little: the test above."""
    for of_seed in STORED["sinks"].where(model="rope without start")["first_token"]:
        assert max(max(layer) for layer in of_seed) < 0.0205  # less than an even look
    assert mean_loss("rope without start", "64") < mean_loss("rope", "64")
    assert "from other bytes it puts a tenth there, and the other nine tenths elsewhere in the text." in DEEPER
    assert "and the model without a start byte, trained on the same secrets, has no sink." in DEEPER


def test_mended_figure_draws_the_steps():
    losses_of = {"begin": 2.4, "first": 1.9, "second": 1.75}
    drawn = rl.figures.local_mended(losses_of)
    (axis,) = drawn.figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1.75", "2.40"]
    assert [(round(bar.get_x(), 2), round(bar.get_width(), 2)) for bar in axis.patches] == [(1.9, 0.5), (1.75, 0.15)]
    assert [text.get_text() for text in axis.texts] == ["0.50", "0.15"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["first", "second"]
    assert axis.yaxis_inverted()  # the first step on top
    assert "from 2.40 down to 1.75: first 0.50, second 0.15." in drawn.alt


def test_without_the_sink_the_others_get_its_share():
    """The worked softmax, which says how a window breaks a model; and by how much less it does so in ours."""
    with_sink, without = torch.tensor([2.0, 0, 0]).softmax(0), torch.tensor([0.0, 0]).softmax(0)
    assert round(float(with_sink[1]), 2) == 0.11
    assert without.tolist() == [0.5, 0.5]
    assert "each useless key goes from $1/(e^2 + 1 + 1) = 0.11$ to 0.5, nearly five times as loud." in LESSON
    assert float(without[0] / with_sink[1]) == pytest.approx(4.7, abs=0.05)
    heavier = [round(1 / (1 - share), 1) for share in kept_shares()]
    assert (round(100 * float(with_sink[0])), heavier) == (79, [1.4, 1.5, 1.7])
    assert "has 79 % on its sink." in DEEPER
    assert "losing that makes the others 1.4, 1.5 and 1.7 times as heavy." in DEEPER


def test_a_learned_sink_mends_most_of_the_loss():
    """The stored fit, recomputed from its numbers; a fixed gain does nearly as much, the value the rest."""

    def over_seeds(fitted):
        found = STORED["learned"].where(fitted=fitted)["loss"]
        assert len(found) == 3
        return sum(found) / 3

    lost, kept = mean_loss("rope", "window"), mean_loss("rope", "StreamingLLM, 1")
    sink, valued, gain, heat = (over_seeds(fitted) for fitted in ("sink", "sink and value", "gain", "temperature"))
    assert [round(loss, 2) for loss in (lost, kept, sink, valued, gain, heat)] == [2.42, 1.63, 1.8, 1.64, 1.85, 2.21]
    bare = sum(losses("rope", "window")) / 3
    steps = [round(more - less, 2) for more, less in itertools.pairwise((bare, gain, sink, valued))]
    assert steps == [0.58, 0.04, 0.16]
    assert "All gains come out below 1, and alone they bring back 0.58, most of the 0.79." in LESSON
    assert "What it hardly misses is a place to park *when there is nothing to find*." in LESSON
    assert "It says a constant, its value, and here that is worth 0.16, a fifth of the 0.79." in LESSON
    assert (sink - valued) / (lost - kept) == pytest.approx(0.2, abs=0.01)
    assert steps[0] / (lost - kept) > 0.7  # "mostly"
    assert (sink - valued) / (sink - kept) > 0.9
    assert 0.75 < (lost - sink) / (lost - kept) < 0.8
    assert "mends nearly four fifths of the loss" in DEEPER
    ends = f"from the baseline ({lost:.2f}, right) to the kept start byte ({kept:.2f}, left)"
    assert f"The {lost - kept:.2f} nats {ends}" in LESSON
    gains = STORED["learned"].where(fitted="gain")["numbers"]
    sinks, shares = kept_shares(), STORED["kept"]["first_token"]
    assert [share[1][0] for share in shares] == sinks  # the head of the strongest sink is the one turned down most:
    assert all(min(number for layer in numbers for number in layer) == numbers[1][0] for numbers in gains)
    assert all(number < 0 for numbers in gains for layer in numbers for number in layer)
    assert "a fixed *gain* per head, a factor on its output: it can turn a head down, but for every query" in LESSON
    down = [round(math.exp(numbers[1][0]), 2) for numbers in gains]
    asked = [round(1 - share, 2) for share in sinks]  # what would make up for the lost share
    assert asked == [0.7, 0.66, 0.58]
    assert max(math.exp(numbers[1][0]) for numbers in gains) < 1 / 3
    assert "so a gain of 0.6 or 0.7 would make it as quiet as before. But its fitted gain is only a third or" in LESSON
    each = [STORED["learned"].where(fitted=fitted)["numbers"] for fitted in ("sink", "sink and value")]
    lower = [alone[1][0] - beside[1][0] for alone, beside in zip(*each, strict=True)]
    assert min(lower) > 1
    assert [round(by, 1) for by in lower] == [1.3, 1.2, 1.0]
    assert "the strongest head's $b_h$ also comes out lower, by 1.0 or more in every seed: the head is turned" in LESSON
    assert "this head's $b_h$ is lower there by 1.3, 1.2 and 1.0, so it is turned down less." in DEEPER
    assert "It gave the start byte 30 to 42 % of its weight," in LESSON
    assert all(fit < ask / 2 for fit, ask in zip(down, asked, strict=True))
    assert (min(round(ask, 1) for ask in asked), max(round(ask, 1) for ask in asked)) == (0.6, 0.7)
    each = [STORED["learned"].where(fitted=fitted)["loss"] for fitted in ("sink", "gain")]
    apart = [round(loud - silent, 2) for silent, loud in zip(*each, strict=True)]
    assert apart == [0.08, 0.03, 0.02]
    assert "knows *when*, which is the point of parking, and is only 0.04 better on average." in LESSON
    assert "(by seed 0.08, 0.03 and 0.02)" in DEEPER
    assert down == [0.33, 0.3, 0.2]
    assert "the head of the strongest sink is turned down most, to 0.33, 0.30 and 0.20, where 0.70, 0.66" in DEEPER
    assert "where 0.70, 0.66 and 0.58 would make up for its lost share." in DEEPER
    fitted = {row["fitted"]: row for row in STORED["learned"].where(seed=0)}
    model = byte_lm.load(DATA / "local_byte_lm.safetensors")
    plan = (rl.scheme("window", dim=64, visible_window=32),) * 2
    windows = byte_lm.evaluation_windows()
    for name in ("sink", "gain"):
        numbers, layers = torch.tensor(fitted[name]["numbers"]), itertools.cycle(range(2))

        def attend(q, k, v, scheme, name=name, numbers=numbers, layers=layers):
            out, lse = rl.attention(q, k, v, scheme, return_lse=True)
            number = numbers[next(layers)][:, None]
            return out * (number.exp() if name == "gain" else torch.sigmoid(lse - number))[..., None]

        _, loss = byte_lm.evaluate(recall.started(model), windows, 512, plan, attend=attend)
        assert abs(float(loss.mean()) - fitted[name]["loss"]) < 0.02


def board(row: str, metric: str, length: int, column: str = "mean") -> float:
    line = results("scoreboard")["rows"].where(rung="small", row=row, metric=metric, length=length)
    return round(100 * line[column][0], 1)


def by_seed(row: str, metric: str, length: int = 512, training: str = "") -> list[int]:
    """Percent of each seed, in whole numbers, the least first."""
    folder = Path(__file__).parents[2] / "experiments" / "stored" / "scoreboard" / "small" / (training or row)
    asked = table.questions(live.windows(), Settings(), Settings().lengths)[metric, length]
    counted = [table.sums(hits.read(path)[1][row], asked) for path in sorted(folder.glob("seed-*.npz"))]
    return sorted(round(100 * right.sum() / count.sum()) for right, count in counted)


def test_the_lessons_numbers_are_the_scoreboards():
    assert [board("rope-window", "natural", length) for length in (64, 512)] == [62.6, 64.3]
    found = [round(board("rope-window", f"needle {depth}", 512)) for depth in ("0", "0.5", "1")]
    assert found == [0, 0, 96]
    assert board("hwfa2-w16-logn", "needle", 512) == 99.8
    assert round(board("rope", "natural", 64)) == 63
    ahead = {
        metric: [board("hwfa2-w16-logn", metric, 512, f"ahead_{end}") for end in ("mean", "low", "high")]
        for metric in ("needle", "natural", "far copies")
    }
    assert ahead == {"needle": [66.6, 66.2, 66.9], "natural": [0.7, -0.4, 1.8], "far copies": [9.2, 4.1, 14.4]}
    lost = {
        row: [board(row, "natural", 512, f"ahead_{end}") for end in ("mean", "low", "high")]
        for row in ("lambda", "streaming", "lm-infinite", "alibi")
    }
    assert lost["lambda"] == [-5.5, -10.5, -0.5]
    assert board("lambda", "far copies", 512, "ahead_mean") == -6.6
    assert "**Without a sink, first tokens are useless.** The book's model has none:" in DEEPER
    assert "Moved up, four first bytes change next to nothing; nor does LM-Infinite, which loses no more" in DEEPER
    assert "At their true distance, which training never showed, they cost about 6 points." in DEEPER
    twice = [-board("streaming", "repeated", 512, f"ahead_{end}") for end in ("high", "low")]
    assert [round(points) for points in twice] == [2, 4]
    assert "2 to 4 points on text that comes twice, {doc}`/book/12_shootout`" in DEEPER
    assert lost["streaming"][0] == lost["lm-infinite"][0] == -0.1
    assert "LM-Infinite, which loses no more than StreamingLLM" in DEEPER
    assert lost["alibi"] == [1.0, 0.5, 1.4]
    assert [board("alibi", "far copies", 512, f"ahead_{end}") for end in ("mean", "low", "high")] == [5.0, 3.4, 6.6]
    assert [board("alibi", "natural", length) for length in (64, 512)] == [60.1, 62.6]
    assert board("alibi-window", "natural", 512) == 61.6
    assert "improves from 60.1 to 62.6 on all bytes" in DEEPER
    assert "so its control improves too, to 61.6" in DEEPER
    controls = ("alibi-window", "rope-window", "hwfa2-w16-logn-window", "hwfa-w16-window")
    assert [board(row, "far copies", 512) for row in controls] == [69.5, 72.4, 72.8, 73.2]  # ALiBi's is weak
    assert round(board("alibi", "far copies", 512) - board("rope-window", "far copies", 512), 1) == 2
    assert "This one is weak: in far copies ALiBi leads it by 5 points, plain RoPE's window by only 2." in DEEPER
    assert by_seed("alibi", "needle") == [33, 66, 75]
    assert "one of its three seeds finds no more than the window." in LESSON
    assert "its three seeds find 33, 66 and 75 % of the needles, and a third is what a window finds." in DEEPER
    cuts = ("hwfa-w16-window", "hwfa2-w16-logn-window", "alibi-window")  # those right before the question
    assert [board(row, "needle", 512) for row in cuts] == [33.3, 33.2, 33.3]
    assert board("hwfa-w16", "needle", 512) == 100
    hybrid = {
        metric: [board("hwfa-w16", metric, 512, f"ahead_{end}") for end in ("mean", "low", "high")]
        for metric in ("natural", "far copies")
    }
    assert hybrid == {"natural": [2.1, 1.3, 2.8], "far copies": [14.4, 11.8, 17.1]}
    assert "Look at the filled dots, the far copies. HWFA is 14 points ahead of its control, and all three" in DEEPER
    leads = [board(row, "far copies", 512, "ahead_low") for row in ("alibi", "hwfa2-w16-logn", "hwfa-w16")]
    assert min(leads) > 3
    assert round(49.41 - 48.70, 1) == 0.7
    assert "| RoPE | 49.41 |" in DEEPER
    assert "| HWFA, $w = 16$ | 48.70 |" in DEEPER
    assert "HWFA is 0.7 points worse at 512" in DEEPER
    assert "on text that is not repeated HWFA predicts 48 % right where RoPE predicts 23." in DEEPER
    assert "| RoPE | 49.41 | 24.17 | 23.16 |" in DEEPER
    assert "| HWFA, $w = 16$ | 48.70 | 80.84 | 48.15 |" in DEEPER
    assert board("window-8", "far copies", 512) == 70.2
    assert results("scoreboard")["rows"].where(rung="small", row="window-8")["training"][0] == "rope"
    assert "Windows of *eight* bytes, at test, predict 70.2 % of them without seeing a single source" in DEEPER
    assert min(board(row, "natural", 64) for row in ("hwfa-w16", "hwfa2-w16-logn")) >= board("rope", "natural", 64)
    assert [board(row, "natural", 512) for row in ("window-8", "rope-window")] == [62.0, 64.3]
    assert rl.local.receptive_field(8, 4) == 29
    assert board("window-8", "needle", 512) == 0
    assert (
        "With windows of *eight* bytes, a field of 29, the same model still gets 62.0 % of the bytes right," in LESSON
    )
    assert "where windows of 64 get 64.3; of the hidden numbers it finds none." in LESSON
    assert abs(board("hwfa2-w16-logn", "tax", 64)) <= 0.1
    assert 3 * 16 + 512 == 560


def test_the_first_cell_gives_what_the_text_reads_off():
    model, texts = live.load(), live.windows()[:8]
    rope, window = rl.scheme("rope", dim=32), rl.scheme("window", dim=32, visible_window=64)
    found = [live.percent(model, *asked) for asked in ((rope, texts, 64), (rope, texts, 512), (window, texts, 512))]
    assert [round(share) for share in found] == [62, 34, 64]
    seen = [sum(min(n, 64) for n in range(1, length + 1)) / length for length in (64, 512)]
    assert seen[0] / seen[1] == pytest.approx(0.5, abs=0.05)
    assert "even more than the 62 % at home, where on average about half as many bytes are in sight." in LESSON


def test_a_field_wider_than_training_does_no_harm():
    """Each byte behind the first 64, through windows of 64 in four layers and from its last 64 bytes alone."""
    model, texts = live.load(), live.windows()[:8]
    window, plain = rl.scheme("window", dim=32, visible_window=64), rl.scheme("rope", dim=32)
    with torch.no_grad():
        stacked = model(texts[:, :512], (window,) * 4)[:, 63:].argmax(-1) == texts[:, 64:]
        pieces = [text[:512].unfold(0, 64, 1) for text in texts]
        alone = torch.stack([model(piece, (plain,) * 4)[:, -1].argmax(-1) for piece in pieces]) == texts[:, 64:]
    assert stacked.shape == alone.shape == (8, 449)
    found = [100 * float(right.double().mean()) for right in (stacked, alone)]
    assert found == pytest.approx([64, 64.1], abs=0.15)
    assert rl.local.receptive_field(64, 4) == 253
    assert "It does no harm there: read from its last 64 alone, each byte is right as often, 64 %." in DEEPER
    assert "at 512 a byte has more near text before it, on average, than at 64" in DEEPER


def test_a_finished_model_as_a_hybrid():
    """On all texts; beside a window of 64 and windows of 16 in all layers, and with the top layer seeing everything."""
    model, texts = live.load(), live.windows()
    hybrid, top, near = lab_plan([16, None, 16, 16]), lab_plan([16, 16, 16, None]), lab_plan([16] * 4)
    assert round(live.percent(model, hybrid, texts, 512, "needle")) == 95
    assert sum(512 if layer.visible_window is None else layer.visible_window for layer in hybrid) == 560
    assert "With 560 keys instead of 2,048 it finds 95 % of the needles" in DEEPER
    third = [live.percent(model, plan, texts[:16], 512, "needle") for plan in (top, near)]
    assert third == pytest.approx([100 / 3] * 2)
    assert "In its place the top layer finds no more than a window." in DEEPER
    wide = rl.scheme("window", dim=32, visible_window=64)
    copied = [live.percent(model, plan, texts, 512, "far copies") for plan in (hybrid, wide)]
    assert copied == pytest.approx([71.5, 72.7], abs=0.05)
    assert "(71.5 % of the far copies, against this seed's 72.7)" in DEEPER
    ordinary = [live.percent(model, plan, texts, 512) for plan in (hybrid, wide)]
    assert ordinary == pytest.approx([63.3, 64.65], abs=0.05)
    assert "1.3 points behind windows of 64, with 63.3 % of all bytes" in DEEPER


@pytest.mark.parametrize(("kept", "same"), [("closed up", True), ("capped", True), ("true distance", False)])
def test_with_sinks_moved_up_the_length_does_not_matter(kept, same):
    """Two texts of other lengths with the same sinks and the same end: the same state, but for a true distance."""
    window, sinks = 7, 2
    near = rl.scheme("lambda", dim=64, visible_window=window, sinks=sinks)
    if kept == "capped":
        near = rl.scheme("rerope", dim=64, window=window, visible_window=window, sinks=sinks)
    options = {"attend": streaming_attention} if kept == "closed up" else {}
    model = byte_lm.load(DATA / "local_byte_lm.safetensors").double()
    tokens = byte_lm.evaluation_windows()[:3, :300]
    with torch.no_grad():
        ends = [
            model(torch.cat((tokens[:, :sinks], tokens[:, -more:]), dim=1), (near,) * 2, **options)[:, -1]
            for more in (30, 290)
        ]
    assert (float((ends[0] - ends[1]).abs().max()) < 1e-10) == same


def test_the_lab_as_its_solution_tells_it():
    model, texts = live.load(), live.windows()[:24]
    found = [live.percent(model, lab_plan(plan), texts, 512, "needle") for plan in ([16, None, 16, 16], [None] * 4)]
    assert found[0] == pytest.approx(97, abs=2)
    assert found[1] == pytest.approx(99, abs=2)
    assert round(live.percent(model, lab_plan([16, None, 16, 16]), texts, 512)) == 64
    assert "the model predicts 64 % of the bytes and finds" in LESSON
    assert (
        "97 % of the needles in the checker's 24 texts, nearly as much as when all four layers see everything in this"
        in LESSON
    )


def test_layer_1_of_the_lab_has_a_cliff():
    """It looks 11 bytes back, from the last digit to the k of its line: a window of 12 reaches there, one of 11 not."""
    model, texts = live.load(), live.windows()[:24]
    found = [live.percent(model, lab_plan([w, None, 16, 16]), texts, 512, "needle") for w in (12, 11)]
    assert [round(share) for share in found] == [97, 7]
    assert live.percent(model, lab_plan([10, None, 16, 16]), texts[:8], 512, "needle") == 0
    back = lab_looks_back()
    assert back == [0, 11, 7, 0]
    assert lab_plan([None])[0].scale == rl.LogN(64, clip=True)  # up to 64 keys it is 1
    assert "at distances capped at 32 (farther bytes count as 32 away) and with log n beyond 64 keys." in LESSON
    assert lab_plan([12]) == (rl.scheme("window", dim=32, visible_window=12),)  # "with RoPE as it is"
    assert b'key = "43784'[-1 - max(back)] == ord("k")
    reached, short = (lab_heads([w, None, 16, 16])[1] for w in (12, 11))
    assert sorted(reached)[2:] == pytest.approx([99, 99], abs=1)
    assert max(short) == pytest.approx(0.2, abs=0.15)
    assert "With a window of 12 it leads to 97 % of the needles, with 11 to 7 %, with 10 to none." in LESSON
    assert "One of its heads looks 11 bytes back from the last digit" in LESSON
    narrow = [live.percent(model, lab_plan([16, None, 2, 2]), texts, 512, *metric) for metric in (("needle",), ())]
    assert [round(share) for share in narrow] == [100, 54]
    assert "Windows of 2 in the layers above find all needles, but only 54 % of the bytes." in LESSON


def hybrid(training: str, test: str = "as the method says") -> dict:
    (row,) = STORED["hybrids"].where(training=training, test=test)
    return row


def test_hybrids_lose_a_part():
    """What is stored of seed 0 is what the scoreboard has of it; and what the text says of each part."""
    folder = Path(__file__).parents[2] / "experiments" / "stored" / "scoreboard" / "small"
    asked = table.questions(live.windows(), Settings(), Settings().lengths)
    for training in ("hwfa-w16", "hwfa2-w16-logn"):
        bits = hits.read(folder / training / "seed-0.npz")[1][training]
        for name, percent in hybrid(training)["right"].items():
            metric, length = name.split(", ")
            right, count = table.sums(bits, asked[metric, int(length)])
            assert percent == pytest.approx(100 * float(right.sum() / count.sum()), abs=0.15)
    # Well trained, and at 512 with a window well read.
    assert board("nope-every-fourth-logn", "natural", 64) > board("rope", "natural", 64)
    assert [board("nope-every-fourth-logn", metric, 512) for metric in ("natural", "needle")] == [38.4, 0]
    assert board("nope-every-fourth-logn-window", "natural", 512) == 65
    assert board("nope-every-fourth", "needle", 512) == 0
    assert board("nope-every-fourth-logn", "natural", 64) - board("hwfa-w16", "natural", 64) == pytest.approx(-0.1)
    assert "At home it is nearly as good, and at 512 it finds nothing, with log n or without." in LESSON
    assert "Trained without windows, the model finds nothing, with log n or without:" in DEEPER
    everywhere = [rows(4, 32, 64)[f"nope-every-fourth{kind}"].method.test for kind in ("-logn", "")]
    assert [[layer.scale is not None for layer in plan] for plan in everywhere] == [[True] * 4, [False] * 4]
    for row, layers in (("nope-every-fourth-logn", "all layers"), ("nope-every-fourth", "none")):
        assert results("scoreboard")["rows"].where(row=row)["seeds"][0] == 3
        assert f'"… trained without windows, log n in {layers}": in_all_seeds("{row}")' in DEEPER
    assert 'caption="Above the line seed 0, below it means of three seeds."' in DEEPER
    assert hybrid("hwfa-w16")["seed"] == hybrid("hwfa-w16", "no log n")["seed"] == 0
    whole, without = hybrid("hwfa-w16"), hybrid("hwfa-w16", "no log n")
    assert whole["right"]["needle, 512"] == without["right"]["needle, 512"] == 100
    assert hybrid("hwfa2-w16-logn", "no log n")["right"]["needle, 512"] > 99
    assert 1.4 < whole["right"]["far copies, 512"] - without["right"]["far copies, 512"] < 1.5
    assert "Take it from the lesson's HWFA at test, and it is hardly missed." in DEEPER
    digit = [found[end] for found in (without["on_the_digit"],) for end in ("512", "64")]
    assert [(round(min(weights)), round(max(weights))) for weights in digit] == [(80, 98), (94, 98)]
    assert "give the digit of a needle 80 to 98 % of their weight at 512 bytes, against 94 to 98 % at 64" in DEEPER
    assert board("hwfa2-w16", "needle", 512) == 98.3
    assert results("scoreboard")["rows"].where(rung="small", row="hwfa2-w16")["seeds"][0] == 3
    gains = [board(row, "far copies", 512, "ahead_mean") for row in ("hwfa2-w16", "hwfa2-w16-logn")]
    assert gains == [7.2, 9.2]
    assert board("hwfa2-w16", "far copies", 512, "ahead_low") < 0  # three seeds: not sure
    assert "HWFA2 still finds 98 % of the needles, but gains 7.2 points of far copies in place of 9.2" in DEEPER
    diluted = [1 / (1 + (100 / weight - 1) * 511 / 63) for weight in digit[1]]  # by the needle's formula, chapter 6
    assert 0.6 < min(diluted) < max(diluted) < 0.9  # "the count alone does not outvote it"


def test_the_books_model_has_no_sink():
    """Half a text and more is before these queries; an even look would give the first byte 2 % of their weight."""
    weights, _ = live.attended(live.load(), rl.scheme("rope", dim=32), live.windows()[:8, :64])
    strongest = float(weights[:, :, :, 32:, 0].mean(dim=(1, 3)).max())
    assert round(100 * strongest, 1) == 0.8
    assert round(100 * float((1 / torch.arange(33, 65)).mean())) == 2
    assert "no head gives its first byte more than 0.8 %, where an even look would give 2." in DEEPER
    assert round(100 * float((1 / torch.arange(2, 25)).mean())) == 12
    assert "its mean over the 23 later queries, where an even look would give 12 %" in DEEPER


def test_needles_of_the_hybrids_elsewhere():
    """On the larger model, and on the copy of the articles', at the training length and at eight times that."""
    larger = results("scoreboard")["rows"].where(rung="second", row="hwfa-w64", metric="needle")
    assert larger["mean"] == [1, 1]
    assert (larger["length"], larger["seeds"]) == ([256, 2048], [2, 2])
    copy = results("table_gau-0.3m")["lines"].where(set="passkey", metric="found", length=(64, 512))
    hybrids = ("hwfa-w16", "hwfa2-w8-f1-logn", "hwfa2-w8-f1")
    found = [[round(100 * share) for share in copy.where(row=row)["value"]] for row in hybrids]
    assert found == [[50, 42], [42, 28], [38, 1]]
    assert "HWFA learns to find half of the needles, and keeps most of that at 512" in DEEPER
    assert "HWFA2 falls there from 42 % at home to 28, and without log n from 38 to 1: there the scale" in DEEPER
    assert "Our {doc}`small copy of Su's model <articles_model>` finds 42 %, but only 50 at home" in LESSON


def test_without_the_switch_hwfa2_finds_only_what_is_near():
    """Recomputed: of the needles that are not right before the question, none."""
    plan = RUNGS["small"].rows["hwfa2-w16-logn"].method.train
    model = kept_model("hwfa2-w16-logn")
    found = {}
    for depth in (0.0, 0.5, 1.0):
        tokens = passkey_windows(live.windows()[:16], depth)
        with torch.no_grad():
            guessed = model(tokens[:, :-1], plan).argmax(-1)
        found[depth] = float((guessed == tokens[:, 1:])[:, -5:].all(dim=1).double().mean())
    assert found[0.0] == found[0.5] == 0 < found[1.0]
    stored = hybrid("hwfa2-w16-logn", "no switch")["right"]["needle, 512"]
    assert stored == pytest.approx(100 * found[1.0] / 3, abs=8)
    assert "and finds only needles right before the question, not all of those" in DEEPER


def test_a_control_shortens_the_full_layer_alone():
    """HWFA's other windows stay at 16 in its control."""
    control = rows(layers=4, dim=32, train_length=64)["hwfa-w16-window"].method.test
    assert [layer.visible_window for layer in control] == [16, 16, 16, 64]
    assert sum(layer.visible_window - 1 for layer in control) + 1 == 15 * 3 + 63 + 1 == 109
    assert "HWFA's has a field of $15 \\cdot 3 + 63 + 1 = 109$." in DEEPER
    assert "the same weights, where each layer that sees everything gets a window of 64 at test" in DEEPER
    assert "The hybrids' other layers keep their windows of 16" in DEEPER
    assert "Cut the top layer to the last 64 bytes, with the same weights, and HWFA is back at a third" in LESSON


def test_the_plan_that_is_recommended_keeps_the_rule():
    """It had windows of 1,024, which reach 5.7 times the training length."""
    code = LESSON.partition("# HWFA in 24 layers")[2].partition("```")[0]
    window, layers, length = (
        int(re.search(rf"{before}(\d+)", code)[1]) for before in ("visible_window=", r"\(near,\) \* ", r"LogN\(")
    )
    share = rl.local.receptive_field(window, layers) / length
    assert (window, layers, length, round(share, 2)) == (128, 23, 4096, 0.71)
    assert rl.local.receptive_field(135, layers) > 0.75 * length >= rl.local.receptive_field(134, layers)


def test_the_labs_heads():
    """Two heads of the second layer look the digit up, no other."""
    heads = lab_heads()
    assert sorted(heads[1])[2:] == pytest.approx([99, 99], abs=1)
    assert max(weight for n, of_layer in enumerate(heads) for weight in of_layer if n != 1) < 2
    assert max(sorted(heads[1])[:2]) < 2


def test_hwfa_by_hand_on_the_scoreboard():
    assert [rl.local.receptive_field(w, 3) for w in (16, 17)] == [46, 49]
    assert round(46 / 64, 2) == 0.72
    assert 49 / 64 > 0.75
    assert "our 46 bytes are $0.72 \\cdot 64$, and windows of 17 would already be too wide." in LESSON


# --- the training text and the questions ---------------------------------------------------------------------------


def test_recall_text():
    """A secret and two questions in every window, each with the letter of the secret; the start byte in front."""
    text = recall.RecallText(torch.randint(32, 127, (5000,)).to(torch.uint8), seed=0)
    far = []
    for _ in range(100):
        windows = text[torch.randint(4000, (32, 1)) + torch.arange(65)].long()
        secret = windows >= recall.SECRET
        row, place = (windows == recall.QUESTION).nonzero(as_tuple=True)
        assert (secret.sum(dim=1) == 1).all()
        assert len(row) == 64
        assert (windows[:, 0] == recall.START).all()
        letter = windows[secret][row] - recall.SECRET
        assert torch.equal(windows[row, place + 1], recall.ANSWER + letter)
        far.append(place - secret.int().argmax(dim=1)[row])
    distance = torch.cat(far)
    assert 1 <= int(distance.min()) <= int(distance.max()) <= 62
    assert 0.25 < float((distance >= 32).double().mean()) < 0.30
    plain = recall.RecallText(text.text, seed=0, start=False)[torch.arange(65).expand(4, 65)]
    assert (plain[:, 0] >= 32).all()


def test_answered_counts_right_answers():
    """A model that reads the secret gets all; one that says A gets those with the letter A."""
    windows = byte_lm.evaluation_windows()

    class Reads:
        def __call__(self, tokens, plan, attend):
            scores = torch.zeros(*tokens.shape, 256)
            letter = tokens.masked_fill(tokens < recall.SECRET, 0).amax(dim=1) - recall.SECRET
            scores[torch.arange(len(tokens)), -1, recall.ANSWER + letter] = 1
            return scores

    class SaysA(Reads):
        def __call__(self, tokens, plan, attend):
            return torch.nn.functional.one_hot(torch.full(tokens.shape, recall.ANSWER), 256).float()

    assert recall.answered(Reads(), windows, 40, 512).all()
    share = float(recall.answered(SaysA(), windows, 40, 512).double().mean())
    assert share < 0.12


def test_attention_weights_are_the_weights():
    model, tokens = byte_lm.load(), byte_lm.evaluation_windows()[:2, :20]
    for layer in recall.attention_weights(model, tokens):
        assert layer.shape == (2, 2, 20, 20)
        torch.testing.assert_close(layer.sum(dim=-1), torch.ones(2, 2, 20))
        assert (layer.triu(1) == 0).all()
    with pytest.raises(ValueError, match="scheme must have frequencies, a visible_window and sinks"):
        streaming_attention(*torch.randn(3, 1, 1, 4, 8), rl.scheme("rope", dim=8))


# --- what the chapter says about libraries -------------------------------------------------------------------------


def gradient_window(model, length: int, query: int) -> list[int]:
    """Tokens that change the state of ``query`` in a one-layer model of transformers."""
    x = torch.randn(1, length, model.config.hidden_size, requires_grad=True)
    state = model(inputs_embeds=x).last_hidden_state[0, query, 0]  # the sum of all channels after a norm is constant
    (gradient,) = torch.autograd.grad(state, x)
    return (gradient[0].abs().amax(dim=-1) > 0).nonzero().flatten().tolist()


SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 16}


def test_library_causal_window_counts_the_query():
    """Mistral in transformers with sliding_window=4, one layer: three tokens before the query."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        **SMALL, num_key_value_heads=2, num_hidden_layers=1, sliding_window=4, attn_implementation="eager"
    )
    assert gradient_window(transformers.MistralModel(config).eval(), 12, 9) == [6, 7, 8, 9]


def test_library_window_on_both_sides_does_not():
    """The mask of transformers with sliding_window=4 and no causality: four tokens on each side of the query."""
    masking = pytest.importorskip("transformers.masking_utils")
    both = masking.sliding_window_bidirectional_mask_function(4)
    causal = masking.sliding_window_causal_mask_function(4)
    q, k = torch.arange(12)[:, None], torch.arange(12)[None, :]
    assert both(0, 0, q, k)[6].nonzero().flatten().tolist() == list(range(2, 11))
    assert causal(0, 0, q, k)[6].nonzero().flatten().tolist() == [3, 4, 5, 6]


def test_library_modernbert_window():
    """ModernBERT with local_attention=8, one local layer: four tokens on each side."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ModernBertConfig(
        **SMALL, num_hidden_layers=1, local_attention=8, layer_types=["sliding_attention"], pad_token_id=0,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, attn_implementation="eager",
    )  # fmt: skip
    assert gradient_window(transformers.ModernBertModel(config).eval(), 20, 10) == list(range(6, 15))


def test_library_longformer_window():
    """Longformer with attention_window=8, one layer: four tokens on each side."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LongformerConfig(
        **SMALL, num_hidden_layers=1, attention_window=[8], max_position_embeddings=64, pad_token_id=1
    )
    model = transformers.LongformerModel(config, add_pooling_layer=False).eval()
    assert gradient_window(model, 24, 12) == list(range(8, 17))


def alibi_bias(bias: torch.Tensor) -> torch.Tensor:
    """Slopes from a bias (heads, …, keys): the step from one key to the next."""
    return bias.double().diff(dim=-1)[..., 0].flatten()


@pytest.mark.parametrize("heads", [4, 8, 12, 20])
def test_library_alibi_slopes(heads):
    """BLOOM's and MPT's slopes in transformers are ours, for any number of heads."""
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    ours = rl.alibi_slopes(heads)
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)
    torch.testing.assert_close(alibi_bias(theirs), ours, rtol=1e-6, atol=0)
    torch.testing.assert_close(alibi_bias(mpt.build_mpt_alibi_tensor(heads, 9)), ours, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("backend", "times"), [("sdpa", 1), ("eager", 2)])
def test_library_falcon_divides_the_price(backend, times):
    """Falcon with alibi: the price is divided by the root of the head dimension; the eager path adds it twice."""
    transformers = pytest.importorskip("transformers")
    config = transformers.FalconConfig(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=1, vocab_size=16, alibi=True, multi_query=False,
        new_decoder_architecture=False, parallel_attn=False, bias=False, attn_implementation=backend,
    )  # fmt: skip
    model = transformers.FalconModel(config).eval()
    attention, seen = model.h[0].self_attention, []

    def only_values(module, given, out):  # products of zero, and one-hot values: out comes the price, as weights
        out = torch.zeros(1, 9, 4, 3, 16)  # (batch, seq, heads, q k v, head_dim)
        out[0, :, :, 2, :9] = torch.eye(9).unsqueeze(1)
        return out.reshape(1, 9, -1)

    attention.query_key_value.register_forward_hook(only_values)
    attention.dense.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    with torch.no_grad():
        model(torch.randint(16, (1, 9)))
    weights = seen[0].view(9, 4, 16)[-1, :, :9].double()  # of the last query
    torch.testing.assert_close(alibi_bias(weights.log()), times * rl.alibi_slopes(4) / 16**0.5, rtol=1e-4, atol=0)


def test_library_gpt_oss_learns_a_sink():
    """gpt-oss: a learned number for each head stands in the softmax beside the scores, and has no value."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GptOssConfig(
        **SMALL, head_dim=16, num_key_value_heads=2, num_hidden_layers=1, num_local_experts=2, num_experts_per_tok=1,
        layer_types=["full_attention"], attn_implementation="eager",
    )  # fmt: skip
    model = transformers.GptOssModel(config).eval()
    sums = []
    for sink in (-30.0, 2.0):
        with torch.no_grad():
            model.layers[0].self_attn.sinks.fill_(sink)
            weights = model(torch.randint(16, (1, 9)), output_attentions=True).attentions[0]
        sums.append(weights.sum(dim=-1).max())
    assert sums[0] == pytest.approx(1, abs=1e-5)
    assert sums[1] < 0.99
    kinds = transformers.GptOssConfig(num_hidden_layers=4).layer_types
    assert kinds == ["sliding_attention", "full_attention"] * 2


def test_library_cohere2_turns_in_windows_only():
    """Cohere2: RoPE in the layers with a window; a full layer does not know the order of what it sees."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    x = torch.randn(1, 9, 32)
    swapped = x[:, [1, 0, *range(2, 9)]]
    moved = {}
    for kind in ("full_attention", "sliding_attention"):
        config = transformers.Cohere2Config(
            **SMALL, num_key_value_heads=2, num_hidden_layers=1, layer_types=[kind], sliding_window=16,
            attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model = transformers.Cohere2Model(config).eval()
        with torch.no_grad():
            for part in (model.layers[0].self_attn.q_proj, model.layers[0].self_attn.k_proj):
                part.weight.mul_(20)  # a fresh model's attention is nearly even, and hides what it turns
            ends = [model(inputs_embeds=some).last_hidden_state[0, -1] for some in (x, swapped)]
        moved[kind] = float((ends[0] - ends[1]).abs().max())
    assert moved["full_attention"] < 1e-5 < 1e-3 < moved["sliding_attention"]
    config = transformers.Cohere2Config(num_hidden_layers=8)
    assert [kind == "full_attention" for kind in config.layer_types] == [False, False, False, True] * 2


def test_library_flex_attention_takes_the_masks():
    """The mask functions go into PyTorch's FlexAttention as they are."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    blocks = flex.create_block_mask(rl.local.lambda_mask(64, 4), None, None, 512, 512, device="cpu")
    index = torch.arange(512)
    dense = rl.local.dense_mask(rl.local.lambda_mask(64, 4), index, index)
    needed = dense.view(4, 128, 4, 128).any(dim=3).any(dim=1)
    assert torch.equal(blocks.to_dense()[0, 0].bool(), needed)


def test_inside_the_field_is_not_found():
    """Digits of a number by how far back its line stands, seed 0, windows of 64 in four layers: a field of 253."""
    model, texts = live.load(), live.windows()[:16]
    window = rl.scheme("window", dim=32, visible_window=64)
    inside, field = ([needle_depth(back, 512) for back in backs] for backs in ((16, 40, 64), (65, 112, 160, 209, 253)))
    found = live.digits(model, window, texts, 512, [*inside, *field]).double().mean(dim=(1, 2))
    assert found[:3].tolist() == [1, 1, 1]
    assert max(found[3:]) < 0.2  # one of ten by chance
    drawn = live.digits(model, window, texts[:8], 512, [needle_depth(back, 512) for back in (65, 80, 128, 240, 480)])
    assert math.floor(100 * float(drawn.double().mean(dim=(1, 2)).max())) == 12  # the figure's own dots, 40 digits each
    near = live.digits(model, window.replace(visible_window=32), texts[:8], 512,
                       [needle_depth(back, 512) for back in (33, 40, 64, 120, 480)])  # fmt: skip
    assert float(near.double().mean(dim=(1, 2)).max()) < 0.12
    asked = [line.strip() for line in (NEEDLE.format("43784"), QUESTION.format(""))]
    assert asked == ['key = "43784"', 'key = "']
    written: Counter[int] = Counter()
    for back in (65, 80, 128, 240, 480):
        tokens = passkey_windows(texts[:8], needle_depth(back, 512))
        with torch.no_grad():
            written.update(model(tokens[:, :-1], (window,) * 4).argmax(-1)[:, -5:].flatten().tolist())
    assert written[ord("9")] + written[ord("2")] > 0.9 * written.total()  # whatever was hidden: "a guess"
    assert """Hide a number, as `key = "43784"`, and ask for it at the end with `key = "`.""" in LESSON
    hidden = bytes(passkey_windows(texts[:1], needle_depth(64, 512))[0].tolist())
    assert (len(hidden), hidden.rindex(b"43784"), hidden.index(b"43784")) == (513, 508, 508 - 64)
    assert "by how many bytes back the digit stands from the place where it has to be written." in LESSON
    assert "still deep inside the field, the model falls to 12 % and less, where a guess among ten" in LESSON


def test_a_recall_model_that_had_to_pass_a_letter_on_did_not_learn_it():
    """Trained with windows of 32 in two layers, a field of 63: beyond the window it guesses, on 64 bytes too."""
    assert rl.local.receptive_field(STORED["window"], 2) == 63
    for length in ("recall_short", "recall"):
        shares = [row[length] for row in rows_of("window")]
        assert all(of_seed["24"] == 1 for of_seed in shares)
        assert max(sum(of_seed[distance] for of_seed in shares) / 3 for distance in ("40", "56")) < 0.08
    assert "a token between could carry the secret on. In 800 steps it did not learn to." in DEEPER
    assert "A small model trained with windows did not learn it either, in 800 steps ({doc}`going deeper" in LESSON


def test_the_same_is_not_good():
    """The recall model with windows of 32: no worse at the end than behind the first field, and bad in both."""
    model, windows = byte_lm.load(DATA / "local_byte_lm.safetensors"), byte_lm.evaluation_windows()
    plan = (rl.scheme("window", dim=64, visible_window=32),) * 2
    _, loss = byte_lm.evaluate(recall.started(model), windows, 512, plan)
    parts = [float(part.mean()) for part in loss[:, 64:].mean(dim=0).split(64)]
    assert min(parts) > mean_loss("rope", "64") + 0.6
    assert max(parts) - min(parts) < 0.1
    assert "with windows the recall model is, from byte 64 to 512, one and the same bad reader" in DEEPER


def test_what_windows_cost_on_ordinary_text():
    """All bytes: none of the methods that see far is more than 2 points above its own weights in windows, HWFA by 2."""
    far = ("alibi", "hwfa2-w16-logn", "hwfa-w16")
    ahead = [board(row, "natural", 512, "ahead_mean") for row in far]
    assert ahead == [1.0, 0.7, 2.1]
    assert round(board("hwfa-w16", "natural", 512) - board("rope-window", "natural", 512), 1) == 3  # the table's window
    assert round(board("hwfa-w16", "far copies", 512, "ahead_mean")) == 14
    assert "Ordinary text hardly shows what it loses; a question about far text does." in LESSON


def test_rows_of_the_table_are_what_their_names_say():
    """They were called a window of 64 "and 4 first bytes"; the four are among the 64. And each has its own seeds."""
    small = rows(layers=4, dim=32, train_length=64)
    for row, name in (("lambda", "true distance"), ("streaming", "StreamingLLM")):
        test = small[row].method.test[0]
        assert f'"{row}": "first {test.sinks} and last {test.visible_window}, {name}"' in DEEPER
        assert test.sinks + test.visible_window == 64
    near = small["lm-infinite"].method.test[0]
    assert (near.sinks, near.visible_window, near.window) == (4, 60, 59)
    assert "the first 4 bytes and the last 60, and caps distances at 59" in DEEPER
    lines = results("scoreboard")["rows"].where(rung="small", metric="needle", length=512)
    above = [lines.where(row=row)["seeds"][0] for row in ("rope", "rope-window", "lambda", "streaming")]
    below = [lines.where(row=row)["seeds"][0] for row in ("alibi", "hwfa2-w16-logn", "hwfa-w16")]
    assert (above, below) == ([5, 5, 3, 3], [3, 5, 3])
    trained = [lines.where(row=row)["training"][0] for row in ("rope", "rope-window", "lambda", "streaming")]
    assert trained == ["rope"] * 4
    trained = [lines.where(row=row)["training"][0] for row in ("alibi", "hwfa2-w16-logn", "hwfa-w16")]
    assert trained == ["alibi", "hwfa2-w16-logn", "hwfa-w16"]
    assert "and beside it two models that were trained anew, one with ALiBi and one with HWFA." in LESSON
    assert '"rope-window": "window of 64, at test",' in LESSON
    assert lines.where(row="nope-every-fourth-logn")["training"] == ["nope-every-fourth-logn"]
    full = small["nope-every-fourth-logn"].method.test
    assert [layer.visible_window for layer in full] == [None] * 4
    assert [layer.frequencies is None for layer in full] == [False] * 3 + [True]
    found = {
        row: [round(board(row, f"needle {depth}", 512)) for depth in ("0", "0.5", "1")] for row in ("alibi", "hwfa-w16")
    }
    assert found == {"alibi": [17, 58, 100], "hwfa-w16": [100] * 3}
    assert (
        "In the middle the window finds nothing. Right before the question two of its five seeds miss some." in LESSON
    )
    assert "ALiBi finds some in the middle, and fewer at the start." in LESSON
    near = by_seed("rope-window", "needle 1", training="rope")
    assert near == [84, 95, 100, 100, 100]
    assert "plain RoPE that keeps the first four bytes, changed at test only, in three ways." in DEEPER
    home = [
        board(row, "needle", 64)
        for row in ("rope", "rope-window", "lambda", "streaming", "alibi", "hwfa2-w16-logn", "hwfa-w16")
    ]
    assert (min(home), max(home)) == (98.4, 100)
    assert board("nope-every-fourth-logn", "needle", 64) > 98
    assert "At home, on 64 bytes, each of the three models finds at least 98 %; so it is distance that costs." in LESSON
    assert small["hwfa2-w16-logn"].method.test[2].window == 32
    keys = {
        row: sum((layer.visible_window or 512) + layer.sinks for layer in small[row].method.test)
        for row in ("rope-window", "streaming", "alibi", "hwfa-w16", "hwfa2-w16-logn")
    }
    assert list(keys.values()) == [256, 256, 2048, 560, 560]
    assert "With 560 keys instead of 2,048" in DEEPER
    assert "about $1/\\ell$ of full attention's, but grows. ALiBi keeps every key." in LESSON
    assert "at test that layer alone caps its distances, here at 32." in DEEPER


def test_no_interval_of_the_lessons_table_was_cut():
    """So its caption leaves out what a cut one would look like."""
    names = {row: row for row in ("rope-window", "hwfa-w16", "hwfa-w16-window", "nope-every-fourth-logn")}
    asked = ("natural", 64), ("natural", 512), ("needle", 512)
    shown = rl.figures.scoreboard_table(results("scoreboard")["rows"], names, columns=asked)
    assert all(text.startswith(("±", "–")) for text in shown.below.values())
    (cut,) = re.findall(r'^cut = "(.+)"  # none here$', LESSON, re.MULTILINE)
    assert cut in shown.caption
    assert all(f'"{row}": "' in LESSON for row in names)


def test_the_recall_model_reads_far_with_alibi_and_not_through_hwfa():
    """What the lesson says of its other model, and shows on the deeper page: loss and reach are two things."""
    alibi = [STORED["rows"].where(method="alibi", test="as the method says")[part] for part in ("short", "long")]
    assert all(far["loss"] > near["loss"] + 0.3 for near, far in zip(*alibi, strict=True))
    hwfa = STORED["rows"].where(method="hwfa", test="as the method says")["recall_short"]
    assert all(of_seed[distance] < 0.12 for of_seed in hwfa for distance in ("40", "56"))
    reach = STORED["rows"].where(method="alibi", test="as the method says")["recall"]
    assert [of_seed["384"] for of_seed in reach] == [1, 0, 1]
    assert "Its loss rises in every seed, and in two of three it answers every question at every distance" in DEEPER
    assert "A recall model trained with HWFA did not learn it in 800 steps." in LESSON
    assert "800 steps on 64 bytes" in DEEPER  # and the setting itself:
    assert STORED["config"]["steps"] == 800
