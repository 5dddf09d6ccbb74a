"""The rows of the table: those of the articles are all there, with the settings of the articles."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import rope_lessons as rl
from rope_lessons import LogN, scheme
from rope_lessons.lab.rows import TableRow, rows, trainings

ARTICLES = rows(layers=24, dim=128, train_length=512, factor=8)  # the models of the articles
PLAIN = scheme("rope", dim=128)
LOG_N, CLIPPED = LogN(512), LogN(512, clip=True)


def only(plan: rl.Plan) -> rl.Scheme:
    (found,) = set(plan)
    return found


def test_every_row_of_the_articles_is_there():
    """The names in the tables of articles 9 to 15, for N = 512 and 8 times the length."""
    names = {"rope", "rope-logn", "pi", "pi-logn", "ntk-old", "ntk-old-logn", "alibi", "hwfa-w16",
             "invleaky-w128-logn", "invleaky-w128-logn-b80000"}  # fmt: skip
    names |= {f"{name}{scale}" for name in ("ntk-fixed", "ntk-mixed") for scale in ("", "-logn", "-logn-test")}
    names |= {f"rerope-w{w}{scale}" for w in (64, 128, 256, 384, 512) for scale in ("", "-logn", "-logn-test")}
    names |= {f"leaky-rerope-w{w}-k{k}-logn" for w in (128, 256) for k in (64, 32, 16, 8)}
    names |= {f"hwfa2-w{w}-f{f}" for w in (32, 64, 128, 256) for f in (1, 2)}
    names |= {f"{name}{scale}" for name in ("qna", "kna", "cosa") for scale in ("", "-logn")}
    names |= {f"{name}-{trick}" for name in ("qna", "kna", "kna-logn", "cosa", "cosa-logn")
              for trick in ("ntk-fixed", "yarn", "rerope-w128")}  # fmt: skip
    names |= {"yarn", "yarn-logn", "ntk-aware", "dynamic-ntk", "window", "lambda", "nope", "equal-mean"}
    assert names <= ARTICLES.keys()
    assert all(name == row.name for name, row in ARTICLES.items())


def test_log_n_in_training_and_log_n_at_test_only():
    for name in ("rope", "pi", "ntk-mixed", "yarn", "rerope-w128"):
        plain, trained, at_test = (ARTICLES[name + end].method for end in ("", "-logn", "-logn-test"))
        assert (only(plain.train).scale, only(plain.test).scale) == (None, None)
        assert (only(trained.train).scale, only(trained.test).scale) == (LOG_N, LOG_N)
        assert (only(at_test.train).scale, only(at_test.test).scale) == (None, CLIPPED)
        assert only(plain.train) == only(at_test.train) == PLAIN


def test_settings_of_the_articles():
    assert only(ARTICLES["leaky-rerope-w128-k16-logn"].method.test).slope == 1 / 16
    bent = ARTICLES["invleaky-w128-logn-b80000"].method
    assert (only(bent.train).window, only(bent.train).slope) == (128, 16)
    assert only(bent.test) == scheme("rope", dim=128, base=80_000, scale=LOG_N)
    hwfa = ARTICLES["hwfa-w16"].method.train
    assert [layer.visible_window for layer in hwfa] == [16] * 23 + [None]
    assert hwfa[-1] == scheme("nope", scale=LOG_N)
    assert rl.local.receptive_field(16, 23, causal=True) <= 3 / 4 * 512 < rl.local.receptive_field(32, 23, causal=True)
    hybrid = ARTICLES["hwfa2-w64-f2"].method
    assert [number for number, layer in enumerate(hybrid.test) if layer.visible_window is None] == [8, 16]
    assert (hybrid.test[8].window, hybrid.test[8].slope, hybrid.train[8]) == (256, 0, PLAIN)
    scaled = ARTICLES["hwfa2-w64-f2-logn"].method
    assert [layer.scale for layer in scaled.train] == [LOG_N if n in (8, 16) else None for n in range(24)]
    assert [replace(layer, scale=None) for layer in scaled.test] == list(hybrid.test)


def test_rows_that_are_trained_alike_share_a_model():
    shared = trainings(ARTICLES.values())
    assert sum(len(members) for members in shared.values()) == len(ARTICLES)
    for first, members in shared.items():
        assert members[0].name == first
        assert len({(row.method.train, row.method.train_positions, row.normalized) for row in members}) == 1
    assert {row.name for row in shared["rope"]} >= {"pi", "ntk-mixed-logn-test", "rerope-w128", "window", "lambda"}
    assert {row.name for row in shared["cosa-logn"]} == {
        f"cosa-logn{end}" for end in ("", "-ntk-fixed", "-yarn", "-rerope-w128")
    }
    assert [row.name for row in shared["hwfa2-w32-f1"]] == ["hwfa2-w32-f1"]


@pytest.mark.parametrize("name", ["kna", "qna", "cosa", "cosa-logn", "rope-logn"])
def test_key_norm_by_its_equation(name):
    """softmax of q·k/|k|, of q·k/|q|, and of 4 log n cos(q, k), in float32 against dense float64."""
    row = rows(layers=2, dim=8, train_length=32)[name]
    q, k, v = torch.randn(3, 1, 2, 40, 8)
    places = torch.arange(40)
    turned_q, turned_k = (rl.apply_rotary(x.double(), places, rl.rope_frequencies(8), layout="half") for x in (q, k))
    products = turned_q @ turned_k.mT
    of_q, of_k = q.double().norm(dim=-1)[..., None], k.double().norm(dim=-1)[..., None, :]
    seen = (places + 1.0).double()[:, None]
    logs = seen.clamp(min=16).log()
    scores = {
        "kna": products / of_k,
        "qna": products / of_q,
        "cosa": 4 * torch.tensor(16.0).log() * products / of_q / of_k,
        "cosa-logn": 4 * logs * products / of_q / of_k,
        "rope-logn": logs / torch.tensor(32.0).log() * products / 8**0.5,
    }[name]
    wanted = scores.masked_fill(places > places[:, None], -torch.inf).softmax(dim=-1) @ v.double()
    torch.testing.assert_close(row.attend(q, k, v, row.method.test[0]), wanted.float(), atol=2e-5, rtol=1e-4)


def test_random_positions_are_drawn_in_training_and_causal():
    for name in ("equal-mean", "random-positions"):
        method = ARTICLES[name].method
        assert only(method.train).causal
        assert only(method.test).causal
        assert method.train_positions is not None
    assert ARTICLES["random-positions"].method.test_positions(8192)[-1] == 8191
    assert ARTICLES["equal-mean"].method.test_positions is None


def test_bad_values():
    with pytest.raises(ValueError, match="train_length must be a multiple of 16, got 72"):
        rows(layers=4, dim=64, train_length=72)
    with pytest.raises(ValueError, match="layers must be an int of at least 2, got 1"):
        rows(layers=1, dim=64, train_length=64)
    with pytest.raises(ValueError, match="normalized must be one of"):
        TableRow("x", ARTICLES["rope"].method, normalized="v")
