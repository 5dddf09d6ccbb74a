"""The equation of the book, written out pair by pair: the oracle of every attention backend.

For query i and key j of one batch row and one head, with channels paired into complex numbers
z_t = x_{first(t)} + i x_{second(t)}:

    product(i, j) = Re Σ_t  a² e^{i f(p_i - p_j) ω_t} q_t conj(k_t)  +  Σ (channels that do not turn) q k
    score(i, j)   = s_i · base_scale · product(i, j)  -  slope_h |p_i - p_j|  +  bias(i, j)
    f(Δ)          = sign(Δ) g(|Δ|),  g(x) = x for x < w, else w + slope (x - w)
    s_i           = log_N max(n_i, floor), never below 1 if clipped;  n_i = number of keys visible to i

Everything is Python numbers in loops; nothing of the package is called. Slow on purpose.
"""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from rope_lessons import Scheme


def distance_map(distance: float, window: float, slope: float) -> float:
    size = abs(distance)
    bent = size if size < window else window + slope * (size - window)
    return math.copysign(bent, distance) if distance else 0.0


def alibi_slope(head: int, heads: int) -> float:
    below = 1
    while 2 * below <= heads:
        below *= 2
    if head < below:
        return 2.0 ** (-8 * (head + 1) / below)
    return 2.0 ** (-4 * (2 * (head - below) + 1) / below)


def channels(t: int, dim: int, layout: str) -> tuple[int, int]:
    return (2 * t, 2 * t + 1) if layout == "interleaved" else (t, t + dim // 2)


def product(
    q: list[float], k: list[float], turn: float, frequencies: list[float], layout: str, rotary_scale: float
) -> float:
    """<R(turn ω) q, k>, both turned vectors multiplied by ``rotary_scale``. The angle of R(m)q, R(n)k is m - n."""
    dim = 2 * len(frequencies)
    total = sum(a * b for a, b in zip(q[dim:], k[dim:], strict=True))
    for t, frequency in enumerate(frequencies):
        first, second = channels(t, dim, layout)
        z_q, z_k = complex(q[first], q[second]), complex(k[first], k[second])
        total += rotary_scale**2 * (cmath.exp(1j * turn * frequency) * z_q * z_k.conjugate()).real
    return total


def is_visible(scheme: Scheme, i: int, j: int, length: int, document: list[int] | None, number: list[int]) -> bool:
    """Whether token i sees token j, both counted over the keys; ``number`` counts tokens within their document."""
    if i >= length or j >= length:
        return False
    if document is not None:
        low, high = min(i, j), max(i, j)
        if document[i] < 0 or any(document[c] != document[i] for c in range(low, high + 1)):
            return False
    if scheme.causal and j > i:
        return False
    if scheme.visible_window is not None:
        return abs(i - j) < scheme.visible_window or number[j] < scheme.sinks
    return True


def count_in_document(document: list[int] | None, tokens: int) -> list[int]:
    number = list(range(tokens))
    if document is not None:
        for token in range(1, tokens):
            number[token] = number[token - 1] + 1 if document[token] == document[token - 1] else 0
    return number


def attention_by_equation(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scheme: Scheme,
    *,
    frequencies: Tensor | None,
    q_positions: Tensor | None = None,
    k_positions: Tensor | None = None,
    lengths: Tensor | None = None,
    document_ids: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp in float64. ``frequencies``: ``(dim/2,)``, ``(heads, dim/2)`` or None."""
    batch, heads, q_len, head_dim = q.shape
    k_len, group = k.shape[2], heads // k.shape[1]
    first_query = k_len - q_len
    base_scale = head_dim**-0.5 if scheme.base_scale is None else scheme.base_scale
    output = torch.zeros(batch, heads, q_len, v.shape[3], dtype=torch.float64)
    lse = torch.full((batch, heads, q_len), -torch.inf, dtype=torch.float64)
    full_bias = None if bias is None else bias.expand(batch, heads, q_len, k_len)
    for b in range(batch):
        length = k_len if lengths is None else int(lengths[b])
        document = None if document_ids is None else row(document_ids, b)
        number = count_in_document(document, k_len)
        p_k = list(range(k_len)) if k_positions is None else row(k_positions, b)
        p_q = p_k[first_query:] if q_positions is None else row(q_positions, b)
        for h in range(heads):
            omega = [] if frequencies is None else row(frequencies, h)
            for i in range(q_len):
                seen = [j for j in range(k_len) if is_visible(scheme, first_query + i, j, length, document, number)]
                scores = []
                for j in seen:
                    turn = distance_map(p_q[i] - p_k[j], scheme.window, scheme.slope)
                    q_i, k_j = q[b, h, i].tolist(), k[b, h // group, j].tolist()
                    score = product(q_i, k_j, turn, omega, scheme.layout, scheme.rotary_scale)
                    score *= base_scale * query_scale(scheme, len(seen))
                    if scheme.alibi:
                        score -= alibi_slope(h, heads) * abs(p_q[i] - p_k[j])
                    if full_bias is not None:
                        score += float(full_bias[b, h, i, j])
                    scores.append(score)
                if seen:
                    top = max(scores)
                    total = sum(math.exp(score - top) for score in scores)
                    lse[b, h, i] = top + math.log(total)
                    for j, score in zip(seen, scores, strict=True):
                        output[b, h, i] += math.exp(score - top) / total * v[b, h // group, j]
    return output, lse


def query_scale(scheme: Scheme, count: int) -> float:
    if scheme.scale is None:
        return 1.0
    scale = math.log(max(count, scheme.scale.floor)) / math.log(scheme.scale.train_length)
    return max(1.0, scale) if scheme.scale.clip else scale


def row(values: Tensor, number: int) -> list:
    return values.tolist() if values.ndim == 1 else values[number].tolist()
