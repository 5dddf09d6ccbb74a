"""Schemes, plans and methods: the table of the book as data."""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import Any

import pytest
import torch

import rope_lessons as rl
from rope_lessons import METHODS, FrequencySpec, LogN, Method, Scheme
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import SCHEMES

SPECS = {kind: FrequencySpec(kind, dim=8, **row.extended(8, 4, 16)) for kind, row in KINDS.items()}
OPTIONS = {
    **{kind: dict.fromkeys(row.factor_needs, 4) | dict(SPECS[kind].options) for kind, row in KINDS.items()},
    "nope": {},
    "alibi": {},
    "window": {"dim": 8, "visible_window": 4},
    "lambda": {"dim": 8, "visible_window": 4},
    "rerope": {"dim": 8, "window": 4},
    "leaky-rerope": {"dim": 8, "window": 4, "slope": 0.25},
    "invleaky": {"dim": 8, "window": 4, "slope": 16},
}


def test_tables_are_complete() -> None:
    assert OPTIONS.keys() == set(SCHEMES)
    assert set(SCHEMES) - {"invleaky"} <= METHODS.keys()


def test_specs_compute_their_functions(device: torch.device) -> None:
    wanted = {
        "rope": rl.rope_frequencies(8),
        "pi": rl.pi_frequencies(8, 4),
        "ntk-old": rl.ntk_frequencies(8, 4, variant="old"),
        "ntk-fixed": rl.ntk_frequencies(8, 4, variant="fixed"),
        "ntk-aware": rl.ntk_frequencies(8, 4, variant="aware"),
        "ntk-mixed": rl.mixed_radix_frequencies(8, 4, 0.625),
        "dynamic-ntk": rl.dynamic_ntk_frequencies(8, 100, 16, 4),
        "ntk-by-parts": rl.ntk_by_parts_frequencies(8, 4, 16),
        "yarn": rl.yarn_frequencies(8, 4, 16),
        "llama3": rl.llama3_frequencies(8, 4, 16),
        "proportional": rl.rope_frequencies(8) / 4,
        "longrope": rl.rope_frequencies(8) / 4,
    }
    for name in wanted:
        spec = SPECS[name]
        frequencies = spec(length=100, device=device)
        assert frequencies.device.type == device.type
        torch.testing.assert_close(frequencies.cpu(), wanted[name], rtol=1e-14, atol=0)
        assert spec.needs_length == (name in ("dynamic-ntk", "longrope"))
        assert spec.dim == 8


def test_equal_settings_are_equal() -> None:
    assert FrequencySpec("pi", dim=8, factor=4) == FrequencySpec("pi", factor=4.0, base=10_000, dim=8)
    assert hash(FrequencySpec("pi", dim=8, factor=4)) == hash(FrequencySpec("pi", factor=4.0, base=10_000, dim=8))
    assert FrequencySpec("pi", dim=8, factor=4) != FrequencySpec("pi", dim=8, factor=5)
    assert Scheme(SPECS["rope"]) == rl.scheme("rope", dim=8)
    assert len({Scheme(), Scheme(SPECS["rope"]), Scheme(SPECS["rope"], window=0)}) == 2


@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_are_values(name: str) -> None:
    scheme = rl.scheme(name, **OPTIONS[name])
    assert eval(repr(scheme), {**vars(rl), "inf": float("inf")}) == scheme  # prints what makes it
    assert pickle.loads(pickle.dumps(scheme)) == scheme
    assert {scheme: name}[rl.scheme(name, **OPTIONS[name])] == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        scheme.window = 3  # type: ignore[misc]
    assert not any(isinstance(getattr(scheme, f.name), torch.Tensor) for f in dataclasses.fields(scheme))


def test_other_knobs() -> None:
    start = rl.scheme("rerope", dim=8, window=4)
    assert start.replace() == start
    assert start.replace(window=8, scale=LogN(16)) == Scheme(SPECS["rope"], window=8, slope=0.0, scale=LogN(16))
    assert start == rl.scheme("rerope", dim=8, window=4)
    with pytest.raises(ValueError, match="sinks must be 0 without a visible_window"):
        start.replace(sinks=4)


# --- in a checkpoint -------------------------------------------------------------------------------------------------


def through_a_checkpoint(value: Any) -> Any:
    """Saved and loaded as ``torch.load`` does it by default: with no code but what is known to be harmless."""
    file = io.BytesIO()
    torch.save({"value": value, "weight": torch.ones(2)}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["value"]


def test_plans_in_a_checkpoint() -> None:
    plan = tuple(rl.scheme(name, **OPTIONS[name], scale=LogN(16)) for name in SCHEMES)
    assert through_a_checkpoint(plan) == plan
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        through_a_checkpoint(Method("mine", plan, plan))  # its samplers may be any function
    assert {kind for kind in torch.serialization.get_safe_globals() if "rope_lessons" in str(kind)} == {
        FrequencySpec,
        LogN,
        Scheme,
    }


def forged(kind: type, state: dict[str, Any]) -> Any:
    """What no constructor has seen."""
    made = object.__new__(kind)
    made.__dict__.update(state)
    return made


GOOD = {type(made): vars(made) for made in (rl.scheme("rope", dim=8), LogN(16), SPECS["pi"])}


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        (Scheme, {"layout": "spiral"}, "layout must be one of"),
        (Scheme, {"frequencies": ((1.0,),)}, "frequencies must be a FrequencySpec or None"),
        (Scheme, {"sinks": 4}, "sinks must be 0 without a visible_window"),
        (Scheme, {"rotary_scale": float("nan")}, "rotary_scale must be a positive finite number"),
        (
            Scheme,
            {"scale": forged(LogN, {"train_length": -1, "clip": False, "floor": 16})},
            "train_length must be",
        ),
        (Scheme, {"anything": 1}, "unexpected keyword argument 'anything'"),
        (LogN, {"train_length": 0}, "train_length must be"),
        (FrequencySpec, {"kind": "magic"}, "kind must be one of"),
        (FrequencySpec, {"options": (("dim", 8), ("factor", -1))}, "factor must be a positive finite number"),
    ],
)
def test_what_a_checkpoint_holds_is_checked_again(kind: type, changed: dict[str, Any], message: str) -> None:
    assert through_a_checkpoint(forged(kind, GOOD[kind])) == forged(kind, GOOD[kind])
    for load in (through_a_checkpoint, lambda value: pickle.loads(pickle.dumps(value))):
        with pytest.raises((TypeError, ValueError), match=message):
            load(forged(kind, {**GOOD[kind], **changed}))


# --- the table -------------------------------------------------------------------------------------------------------


def test_rows_set_their_knobs() -> None:
    rope = SPECS["rope"]
    wanted = {
        **{name: Scheme(spec) for name, spec in SPECS.items() if not KINDS[name].attention_factor},
        "yarn": Scheme(SPECS["yarn"], rotary_scale=rl.yarn_attention_factor(4)),
        "longrope": Scheme(SPECS["longrope"], rotary_scale=rl.longrope_attention_factor(4, 16)),
        "nope": Scheme(None),
        "alibi": Scheme(None, alibi=True),
        "window": Scheme(rope, visible_window=4),
        "lambda": Scheme(rope, visible_window=4, sinks=4),
        "rerope": Scheme(rope, window=4, slope=0.0),
        "leaky-rerope": Scheme(rope, window=4, slope=0.25),
        "invleaky": Scheme(rope, window=4, slope=16),
    }
    for name, scheme in wanted.items():
        assert rl.scheme(name, **OPTIONS[name]) == scheme
        other = rl.scheme(name, **OPTIONS[name], layout="interleaved", scale=LogN(512), causal=False)
        assert other == dataclasses.replace(scheme, layout="interleaved", scale=LogN(512), causal=False)
    assert rl.scheme("window", dim=8, visible_window=4, sinks=2).sinks == 2


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "invleaky"])
def test_methods_that_act_at_test_only_are_trained_as_rope(name: str) -> None:
    options = {key: value for key, value in OPTIONS[name].items() if key not in ("dim", "base")}
    method = METHODS[name](layers=3, dim=8, **options)
    scheme = rl.scheme(name, **OPTIONS[name])
    assert method.name == name
    assert method.test == (scheme,) * 3
    assert method.train == (scheme if name in ("nope", "alibi") else Scheme(SPECS["rope"]),) * 3


def test_log_n_is_trained_with_unless_it_is_clipped() -> None:
    plain = METHODS["rerope"](layers=1, dim=8, window=4, scale=LogN(64))
    clipped = METHODS["rerope"](layers=1, dim=8, window=4, scale=LogN(64, clip=True))
    assert plain.train == (Scheme(SPECS["rope"], scale=LogN(64)),)
    assert clipped.train == (Scheme(SPECS["rope"]),)
    assert clipped.test[0].scale == LogN(64, clip=True)


def test_invleaky_bends_in_training() -> None:
    method = METHODS["invleaky"](layers=2, dim=8, window=4, slope=16)
    assert method.train == (Scheme(SPECS["rope"], window=4, slope=16),) * 2
    assert method.test == (Scheme(SPECS["rope"]),) * 2


def test_hwfa() -> None:
    near = Scheme(SPECS["rope"], visible_window=4)
    method = METHODS["hwfa"](layers=4, dim=8, visible_window=4, train_length=64)
    assert method.train == method.test == (near,) * 3 + (Scheme(None, scale=LogN(64)),)
    assert METHODS["hfwa"](layers=4, dim=8, visible_window=4, train_length=64) == method


def test_hwfa2() -> None:
    near = Scheme(SPECS["rope"], visible_window=4)
    method = METHODS["hwfa2"](layers=6, dim=8, visible_window=4, window=16, full_layers=2, train_length=64)
    full, bent = Scheme(SPECS["rope"], scale=LogN(64)), Scheme(SPECS["rope"], window=16, slope=0.0, scale=LogN(64))
    assert method.train == (near, near, full, near, full, near)
    assert method.test == (near, near, bent, near, bent, near)
    for layers in range(1, 13):  # as many full layers as asked for
        for full_layers in range(1, layers + 1):
            plan = METHODS["hwfa2"](layers=layers, dim=8, visible_window=4, window=16, full_layers=full_layers).train
            assert sum(layer.visible_window is None for layer in plan) == full_layers


def test_every_method_runs(device: torch.device) -> None:
    options = {name: dict(OPTIONS.get(name, {})) for name in METHODS}
    for settings in options.values():
        settings.pop("dim", None)
        settings.pop("base", None)
    options["hwfa"] = options["hfwa"] = {"visible_window": 4, "train_length": 16}
    options["hwfa2"] = {"visible_window": 4, "window": 8, "train_length": 16}
    options["invleaky-moving"] = {"windows": (4, 5), "slopes": (16,)}
    options["self-extend"] = {"window": 4, "group": 2}
    options["streaming"] = {"visible_window": 4}
    for name, build in METHODS.items():
        method = build(layers=2, dim=8, **options[name])
        assert isinstance(method, Method)
        for plan in (method.train, method.test):
            x = torch.randn(1, 2, 9, 8, device=device)
            for layer in plan:
                x = (
                    (method.attend or rl.attention)(x, x, x, layer)
                    if plan is method.test
                    else rl.attention(x, x, x, layer)
                )
            assert x.isfinite().all()


def test_a_window_that_moves() -> None:
    """Sixteen steps visit every window once, and between them every whole distance from the first window on."""
    method = METHODS["invleaky-moving"](layers=2, dim=8, windows=range(16, 32), slopes=(16,))
    plans = [method.train_plan(step) for step in range(32)]
    assert plans[:16] == plans[16:]
    assert plans[0] == method.train
    visited = {
        int(distance)
        for plan in plans
        for distance in rl.rerope.leaky_distance(torch.arange(64), plan[0].window, plan[0].slope)
    }
    assert set(range(16 + 16 * 32)) <= visited
    assert {layer.slope for layer in method.test} == {1.0}


def test_a_method_that_does_not_change_is_trained_with_one_plan() -> None:
    method = METHODS["rope"](layers=2, dim=8)
    assert method.train_plan(0) is method.train_plan(999) is method.train
