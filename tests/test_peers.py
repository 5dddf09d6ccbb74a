"""This package beside transformers and rotary-embedding-torch.

Where a peer is right, both agree to the rounding of its float32 angles. Where it is wrong, a test measures by how
much, and compares the numbers in ``book/libraries.yml`` with what it measured: the ledger cannot go stale.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import yaml
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor
from transformers import Gemma3TextConfig, GPTNeoXConfig, LlamaConfig, PhiConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox_apply
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_apply
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_apply
from transformers.models.phi.modeling_phi import PhiRotaryEmbedding

import rope_lessons as rl
from rope_lessons import FrequencySpec

LEDGER = Path(__file__).parents[1] / "book" / "libraries.yml"
ROWS = yaml.safe_load(LEDGER.read_text("utf8"))["rows"]
DIM, TOKENS, HEADS = 128, 64, 8
OFFSET = 2**20
ULP = 2.0**-24  # half the distance between 1 and the next float32: relative rounding error of one operation


# --- the ledger ---------------------------------------------------------------------------------------------------

ALONE = r"(?<![A-Za-z\d.^{-])"  # not inside a word or an exponent
NUMBER = re.compile(rf"([\d.]*\d)\\cdot 10\^\{{(-?\d+)\}}|{ALONE}(\d+)\^\{{(\d+)\}}|{ALONE}(\d+(?:\.\d+)?)")


def numbers_in(statement: str) -> list[float]:
    r"""All numbers of a statement, in order: 64, 0.85, 2^{20}, 6.1\cdot 10^{-3}; not the 32 of float32."""
    found = []
    for digits, exponent, base, power, plain in NUMBER.findall(statement):
        if digits:
            found.append(float(digits) * 10.0 ** int(exponent))
        else:
            found.append(float(base) ** int(power) if base else float(plain))
    return found


def check_statement(test: str, library: str, measured: list[float]) -> None:
    """The numbers that the ledger's row of this test states are those measured, to 10 percent."""
    rows = [row for row in ROWS if row["ran"] == f"tests/test_peers.py::{test}" and row["library"] == library]
    assert len(rows) == 1, f"book/libraries.yml must have one row of {library} that ran {test}"
    assert numbers_in(rows[0]["statement"]) == pytest.approx(measured, rel=0.1), rows[0]["statement"]


def test_numbers_in() -> None:
    text = r"At $2^{20}$ float32 is off by $6.1\cdot 10^{-3}$, bfloat16 by 0.85 at 64 positions; by 3 %."
    assert numbers_in(text) == [2.0**20, pytest.approx(6.1e-3), 0.85, 64, 3]


def test_every_row_names_a_test_and_the_version_that_is_installed() -> None:
    for row in ROWS:
        installed = version(row["library"]).split("+")[0]  # without the mark of a build, as in 2.13.0+cpu
        assert installed == str(row["version"]), "run the tests again, update version and date"
        file, _, test = row["ran"].partition("::")
        assert f"def {test}(" in (LEDGER.parents[1] / file).read_text("utf8"), row["ran"]
    here = {row["ran"].partition("::")[2] for row in ROWS if row["ran"].startswith("tests/test_peers.py::")}
    assert here
    for test in here:  # and that test does check the row
        assert "check_statement" in globals()[test].__code__.co_names, test


# --- where they agree ---------------------------------------------------------------------------------------------


def llama(dim: int = DIM, length: int = 2048, **rope: object) -> LlamaRotaryEmbedding:
    parameters = {"rope_type": "default", "rope_theta": 10_000.0} | rope
    return LlamaRotaryEmbedding(llama_config(dim, length, parameters))


def llama_config(dim: int, length: int, rope_parameters: dict) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=dim * HEADS, num_attention_heads=HEADS, head_dim=dim, max_position_embeddings=length,
        rope_parameters=rope_parameters,
    )  # fmt: skip


def llama_rotate(rotary: LlamaRotaryEmbedding, x: Tensor, start: int = 0) -> Tensor:
    cos, sin = rotary(x, torch.arange(start, start + x.shape[-2])[None])
    return llama_apply(x, x, cos, sin)[0]


def ours(x: Tensor, frequencies: Tensor, layout: str, start: int = 0) -> Tensor:
    return rl.apply_rotary(x, torch.arange(start, start + x.shape[-2]), frequencies, layout=layout)


def assert_agree(theirs: Tensor, x: Tensor, frequencies: Tensor, layout: str, operations: int = 4) -> None:
    """Equal but for float32 rounding: a float32 angle m ω is off by ``operations`` roundings (power, division,
    product), so by operations · m ω · 2^-24, and the rotation adds a few roundings of its own."""
    result = ours(x, frequencies, layout)
    dim, seq = 2 * frequencies.shape[0], x.shape[-2]
    angles = torch.arange(seq).double()[:, None] * frequencies  # (seq, dim/2)
    one = (operations * angles + 4) * ULP
    per_channel = one.repeat_interleave(2, -1) if layout == "interleaved" else torch.cat((one, one), -1)
    bound = per_channel * x.double().norm(dim=-1, keepdim=True)
    assert ((result - theirs).double()[..., :dim].abs() <= bound).all()
    assert torch.equal(result[..., dim:], theirs[..., dim:])
    assert (result - x).abs().max() > 0.5


def vectors(tokens: int = 256, dim: int = DIM) -> Tensor:
    return torch.randn(2, HEADS, tokens, dim)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("dim", [64, 128])
def test_rope_is_llamas(dim: int, base: float) -> None:
    x = vectors(dim=dim)
    assert_agree(llama_rotate(llama(dim, rope_theta=base), x), x, rl.rope_frequencies(dim, base), "half")


def test_rope_is_gptjs() -> None:
    """Interleaved pairs, with GPT-J's own order of axes, and partial as in GPT-J (64 of 256 channels)."""
    x = vectors(dim=256)
    sin, cos = create_sinusoidal_positions(256, 64).expand(2, -1, -1).chunk(2, dim=-1)
    turned = gptj_apply(x[..., :64].transpose(1, 2), sin, cos).transpose(1, 2)
    assert_agree(torch.cat((turned, x[..., 64:]), -1), x, rl.rope_frequencies(64), "interleaved")


def test_rope_is_rotary_embedding_torchs() -> None:
    for dim, base in ((64, 10_000), (128, 500_000)):
        x = vectors(dim=dim)
        theirs = RotaryEmbedding(dim, theta=base).rotate_queries_or_keys(x)
        assert_agree(theirs, x, rl.rope_frequencies(dim, base), "interleaved")


def test_partial_rotary_is_rotary_embedding_torchs() -> None:
    x = vectors()
    assert_agree(RotaryEmbedding(32).rotate_queries_or_keys(x), x, rl.rope_frequencies(32), "interleaved")


@pytest.mark.parametrize(("config_class", "rotary_class"), [
    (GPTNeoXConfig, GPTNeoXRotaryEmbedding), (PhiConfig, PhiRotaryEmbedding),
])  # fmt: skip
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_partial_rotary_is_transformers(config_class: type, rotary_class: type, share: float) -> None:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share}
    config = config_class(hidden_size=DIM * HEADS, num_attention_heads=HEADS, rope_parameters=rope)
    x = vectors()
    cos, sin = rotary_class(config)(x, torch.arange(256)[None])
    scheme = rl.scheme_from_hf(config.rope_parameters, head_dim=DIM)
    assert scheme.rotary_dim == share * DIM
    assert_agree(neox_apply(x, x, cos, sin)[0], x, scheme.frequencies(), "half")


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_pi_is_linear_scaling(factor: float) -> None:
    x = vectors()
    frequencies = rl.pi_frequencies(DIM, factor)
    assert_agree(llama_rotate(llama(rope_type="linear", factor=factor), x), x, frequencies, "half")
    theirs = RotaryEmbedding(DIM, interpolate_factor=factor).rotate_queries_or_keys(x)
    assert_agree(theirs, x, frequencies, "interleaved")


def test_ntk_aware_is_theta_rescaling() -> None:
    x = vectors()
    theirs = RotaryEmbedding(DIM, theta_rescale_factor=8.0).rotate_queries_or_keys(x)
    assert_agree(theirs, x, rl.ntk_frequencies(DIM, 8, variant="aware"), "interleaved")


@pytest.mark.parametrize("length", [16, 64, 65, 100, 256])
@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_dynamic_ntk_is_transformers(factor: float, length: int) -> None:
    x = vectors(tokens=length)
    theirs = llama_rotate(llama(length=64, rope_type="dynamic", factor=factor), x)
    frequencies = rl.dynamic_ntk_frequencies(DIM, length, 64, factor)
    assert_agree(theirs, x, frequencies, "half", operations=16)  # the base is a float32 power too


def test_the_two_layouts_disagree() -> None:
    x = vectors(tokens=8)
    frequencies = rl.rope_frequencies(DIM)
    assert (ours(x, frequencies, "half") - llama_rotate(llama(), x)).abs().max() < 1e-5
    assert (ours(x, frequencies, "interleaved") - llama_rotate(llama(), x)).abs().max() > 1


def test_converted_weights_run_in_the_other_library() -> None:
    """Meta's interleaved projections, converted, give the same scores through transformers' half layout."""
    x = torch.randn(1, 20, 48)
    w_q, w_k = torch.randn(2, HEADS * DIM, 48) / 7

    def project(weight: Tensor) -> Tensor:
        return (x @ weight.T).view(1, 20, HEADS, DIM).transpose(1, 2)

    rotary = RotaryEmbedding(DIM)
    q, k = rotary.rotate_queries_or_keys(project(w_q)), rotary.rotate_queries_or_keys(project(w_k))
    half_q, half_k = (llama_rotate(llama(), project(rl.interleaved_to_half(w, HEADS))) for w in (w_q, w_k))
    torch.testing.assert_close(half_q @ half_k.mT, q @ k.mT, atol=1e-3, rtol=1e-5)
    unconverted = llama_rotate(llama(), project(w_q)) @ llama_rotate(llama(), project(w_k)).mT
    assert (unconverted - q @ k.mT).abs().max() > 10


TRAINED = {"original_max_position_embeddings": 512}
ROPE_DICTIONARIES = [
    ({"rope_type": "default", "rope_theta": 10_000.0}, "rope"),
    ({"rope_type": "default", "rope_theta": 500_000.0}, "rope"),
    ({"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}, "pi"),
    ({"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}, "dynamic-ntk"),
    ({"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0} | TRAINED, "yarn"),
    (
        {"rope_type": "yarn", "rope_theta": 150_000.0, "factor": 32.0, "beta_fast": 16.0, "beta_slow": 2.0}
        | {"truncate": False, "attention_factor": 1.25} | TRAINED, "yarn",
    ),
    (
        {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0}
        | {"high_freq_factor": 4.0} | TRAINED, "llama3",
    ),
    ({"rope_type": "longrope", "rope_theta": 10_000.0, "attention_factor": 1.19} | TRAINED, "longrope"),
]  # fmt: skip


def filled(rope: dict, dim: int) -> dict:
    """With LongRoPE's lists, which have a number for each pair."""
    if rope["rope_type"] != "longrope":
        return dict(rope)
    return rope | {
        "short_factor": [1 + t / 64 for t in range(dim // 2)],
        "long_factor": [t + 1 for t in range(dim // 2)],
    }


@pytest.mark.parametrize(("rope", "kind"), ROPE_DICTIONARIES)
def test_from_hf_reads_a_config(rope: dict, kind: str) -> None:
    config = llama_config(64, 2048, filled(rope, 64))
    scheme = rl.scheme_from_hf(
        config.rope_parameters, head_dim=config.head_dim, max_position_embeddings=config.max_position_embeddings
    )
    assert scheme.frequencies.kind == kind
    assert scheme.layout == "half"
    rotary, length = LlamaRotaryEmbedding(config), 512 if kind == "longrope" else 2048
    torch.testing.assert_close(scheme.frequencies(length=length).float(), rotary.inv_freq, rtol=1e-6, atol=0)
    assert scheme.rotary_scale == rotary.attention_scaling


@pytest.mark.parametrize(("rope", "kind"), ROPE_DICTIONARIES)
@pytest.mark.parametrize("share", [None, 0.25, 0.75])
def test_hf_round_trip(rope: dict, kind: str, share: float | None) -> None:
    rope = filled(rope, int(64 * (share or 1))) | ({"partial_rotary_factor": share} if share else {})
    if kind == "dynamic-ntk":
        rope["original_max_position_embeddings"] = 2048
    scheme = rl.scheme_from_hf(rope, head_dim=64)
    assert rl.scheme_to_hf(scheme, head_dim=64) == rope
    assert rl.scheme_from_hf(rl.scheme_to_hf(scheme, head_dim=64), head_dim=64) == scheme
    if share is None:  # and through a config of transformers
        again = LlamaRotaryEmbedding(llama_config(64, 2048, rl.scheme_to_hf(scheme)))
        length = 512 if kind == "longrope" else 2048
        torch.testing.assert_close(scheme.frequencies(length=length).float(), again.inv_freq, rtol=1e-6, atol=0)
        assert scheme.rotary_scale == again.attention_scaling


def test_hf_share_reads_back_every_rotary_dim() -> None:
    """int(head_dim * (dim / head_dim)) can fall one below dim: 44 * (30 / 44) is 29.999…"""
    for head_dim in range(2, 300, 2):
        for dim in range(2, head_dim + 1, 2):
            rope = rl.scheme_to_hf(rl.scheme("rope", dim=dim), head_dim=head_dim)
            share = rope.get("partial_rotary_factor", 1.0)
            assert int(head_dim * share) == dim


# --- where they do not --------------------------------------------------------------------------------------------


def queries_and_keys(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 1, HEADS, TOKENS, DIM).to(dtype)
    return q, k


def rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def score_error(q: Tensor, k: Tensor, turned: tuple[Tensor, Tensor], layout: str) -> float:
    """Root mean square error of <q, k> / sqrt(d), summed in float64. The true scores, in float64, are those at
    offset 0: a score depends on the distance only."""
    wanted = [ours(x.double(), rl.rope_frequencies(DIM), layout) for x in (q, k)]
    difference = turned[0].double() @ turned[1].double().mT - wanted[0] @ wanted[1].mT
    return rms(difference / DIM**0.5)


def llama_error(rotary: LlamaRotaryEmbedding, q: Tensor, k: Tensor, start: int) -> float:
    return score_error(q, k, (llama_rotate(rotary, q, start), llama_rotate(rotary, k, start)), "half")


def torch_error(rotary: RotaryEmbedding, q: Tensor, k: Tensor, start: int) -> float:
    turned = [rotary.rotate_queries_or_keys(x, offset=start) for x in (q, k)]
    return score_error(q, k, (turned[0], turned[1]), "interleaved")


def our_error(q: Tensor, k: Tensor, start: int, layout: str = "half") -> float:
    frequencies = rl.rope_frequencies(DIM)
    return score_error(q, k, (ours(q, frequencies, layout, start), ours(k, frequencies, layout, start)), layout)


def test_transformers_angles_at_long_positions() -> None:
    """float32 angles: a position of 2^20 times a frequency is rounded at 2^20 · 2^-24 = 1/16 radians."""
    q, k = queries_and_keys()
    theirs, mine = llama_error(llama(), q, k, OFFSET), our_error(q, k, OFFSET)
    assert theirs > 5e-3
    assert mine < 1e-7
    check_statement("test_transformers_angles_at_long_positions", "transformers", [OFFSET, DIM, theirs, mine])


def test_rotary_embedding_torch_angles_at_long_positions() -> None:
    q, k = queries_and_keys()
    theirs, mine = torch_error(RotaryEmbedding(DIM), q, k, OFFSET), our_error(q, k, OFFSET, "interleaved")
    assert theirs > 5e-3
    assert mine < 1e-7
    check_statement(
        "test_rotary_embedding_torch_angles_at_long_positions", "rotary-embedding-torch", [OFFSET, DIM, theirs, mine]
    )


def test_transformers_casts_tables_to_the_input() -> None:
    """cos and sin are rounded to bfloat16, and so is every product: more error than one cast at the end."""
    q, k = queries_and_keys(torch.bfloat16)
    theirs, mine = llama_error(llama(), q, k, 0), our_error(q, k, 0)
    assert theirs > 1.4 * mine
    check_statement("test_transformers_casts_tables_to_the_input", "transformers", [TOKENS, theirs, mine])


def test_transformers_module_cast_to_bfloat16() -> None:
    """``.to(bfloat16)`` rounds the buffer of frequencies: float32 inputs get wrong angles from then on."""
    q, k = queries_and_keys()
    rotary = llama().to(torch.bfloat16)
    assert rotary.inv_freq.dtype == torch.bfloat16
    relative = float((rotary.inv_freq.double() / rl.rope_frequencies(DIM) - 1).abs().max())
    theirs = llama_error(rotary, q, k, 0)
    module = rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=DIM)).to(torch.bfloat16)
    mine = score_error(q, k, (module(q), module(k)), "half")
    assert relative > 1e-3
    assert theirs > 5e-3
    assert mine < 1e-7
    check_statement("test_transformers_module_cast_to_bfloat16", "transformers", [100 * relative, TOKENS, theirs, mine])


def merged(x: Tensor) -> list[int]:
    """Positions m whose rotation equals that of m - 1, for an input that is the same at every position."""
    return [m for m in range(1, x.shape[-2]) if torch.equal(x[..., m, :], x[..., m - 1, :])]


def test_rotary_embedding_torch_merges_positions() -> None:
    """It makes positions in the type of the input: bfloat16 holds integers up to 256, float16 up to 2048."""
    first = {}
    for dtype, tokens in ((torch.bfloat16, 300), (torch.float16, 2100)):
        x = torch.randn(1, 1, 1, DIM).to(dtype).expand(1, 1, tokens, DIM)
        first[dtype] = merged(RotaryEmbedding(DIM).rotate_queries_or_keys(x))[0]
        assert merged(ours(x, rl.rope_frequencies(DIM), "interleaved")) == []
    assert (first[torch.bfloat16], first[torch.float16]) == (257, 2049)
    q, k = queries_and_keys(torch.bfloat16)
    theirs, mine = torch_error(RotaryEmbedding(DIM), q, k, OFFSET), our_error(q, k, OFFSET, "interleaved")
    assert theirs > 0.7
    assert mine < 3e-3
    measured = [first[torch.bfloat16], 256, first[torch.float16], 2048, OFFSET, theirs, mine]
    check_statement("test_rotary_embedding_torch_merges_positions", "rotary-embedding-torch", measured)


def test_rotary_embedding_torch_cache_keeps_the_first_dtype() -> None:
    """A bfloat16 call fills the cache of angles that a later float32 call reads."""
    rotary, x = RotaryEmbedding(DIM), torch.randn(1, 1, 300, DIM)
    rotary.rotate_queries_or_keys(x.bfloat16())
    error = rms((rotary.rotate_queries_or_keys(x) - RotaryEmbedding(DIM).rotate_queries_or_keys(x))[:, :, 257])
    assert error > 0.1
    check_statement("test_rotary_embedding_torch_cache_keeps_the_first_dtype", "rotary-embedding-torch", [257, error])


def test_transformers_dynamic_ntk_remembers_the_longest_text() -> None:
    """After a longer text, a text of 100 tokens is turned with the frequencies of the longer one."""
    x = vectors(tokens=100)
    rotary = llama(length=64, rope_type="dynamic", factor=2.0)
    fresh = llama_rotate(rotary, x)
    assert_agree(fresh, x, rl.dynamic_ntk_frequencies(DIM, 100, 64, 2.0), "half", operations=16)
    llama_rotate(rotary, vectors(tokens=1000))
    after = llama_rotate(rotary, x)
    assert_agree(after, x, rl.dynamic_ntk_frequencies(DIM, 1000, 64, 2.0), "half", operations=16)
    error = rms((after - fresh)[..., -1, :])
    assert error > 0.1
    measured = [64, 1000, 100, 99, error]
    check_statement("test_transformers_dynamic_ntk_remembers_the_longest_text", "transformers", measured)


def test_transformers_yarn_ignores_truncate_of_a_layer_type() -> None:
    """``truncate`` is read from the outer dictionary, also where each layer type has a dictionary of its own."""
    rope = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 4096}
    rope |= {"truncate": False}
    config = Gemma3TextConfig(head_dim=DIM, rope_parameters={
        "full_attention": dict(rope), "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    })  # fmt: skip
    theirs = Gemma3RotaryEmbedding(config).full_attention_inv_freq
    wanted, rounded = (rl.yarn_frequencies(DIM, 8, 4096, truncate=truncate) for truncate in (False, True))
    torch.testing.assert_close(llama(length=32_768, **rope).inv_freq, wanted.float(), rtol=1e-5, atol=0)  # flat: read
    torch.testing.assert_close(theirs, rounded.float(), rtol=1e-5, atol=0)  # one per layer type: not read
    ours_too = rl.plan_from_hf(config)[5].frequencies
    assert ours_too == FrequencySpec("yarn", dim=DIM, factor=8.0, train_length=4096, truncate=False)
    off = 100 * float((theirs / wanted - 1).abs().max())
    assert off > 5
    test = "test_transformers_yarn_ignores_truncate_of_a_layer_type"
    check_statement(test, "transformers", [DIM, 4096, 8, off])


def test_transformers_yarn_can_run_backwards() -> None:
    """The ends of the ramp are cut to 0 … d - 1: where all pairs go round often, all of them are interpolated."""
    rotary = llama(64, rope_type="yarn", rope_theta=10.0, factor=8.0, original_max_position_embeddings=100_000)
    plain = rl.rope_frequencies(64, 10.0)
    slowest = float(rl.circles.turns(plain, 100_000)[-1])
    assert slowest > 32
    torch.testing.assert_close(rotary.inv_freq, (plain / 8).float(), rtol=1e-5, atol=0)
    torch.testing.assert_close(rl.ntk_by_parts_frequencies(64, 8, 100_000, 10.0), plain)  # the paper: none of them
    with pytest.raises(ValueError, match="ramp does not run backwards"):
        rl.yarn_frequencies(64, 8, 100_000, 10.0)
    check_statement("test_transformers_yarn_can_run_backwards", "transformers", [10, 64, 100_000, slowest, 32, 8])


def test_transformers_goes_on_with_keys_that_it_does_not_use() -> None:
    """A misspelt key gives a warning and the default; ``mscale`` without ``mscale_all_dim`` not even that."""
    rope = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
    usual = llama(length=32_768, **rope)
    for odd in ({"beta_fats": 8.0}, {"mscale": 0.5}):
        rotary = llama(length=32_768, **rope, **odd)
        assert torch.equal(rotary.inv_freq, usual.inv_freq)
        assert rotary.attention_scaling == usual.attention_scaling
        with pytest.raises(ValueError, match=next(iter(odd))):
            rl.scheme_from_hf(rope | odd | {"rope_theta": 10_000.0}, head_dim=DIM)
    halved = rl.yarn_attention_factor(8, mscale=0.5)
    measured = [8, 0.5, usual.attention_scaling, halved]
    check_statement("test_transformers_goes_on_with_keys_that_it_does_not_use", "transformers", measured)


def test_they_agree_at_short_positions() -> None:
    """The other half of the ledger: the root mean square difference to this package over the first 256 positions."""
    x = vectors()
    frequencies = rl.rope_frequencies(DIM)
    theirs = {"transformers": (llama_rotate(llama(), x), "half")}
    theirs["rotary-embedding-torch"] = RotaryEmbedding(DIM).rotate_queries_or_keys(x), "interleaved"
    for library, (turned, layout) in theirs.items():
        difference = rms(turned - ours(x, frequencies, layout))
        assert difference < 1e-5
        check_statement("test_they_agree_at_short_positions", library, [256, DIM, difference])
