"""Positions with several axes: against complex numbers, against transformers, and through every backend."""

import itertools

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from transformers import PixtralVisionConfig, Qwen2VLConfig, Qwen3VLTextConfig
from transformers.models.pixtral import modeling_pixtral as pixtral
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl

import rope_lessons as rl
from rope_lessons import axes


def by_complex_numbers(x, positions, frequencies):
    """The definition: each pair of channels as a complex number, times e to the i times its angle. Interleaved."""
    angles = torch.zeros(len(positions), frequencies.shape[1], dtype=torch.float64)
    for token, pair, axis in itertools.product(range(len(positions)), *map(range, frequencies.T.shape)):
        angles[token, pair] += positions[token, axis] * frequencies[axis, pair]
    dim = 2 * frequencies.shape[1]
    z = torch.view_as_complex(x[..., :dim].double().unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    return torch.cat((turned, x[..., dim:].double()), -1)


# --- positions ------------------------------------------------------------------------------------------------------


def test_grid_positions():
    assert axes.axial_positions((3,)).tolist() == [[0], [1], [2]]
    grid = axes.axial_positions((2, 3, 4))
    assert grid.tolist() == [list(place) for place in itertools.product(range(2), range(3), range(4))]


def tiny_qwen():
    size = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    text = {**size, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 16}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2}
    return Qwen2VLConfig(text_config={**text, "rope_parameters": rope}, vision_config=vision)


@pytest.mark.parametrize(
    "parts", [[5], [2, (1, 2, 3), 1], [(1, 4, 2), 3, (1, 1, 5)], [1, (2, 3, 4), 2], [1, (5, 1, 2), 2], [3, (1, 2, 2)]]
)
def test_multimodal_positions_are_those_of_transformers(parts):
    """Text, pictures before, between and behind it; the patches of transformers are merged two by two."""
    config = tiny_qwen()
    model = qwen2_vl.Qwen2VLModel(config)
    kinds, grids = [], []
    for part in parts:
        count = part if isinstance(part, int) else part[0] * part[1] * part[2]
        kinds += [0 if isinstance(part, int) else 1] * count
        grids += [] if isinstance(part, int) else [[part[0], 2 * part[1], 2 * part[2]]]
    kinds = torch.tensor([kinds])
    found, shift = model.get_rope_index(torch.ones_like(kinds), kinds, torch.tensor(grids) if grids else None)
    assert torch.equal(axes.multimodal_positions(parts), found[:, 0].T)
    assert int(shift) + kinds.shape[1] == int(found.max()) + 1  # of what is generated, time counts


# --- the rotation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "dim", "head_dim"), [(1, 8, 8), (2, 8, 8), (2, 12, 16), (3, 12, 12), (4, 16, 20)])
def test_the_definition(count, dim, head_dim):
    torch.manual_seed(count)
    x = torch.randn(2, 3, 7, head_dim, dtype=torch.float64)
    positions = torch.randint(-1000, 1000, (7, count))
    for frequencies in (
        axes.axial_frequencies(dim, count),
        torch.randn(count, dim // 2, dtype=torch.float64),  # slanted: every pair turns on every axis
    ):
        found = axes.apply_axial(x, positions, frequencies, layout="interleaved")
        torch.testing.assert_close(found, by_complex_numbers(x, positions, frequencies), rtol=0, atol=1e-9)
        half = rl.interleaved_to_half(torch.eye(dim), heads=1).double()
        moved = torch.block_diag(half, torch.eye(head_dim - dim, dtype=torch.float64))
        other = axes.apply_axial(x @ moved.T, positions, frequencies, layout="half")
        torch.testing.assert_close(other, found @ moved.T, rtol=0, atol=1e-12)


def test_one_axis_is_rope():
    x, positions = torch.randn(2, 3, 9, 16), torch.randint(0, 10**6, (9,))
    ladder = rl.rope_frequencies(16)
    for layout in rl.rotary.LAYOUTS:
        found = axes.apply_axial(x, positions.unsqueeze(1), axes.axial_frequencies(16, 1), layout=layout)
        assert torch.equal(found, rl.apply_rotary(x, positions, ladder, layout=layout))


def test_scores_see_differences_of_every_axis_and_nothing_else():
    torch.manual_seed(0)
    q, k = torch.randn(2, 16, dtype=torch.float64)
    frequencies = torch.randn(3, 8, dtype=torch.float64)

    def score(at, there):
        places = torch.tensor([[at], [there]])
        return (
            axes.apply_axial(q[None], places[0], frequencies, layout="half")
            * axes.apply_axial(k[None], places[1], frequencies, layout="half")
        ).sum()

    here = score([5, 2, 7], [1, 9, 3])
    torch.testing.assert_close(score([105, -98, 1007], [101, -91, 1003]), here)
    for axis in range(3):
        moved = [5, 2, 7]
        moved[axis] += 1
        assert abs(score(moved, [1, 9, 3]) - here) > 1e-3


def test_equal_positions_of_sections_are_rope():
    ladder = rl.rope_frequencies(32)
    x, at = torch.randn(1, 2, 6, 32), torch.arange(6) * 100
    for interleaved in (False, True):
        shared = axes.sectioned_frequencies(ladder, (6, 5, 5), interleaved=interleaved)
        found = axes.apply_axial(x, at.unsqueeze(1).expand(-1, 3), shared, layout="half")
        torch.testing.assert_close(found, rl.apply_rotary(x, at, ladder, layout="half"), rtol=0, atol=1e-6)


# --- peers ----------------------------------------------------------------------------------------------------------


def test_qwen2_vl():
    """M-RoPE of text and picture, and the two axes of its vision tower."""
    config = tiny_qwen()
    positions = axes.multimodal_positions([40, (1, 6, 9), 11])
    q, k = torch.randn(1, 2, len(positions), 32), torch.randn(1, 1, len(positions), 32)
    cos, sin = qwen2_vl.Qwen2VLRotaryEmbedding(config.text_config)(q, positions.T[:, None])
    theirs = qwen2_vl.apply_rotary_pos_emb(q, k, cos, sin)
    frequencies = axes.sectioned_frequencies(rl.rope_frequencies(32), (4, 6, 6))
    for x, found in zip((q, k), theirs, strict=True):
        own = axes.apply_axial(x, positions, frequencies, layout="half")
        torch.testing.assert_close(own, found, rtol=0, atol=2e-5)  # the peer's angles are float32
    grid = axes.axial_positions((5, 7))
    x = torch.randn(len(grid), 2, 16)  # tokens before heads
    cos, sin = qwen2_vl.Qwen2VLVisionRotaryEmbedding(config.vision_config)(x, grid.T[None])
    found, _ = qwen2_vl.apply_rotary_pos_emb_vision(x, x, cos, sin)
    own = axes.apply_axial(x.transpose(0, 1), grid, axes.axial_frequencies(16, 2), layout="half")
    torch.testing.assert_close(own.transpose(0, 1), found.squeeze(0), rtol=0, atol=2e-5)


def test_qwen3_vl_deals_out_in_turn():
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    config = Qwen3VLTextConfig(head_dim=128, rope_parameters=rope)
    positions = axes.multimodal_positions([9, (1, 4, 5), 3])
    x = torch.randn(1, 1, len(positions), 128)
    cos, sin = qwen3_vl.Qwen3VLTextRotaryEmbedding(config)(x, positions.T[:, None])
    found, _ = qwen3_vl.apply_rotary_pos_emb(x, x, cos, sin)
    frequencies = axes.sectioned_frequencies(rl.rope_frequencies(128, base=5e6), (24, 20, 20), interleaved=True)
    own = axes.apply_axial(x, positions, frequencies, layout="half")
    torch.testing.assert_close(own, found, rtol=0, atol=2e-5)


def test_pixtral_shares_one_ladder_in_turn():
    """Row and column take every second pair of one ladder: two axes, no new function."""
    config = PixtralVisionConfig(hidden_size=64, num_attention_heads=2, image_size=64, patch_size=8)
    grid = axes.axial_positions((5, 6))
    x = torch.randn(1, 1, 30, 32)
    found, _ = pixtral.apply_rotary_pos_emb(x, x, *pixtral.PixtralVisionRotaryEmbedding(config)(x, grid.T[None]))
    ladder, none = rl.rope_frequencies(32), torch.zeros(8, dtype=torch.float64)
    frequencies = torch.stack((torch.cat((ladder[::2], none)), torch.cat((none, ladder[1::2]))))
    own = axes.apply_axial(x, grid, frequencies, layout="half")
    torch.testing.assert_close(own, found, rtol=0, atol=2e-5)


def test_rotary_embedding_torch():
    peer = RotaryEmbedding(8, freqs_for="lang", cache_if_possible=False)
    tables = [peer(torch.arange(n).float()) for n in (4, 5)]
    angles = torch.cat((tables[0][:, None].expand(4, 5, -1), tables[1][None].expand(4, 5, -1)), -1).flatten(0, 1)
    x = torch.randn(1, 2, 20, 16)
    own = axes.apply_axial(x, axes.axial_positions((4, 5)), axes.axial_frequencies(16, 2), layout="interleaved")
    torch.testing.assert_close(own, apply_rotary_emb(angles, x), rtol=0, atol=1e-5)


# --- the engine -----------------------------------------------------------------------------------------------------


def dense(q, k, v, at, there, frequencies, scale=1.0):
    """Softmax attention as in the first lesson, with the definition above; one head of keys for all queries."""
    turned = [by_complex_numbers(x, p, frequencies) for x, p in ((q, at), (k, there))]
    scores = scale * turned[0] @ turned[1].transpose(-1, -2) / q.shape[-1] ** 0.5
    late = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
    return scores.masked_fill(late, -torch.inf).softmax(-1) @ v.double()


@pytest.mark.parametrize("backend", ["reference", "flash"])
@pytest.mark.parametrize("q_len", [30, 4])
def test_attention(backend, q_len):
    torch.manual_seed(0)
    positions = axes.axial_positions((5, 6))
    q, k, v = torch.randn(2, 4, q_len, 16), torch.randn(2, 1, 30, 16), torch.randn(2, 1, 30, 8)
    frequencies = axes.axial_frequencies(12, 2)
    plain = rl.Scheme(layout="interleaved")
    given = {"q_positions": positions[None, -q_len:], "k_positions": positions[None], "frequencies": frequencies}
    found, lse = rl.attention(q, k, v, plain, **given, backend=backend, return_lse=True)
    wanted = dense(q, k, v, positions[-q_len:], positions, frequencies)
    torch.testing.assert_close(found, wanted.float(), rtol=0, atol=1e-5)
    assert lse.shape == (2, 4, q_len)
    assert rl.explain_backend(q, k, v, plain, **given, backend=backend).startswith(backend)


def test_knobs_that_stay():
    """The attention factor, a slope on all distances, the scale and a window of tokens, as for one axis."""
    q, k, v = torch.randn(3, 1, 2, 12, 8)
    positions = axes.axial_positions((12,))
    ladder = rl.rope_frequencies(8)
    for scheme in (
        rl.scheme("yarn", dim=8, factor=4.0, train_length=64),
        rl.Scheme(rl.FrequencySpec("rope", dim=8), slope=0.5),
        rl.scheme("rope", dim=8, scale=rl.LogN(4), visible_window=5),
        rl.scheme("rope", dim=8, causal=False, window=7, slope=1.0),
    ):
        own = scheme.frequencies(12) if scheme.frequencies else ladder
        found = rl.attention(q, k, v, scheme, q_positions=positions[None], frequencies=own[None])
        torch.testing.assert_close(found, rl.attention(q, k, v, scheme), rtol=0, atol=2e-6)


def test_rows_of_their_own_and_packed_documents():
    q, k, v = torch.randn(3, 2, 2, 12, 8)
    frequencies = axes.axial_frequencies(8, 2)
    positions = torch.stack((axes.axial_positions((3, 4)), axes.axial_positions((2, 6))))
    ids = torch.tensor([0] * 5 + [1] * 7)
    nope = rl.scheme("nope")
    found = rl.attention(q, k, v, nope, q_positions=positions, frequencies=frequencies, document_ids=ids)
    for row, part in itertools.product(range(2), (slice(0, 5), slice(5, 12))):
        own = rl.attention(
            *(x[row : row + 1, :, part] for x in (q, k, v)), nope,
            q_positions=positions[row : row + 1, part], frequencies=frequencies,
        )  # fmt: skip
        torch.testing.assert_close(found[row : row + 1, :, part], own, rtol=0, atol=1e-6)


def test_decoding():
    """A picture and a text, token by token: the cache takes turned keys, and its layer turns nothing."""
    positions = axes.multimodal_positions([3, (1, 2, 3), 4])[None]
    q, k, v = torch.randn(3, 1, 2, 13, 8)
    frequencies = axes.sectioned_frequencies(rl.rope_frequencies(8), (2, 1, 1))
    nope = rl.scheme("nope")
    wanted = rl.attention(q, k, v, nope, q_positions=positions, frequencies=frequencies)
    cache, found = rl.KVCache(nope), []
    with torch.no_grad():
        for part in (slice(0, 9), *(slice(t, t + 1) for t in range(9, 13))):
            new = (x[:, :, part] for x in (q, k, v))
            found.append(rl.attention(*new, nope, q_positions=positions[:, part], frequencies=frequencies, cache=cache))
    torch.testing.assert_close(torch.cat(found, 2), wanted, rtol=0, atol=1e-6)


def test_frequencies_are_learned():
    q, k, v = torch.randn(3, 1, 2, 12, 8, dtype=torch.float64)
    frequencies = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    positions = axes.axial_positions((3, 4))[None]
    torch.autograd.gradcheck(
        lambda f: rl.attention(q, k, v, rl.scheme("nope"), q_positions=positions, frequencies=f), frequencies
    )
    low = [x.bfloat16() for x in (q, k, v)]
    rl.attention(*low, rl.scheme("nope"), q_positions=positions, frequencies=frequencies).sum().backward()
    found = frequencies.grad.clone()
    frequencies.grad = None
    exact = [x.double() for x in low]
    rl.attention(*exact, rl.scheme("nope"), q_positions=positions, frequencies=frequencies).sum().backward()
    assert (found - frequencies.grad).norm() < 0.02 * frequencies.grad.norm()
    assert rl.attention(*low, rl.scheme("nope"), q_positions=positions, frequencies=frequencies).dtype == torch.bfloat16


Q = torch.zeros(2, 2, 6, 8)
GRID = axes.axial_positions((2, 3))[None]
OMEGA = axes.axial_frequencies(8, 2)


@pytest.mark.parametrize(
    ("scheme", "options", "message"),
    [
        (rl.scheme("rerope", dim=8, window=4), {}, "straight distance map .* got window=4, slope=0"),
        (rl.scheme("alibi"), {}, "must have no ALiBi"),
        (rl.scheme("nope"), {"frequencies": None}, r"q_positions must have .* got \(1, 6, 2\) with no frequencies"),
        (rl.scheme("nope"), {"frequencies": OMEGA[:1]}, r"q_positions must have shape \(1 or 2, 6, 1\)"),
        (rl.scheme("nope"), {"frequencies": OMEGA[0]}, r"q_positions must have .* with frequencies \(4,\)"),
        (rl.scheme("nope"), {"frequencies": OMEGA.repeat(1, 2)}, "with dim at most 8"),
        (rl.scheme("nope"), {"q_positions": GRID[:, :5]}, r"q_positions must have shape .* got \(1, 5, 2\)"),
        (rl.scheme("nope"), {"k_positions": torch.arange(6)}, r"k_positions must have shape .* got \(6,\)"),
        (rl.scheme("nope"), {"q_positions": GRID.expand(3, -1, -1)}, r"got \(3, 6, 2\)"),
    ],
)
def test_refused(scheme, options, message):
    with pytest.raises(ValueError, match=message):
        rl.attention(Q, Q, Q, scheme, **{"q_positions": GRID, "frequencies": OMEGA, **options})


def test_positions_of_another_dtype_are_refused():
    with pytest.raises(TypeError, match="q_positions must be int64"):
        rl.attention(Q, Q, Q, rl.scheme("nope"), q_positions=GRID.float(), frequencies=OMEGA)
    with pytest.raises(ValueError, match="given together when q_len and k_len differ"):
        rl.attention(Q[:, :, :2], Q, Q, rl.scheme("nope"), q_positions=GRID[:, :2], frequencies=OMEGA)
