"""Each row of the table of kinds works everywhere, and so does one that is added to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rope_lessons as rl
from rope_lessons import METHODS, FrequencySpec, KVCache, Scheme
from rope_lessons.figures import shootout as figures
from rope_lessons.hf.configs import SAID
from rope_lessons.kinds import KINDS
from rope_lessons.lab import rows
from rope_lessons.lab.table.knobs import knobs
from rope_lessons.schemes import SCHEMES
from tools import kinds as kinds_table

ROOT = Path(__file__).parents[1]
kinds = pytest.mark.parametrize("kind", KINDS)


def options(kind: str) -> dict[str, float]:
    """For :func:`rl.scheme`: its frequencies at 4 times a training length of 5, and its attention factor."""
    return {**dict.fromkeys(KINDS[kind].factor_needs, 4), **KINDS[kind].extended(8, 4, 5)}


@kinds
def test_frequencies(kind: str) -> None:
    """As many as there are pairs; those of RoPE at the training length with a factor of 1; others with another."""
    plain = FrequencySpec(kind, dim=8, **KINDS[kind].extended(8, 1, 5))
    torch.testing.assert_close(plain(length=5), rl.rope_frequencies(8), rtol=1e-14, atol=0)
    spec = FrequencySpec(kind, dim=8, **KINDS[kind].extended(8, 4, 5))
    assert eval(repr(spec), vars(rl)) == spec
    assert spec(length=9).shape == (4,)
    assert torch.equal(spec(length=9), rl.rope_frequencies(8)) == (kind == "rope")


@kinds
def test_scheme_and_method(kind: str) -> None:
    assert kind in SCHEMES
    scheme = rl.scheme(kind, dim=8, **options(kind))
    assert scheme.frequencies == FrequencySpec(kind, dim=8, **KINDS[kind].extended(8, 4, 5))
    assert scheme.rotary_scale == KINDS[kind].rotary_scale(options(kind))
    assert rl.scheme(kind, dim=8, **options(kind), rotary_scale=1.5).rotary_scale == 1.5
    method = METHODS[kind](layers=2, dim=8, **options(kind))
    assert method.test == (scheme,) * 2
    assert method.train == (rl.scheme("rope", dim=8),) * 2
    with pytest.raises(ValueError, match=f"options of scheme {kind!r} must be among dim, .* got 'wrong'"):
        rl.scheme(kind, dim=8, wrong=1, **options(kind))
    for name in KINDS[kind].required:
        rest = {key: value for key, value in {"dim": 8, **options(kind)}.items() if key != name}
        with pytest.raises(ValueError, match=f"scheme {kind!r} needs {name}; got "):
            rl.scheme(kind, **rest)


@kinds
@pytest.mark.parametrize("backend", ["reference", "flash", "flex"])
def test_attention(kind: str, backend: str) -> None:
    """Every backend against queries and keys that are turned by hand, and the cache against the whole."""
    scheme = rl.scheme(kind, dim=8, **options(kind))
    q, k, v = torch.randn(3, 1, 2, 9, 8)
    turned = [
        rl.apply_rotary(x, torch.arange(9), scheme.frequencies(length=9), layout="half", scale=scheme.rotary_scale)
        for x in (q, k)
    ]
    wanted = torch.nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True)
    torch.testing.assert_close(rl.attention(q, k, v, scheme, backend=backend), wanted, rtol=1e-5, atol=1e-5)
    cache = KVCache(scheme)
    for at in (slice(0, 7), slice(7, 8), slice(8, 9)):
        last = rl.attention(q[:, :, at], k[:, :, at], v[:, :, at], scheme, cache=cache)
    torch.testing.assert_close(last, wanted[:, :, 8:], rtol=1e-5, atol=1e-5)


@kinds
def test_config(kind: str) -> None:
    """Through Hugging Face's dictionary and back, where it can say the kind."""
    scheme = Scheme(FrequencySpec(kind, dim=8, base=500.0, **KINDS[kind].extended(8, 4, 5)))
    if KINDS[kind].plain_base is not None:
        plain = rl.plan_from_hf(rl.plan_to_hf((scheme,) * 2, head_dim=8))[0]
        assert plain.frequencies is not None
        assert plain.frequencies.kind == "rope"
        torch.testing.assert_close(plain.frequencies(), scheme.frequencies(), rtol=1e-14, atol=0)
        return
    if kind not in SAID:
        with pytest.raises(ValueError, match="frequencies must be one of 'rope', "):
            rl.plan_to_hf((scheme,) * 2, head_dim=8)
        return
    config = rl.plan_to_hf((scheme,) * 2, head_dim=8)
    assert config["rope_parameters"]["rope_type"] == SAID[kind].name
    assert rl.plan_from_hf(config) == (scheme,) * 2
    if KINDS[kind].attention_factor:  # a factor that follows from the dictionary is not written, another is
        own = rl.scheme(kind, dim=8, **options(kind))
        assert rl.plan_from_hf(rl.plan_to_hf((own,), head_dim=8)) == (own,)
    for key in SAID[kind].required:
        rope = {name: value for name, value in config["rope_parameters"].items() if name != key}
        if key != "mixed_b":  # without it the dictionary is NTK-fixed's
            with pytest.raises(ValueError, match=rf"rope_type '{SAID[kind].name}' must contain '{key}'"):
                rl.plan_from_hf({**config, "rope_parameters": rope})


@kinds
def test_api_page(kind: str) -> None:
    row = next(row for row in kinds_table.table() if row[0] == f"`{kind}`")
    assert row[1] == KINDS[kind].label
    assert all(f"`{option}`" in row[2] for option in KINDS[kind].defaults)
    words = "`default`, with another" if KINDS[kind].plain_base else "none"
    assert row[4].startswith(f"`{SAID[kind].name}`" if kind in SAID else words)


@kinds
def test_label(kind: str) -> None:
    """In the columns of the table and in the figures, also as a part of a row's name."""
    label = KINDS[kind].label
    method = METHODS[kind](layers=2, dim=8, **options(kind))
    assert knobs(rows.TableRow(kind, method))["frequencies"].split(" → ")[-1] == label
    assert figures.full_label(f"{kind}-logn-test") == f"{label}, log n†"
    assert figures.label_of(f"kna-{kind}") == f"KNA + {label}"
    assert figures.group_of(kind) == "frequencies"
    assert len({row.label for row in KINDS.values()}) == len(KINDS)


def test_a_row_is_all_that_a_kind_takes() -> None:
    """These tests again, in a process of their own whose table has one more row."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.toy_kind", "-p", "no:cacheprovider", "-q", "-k", "toy"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run([*command, __file__], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout, ran.stdout
