"""A pretrained model of Hugging Face: its loss and its needles by length, with several plans. Chapter 15.

Needs transformers, the extra ``[hf]``. Only :func:`download` needs the network; everything else works on any model
that :func:`~rope_lessons.hf.extend` takes, and chapter 15 runs it on one that comes with this package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rope_lessons._extras import extra
from rope_lessons.circles import yarn_attention_factor
from rope_lessons.hf import plan_from_hf, using
from rope_lessons.schemes import FrequencySpec, LogN, Plan

MODEL = "HuggingFaceTB/SmolLM-135M"  # Llama's architecture, trained on texts of 2048 tokens, licence Apache 2.0
REVISIONS = {MODEL: "1d461723eec654e65efdc40cf49301c89c0c92f4"}  # the commit of a model's repository that is taken
# The needle and the question for it, as sentences; digits stand in the place of {}.
SENTENCES = (
    "\nThe pass key is {0}. Remember it. {0} is the pass key.\n",
    "\nWhat is the pass key? The pass key is {0}",
)
DIGITS, DEPTHS = 5, (0.0, 0.5, 1.0)  # of the key; of the needle, 1 right before the question
AT_ONCE = 2**14  # tokens of a batch
Encode = Callable[[str], Sequence[int]]  # a text to tokens, without special ones


def download(name: str = MODEL, device: str | torch.device = "cpu", *, revision: str | None = None) -> tuple[Any, Any]:
    """The model and its tokenizer, from Hugging Face's hub or the copy on this machine.

    What is taken is fixed: one commit, no code of the repository, and weights as safetensors (another format could run
    code when it is read).

    Args:
        name: on the hub.
        device: where it is to work; float16 on a GPU, else float32.
        revision: a full commit of the repository, 40 hexadecimal digits; that of ``REVISIONS`` by default.

    Returns:
        model and tokenizer.

    Raises:
        ValueError: a revision that is no full commit; none for a model that has none in ``REVISIONS``.
        OSError: neither the network nor a copy; no weights as safetensors.
    """
    revision = REVISIONS.get(name) if revision is None else revision
    if not isinstance(revision, str) or not re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(
            f"revision must be a full commit of {name!r}, 40 hexadecimal digits (a branch or a tag can move), "
            f"got {revision!r}"
        )
    with extra("hf", "a model of Hugging Face"):
        from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float16 if torch.device(device).type == "cuda" else torch.float32
    try:
        fixed: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(name, **fixed)
        model: Any = AutoModelForCausalLM.from_pretrained(name, use_safetensors=True, **fixed)
    except OSError as error:
        raise OSError(
            f"{name} is not on this machine and could not be downloaded: this section needs the network. "
            f"Nothing else in the chapter does. ({str(error).partition(chr(10))[0]})"
        ) from error
    return model.to(device, dtype).eval(), tokenizer


def plans(config: Any, factor: float) -> dict[str, Plan]:
    """What to compare on a model that was trained with plain RoPE: for texts ``factor`` times as long.

    Args:
        config: the model's config.
        factor: of YaRN; ReRoPE has no factor, its window is a quarter of the training length.

    Returns:
        what to compare, by name. RoPE, YaRN and ReRoPE; the first and the last with log n† too; and the control, a
        window as long as the training.

    Raises:
        TypeError, ValueError: a config that ``plan_from_hf`` does not read, or whose frequencies are not RoPE's.
    """
    plain, trained = plan_from_hf(config), config.max_position_embeddings

    def yarn(spec: FrequencySpec | None) -> FrequencySpec:
        if spec is None or spec.kind != "rope":
            raise ValueError(f"config must be of a model with plain RoPE in every layer, got {spec!r}")
        return FrequencySpec("yarn", **{**dict(spec.options), "factor": factor, "train_length": trained})

    scale, log = yarn_attention_factor(factor), LogN(trained, clip=True)
    rerope = tuple(layer.replace(window=trained // 4, slope=0.0) for layer in plain)
    return {
        "RoPE": plain,
        "RoPE, log n†": tuple(layer.replace(scale=log) for layer in plain),
        f"YaRN {factor:g}": tuple(s.replace(frequencies=yarn(s.frequencies), rotary_scale=scale) for s in plain),
        "ReRoPE": rerope,
        "ReRoPE, log n†": tuple(layer.replace(scale=log) for layer in rerope),
        "a window (control)": tuple(layer.replace(visible_window=trained) for layer in plain),
    }


def stdlib_text() -> str:
    """A long English text that every machine has: Python's own help topics."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def measure(
    model: Any,
    encode: Encode,
    text: str,
    lengths: Sequence[int],
    *,
    named_plans: Mapping[str, Plan] | None = None,
    wording: tuple[str, str] = SENTENCES,
    texts: int = 4,
    last: int = 256,
) -> list[dict[str, Any]]:
    """Loss and needles of a model by length, for several plans.

    Args:
        model: as for :func:`~rope_lessons.hf.extend`.
        encode: a text to tokens, without special ones.
        text: a long one, which is read and in which needles are hidden.
        lengths: tokens that the model reads.
        named_plans: dictionary of plans; by default :func:`plans` for the longest length.
        wording: of the needle and of the question for it.
        texts: how many pieces of the text, spread evenly.
        last: how many tokens are scored for the loss.

    Returns:
        rows with ``name``, ``length``, ``loss`` in nats per token, and ``needles``, percent found.

    Raises:
        ValueError: a text that is shorter than the longest length.

    Chapter 15.
    """
    tokens = torch.tensor(list(encode(text)))
    if named_plans is None:
        named_plans = plans(model.config, max(lengths) / model.config.max_position_embeddings)
    rows = losses(model, tokens, named_plans, lengths, texts=texts, last=last)
    found = needles(model, encode, tokens, named_plans, lengths, wording=wording, texts=texts)
    return [{**row, "needles": one["needles"]} for row, one in zip(rows, found, strict=True)]


@torch.no_grad()
def losses(
    model: Any,
    tokens: Tensor,
    named_plans: Mapping[str, Plan],
    lengths: Sequence[int],
    *,
    texts: int = 4,
    last: int = 256,
) -> list[dict[str, Any]]:
    """Loss on the same last tokens of a text, read with more and more of what comes before.

    Args:
        model: as for :func:`~rope_lessons.hf.extend`.
        tokens: int64 ``(n,)``, one long text.
        named_plans: dictionary of plans.
        lengths: tokens that the model reads; the last of them are scored.
        texts: how many pieces of the text, spread evenly.
        last: how many tokens are scored in each.

    Returns:
        rows with ``name``, ``length`` and ``loss``, nats per token.

    Raises:
        ValueError: a text that is shorter than the longest length.
    """
    ends = _ends(tokens, max(lengths) + 1, texts)

    def loss(length: int) -> float:
        pieces = torch.stack([tokens[end - length - 1 : end] for end in ends])
        return sum(_losses(model, pieces, min(last, length))) / texts

    return [{"name": name, "length": n, "loss": round(value, 4)} for name, n, value in _each(
        model, named_plans, lengths, loss)]  # fmt: skip


@torch.no_grad()
def needles(
    model: Any,
    encode: Encode,
    tokens: Tensor,
    named_plans: Mapping[str, Plan],
    lengths: Sequence[int],
    *,
    wording: tuple[str, str] = SENTENCES,
    texts: int = 4,
) -> list[dict[str, Any]]:
    """How many keys are found that were hidden in a text, at three depths: the model must say each of their tokens.

    The digits are scored with those before them given. If all are right, the model would have written them itself.

    Args:
        model: as for :func:`~rope_lessons.hf.extend`.
        encode: a text to tokens, without special ones.
        tokens: int64 ``(n,)``, one long text to hide them in.
        named_plans: dictionary of plans.
        lengths: of text, needle and question together, the digits of the answer but for the last among them.
        wording: of the needle and of the question for it.
        texts: how many pieces of the text, spread evenly; in each a key of its own.

    Returns:
        rows with ``name``, ``length`` and ``needles``, percent found.

    Raises:
        ValueError: a text that is shorter than the longest length; a length that is too short for both sentences.
    """
    ends = _ends(tokens, max(lengths) + 1, texts)
    keys = np.random.Generator(np.random.Philox(key=1)).integers(10, size=(texts, DIGITS))

    def found(length: int) -> float:
        right = []
        for end, key in zip(ends, keys, strict=True):
            digits = "".join(map(str, key))
            hidden = [_hidden(encode, tokens[:end], digits, wording, length + 1, depth) for depth in DEPTHS]
            pieces, asked = torch.stack([piece for piece, _ in hidden]), hidden[0][1]
            right += _right(model, pieces, asked)
        return 100 * sum(right) / len(right)

    return [{"name": name, "length": n, "needles": round(value, 1)} for name, n, value in _each(
        model, named_plans, lengths, found)]  # fmt: skip


def _each(
    model: Any, named_plans: Mapping[str, Plan], lengths: Sequence[int], one: Callable[[int], float]
) -> Iterator[tuple[str, int, float]]:
    """A number for every plan and length, the plan in the model meanwhile."""
    for name, plan in named_plans.items():
        with using(model, plan):
            for length in lengths:
                yield name, length, one(length)


def _ends(tokens: Tensor, longest: int, texts: int) -> list[int]:
    if len(tokens) < longest:
        raise ValueError(f"tokens must be more than the longest length, {longest - 1}, got {len(tokens)}")
    return torch.linspace(longest, len(tokens), texts).long().tolist()


def _hidden(
    encode: Encode, before: Tensor, digits: str, wording: tuple[str, str], size: int, depth: float
) -> tuple[Tensor, int]:
    """The end of a text with a needle in it and the question for it at its end; how many tokens are asked for."""
    needle, whole, bare = (list(encode(line)) for line in (
        wording[0].format(digits), wording[1].format(digits), wording[1].format("")))  # fmt: skip
    shared = next((at for at, (one, other) in enumerate(zip(whole, bare, strict=False)) if one != other), len(bare))
    room = size - len(needle) - len(whole)
    if room < 0:
        raise ValueError(f"lengths must be at least {size - room - 1} for needle and question, got {size - 1}")
    filler = before[len(before) - room :].tolist()
    begin = round(depth * room)
    return torch.tensor([*filler[:begin], *needle, *filler[begin:], *whole]), len(whole) - shared


def _logits(model: Any, pieces: Tensor, last: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores over the vocabulary of the last tokens alone, and these tokens, a few pieces at a time."""
    for some in pieces.to(model.device).split(max(1, AT_ONCE // pieces.shape[1])):
        logits = model(some[:, :-1], use_cache=False, logits_to_keep=last).logits
        yield logits.float(), some[:, -last:]


def _losses(model: Any, pieces: Tensor, last: int) -> list[float]:
    found = [
        F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none").mean(1)
        for logits, wanted in _logits(model, pieces, last)
    ]
    return torch.cat(found).tolist()


def _right(model: Any, pieces: Tensor, asked: int) -> list[bool]:
    found = [(logits.argmax(-1) == wanted).all(1) for logits, wanted in _logits(model, pieces, asked)]
    return torch.cat(found).tolist()
