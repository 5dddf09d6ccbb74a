"""A plan of this package in a model of transformers that is loaded: :func:`~rope_lessons.hf.extend`,
:func:`~rope_lessons.hf.using`, :func:`~rope_lessons.hf.restore`.

Where a plan changes frequencies alone, it goes into transformers' own rope parameters (``native.py``). Otherwise
attention is replaced by :func:`~rope_lessons.attention` through transformers' own interface, and the model's rotary
module by one that turns nothing. What a call says of padding and packed documents reaches attention as ids of
documents (``request.py``), and the cache keeps turned keys (``cache.py``).

Everything is checked before anything is changed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice
from rope_lessons._extras import extra
from rope_lessons.engine import attention
from rope_lessons.hf import saving
from rope_lessons.hf.native import depends_on_length, rebuilt
from rope_lessons.hf.request import document_ids, given
from rope_lessons.hf.stamps import stamp
from rope_lessons.hf.state import Extended, as_loaded, attentions, in_words, own_plan, state_of, unwrapped
from rope_lessons.schemes import NAMED, Plan, Scheme, default_base_scale, options_of, scheme

NAME = "rope_lessons"  # of our attention among those of transformers
FLOOR = (5, 20, 2)  # of transformers, as in pyproject.toml: with 5.19 and older, a cache or a config goes wrong
WAYS = ("config", "attention")  # of a plan into a model
WHAT = "a plan in a model of Hugging Face"
# What models hand to attention that a plan holds already, or that says nothing of it.
KNOWN = {
    "position_ids", "sliding_window", "use_cache", "cache_position", "output_attentions", "is_causal",
         "output_hidden_states", "output_router_logits", "return_dict", "num_items_in_batch", "logits_to_keep",
}  # fmt: skip


# --- what a user calls ----------------------------------------------------------------------------------------------


def extend(model: Any, plan: str | Scheme | Plan, *, through: str | None = None, **options: Any) -> Any:
    """Give a pretrained model of transformers another plan.

    After it ``model.generate``, a loop of one's own and training work as before: with padding on either side,
    packed documents (``position_ids`` that begin again at 0), beams, sampling, gradient checkpointing and
    ``torch.compile``.

    A plan gets into the model in one of two ways:

    - ``"config"``: where it changes frequencies and attention factors alone, and transformers knows them. The config's
      ``rope_parameters`` say it, and the model's own rotary module is built anew from them. Every cache and every
      attention of transformers works, and what ``save_pretrained`` writes loads without this package, in vLLM too.
    - ``"attention"``: any plan. :func:`~rope_lessons.attention` takes the place of the model's, in every layer. Cached
      keys are turned once, so a step reads what a step of plain RoPE reads.

    Where the frequencies depend on the length of the text (``"dynamic-ntk"``, ``"longrope"``), transformers keeps
    cached keys as they were turned for a shorter text, and a later call may still have the frequencies of a longer one:
    its numbers are not those of the plan. So these go through ``"attention"`` unless you say ``"config"``.

    Args:
        model: a causal model of transformers whose config :func:`~rope_lessons.plan_from_hf` reads, or one of PEFT
            around it. What PEFT saves are adapters, without the plan, and the name of the model below them: train them
            on one that was saved with its plan and loaded (:func:`load`), or extend again where you load them.
        plan: what each layer becomes: a name of :func:`~rope_lessons.scheme`, which changes what it is about and leaves
            the rest of a layer's own scheme as it is (layers without positions stay without, a sliding window stays,
            and a name that is not about frequencies keeps those of the model); a scheme for every layer; or one
            scheme for each layer.
        through: ``"config"`` or ``"attention"``; None takes the config where its numbers are the plan's.
        options: of the name, as for :func:`~rope_lessons.scheme`. Channels and base are the model's; a
            ``train_length`` that the name needs is ``max_position_embeddings`` of the config unless given.

    Returns:
        the same model. Call it again for another plan as often as you like. A plan replaces the last one, and a name is
        about the model as it was loaded. Begin with a new cache.

    Raises:
        ImportError: transformers is missing, or too old.
        TypeError, ValueError: a model that cannot be served exactly, and why (soft-caps, learned sinks, chunks, latent
            attention, dropout of attention weights, code that its config does not describe); a plan that does not fit
            it, or not into its config. Nothing has been changed then. Later, of a call with our attention: static and
            other caches that a plan cannot use, masks of four dimensions, masks with holes, positions that leave some
            out, attention weights as output.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    >>> model = extend(LlamaForCausalLM(LlamaConfig(**sizes)), "rerope", window=16)
    >>> plan_of(model)[0]
    Scheme(FrequencySpec('rope', dim=8), window=16, slope=0.0)
    >>> prompt = torch.tensor([[0, 0, 7, 3, 9], [4, 8, 6, 2, 5]])  # the first row is padded on the left
    >>> model.generate(prompt, attention_mask=(prompt > 0).long(), max_new_tokens=3, min_new_tokens=3).shape
    torch.Size([2, 8])
    >>> extend(model, "pi", factor=4).config.rope_parameters
    {'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 4}
    """
    _check_transformers()
    if through is not None:
        check_choice("through", through, WAYS)
    _extend(unwrapped(model), plan, through, options)
    return model


def _extend(model: Any, plan: Any, through: str | None, options: Mapping[str, Any]) -> None:
    loaded = as_loaded(model)
    layers, wanted = attentions(model), _wanted(loaded, plan, options)
    _check(model, layers, loaded.own, wanted)
    native = _native(model, loaded, wanted, through)
    if state_of(model) is not None:
        restore(model)
    base, through = model.base_model, "attention" if native is None else "config"
    stamp(base, loaded.own, through, wanted)
    if native is None:
        base.rope_lessons = _put_attention(model, layers, replace(loaded, plan=wanted))
    else:
        base.rotary_emb, said = native
        _say(model.config, said)
        base.rope_lessons = replace(loaded, plan=wanted, through=through)
    base.rotary_emb.extra_repr = partial(str, in_words(wanted))  # in print(model)


def _say(config: Any, said: Mapping[str, Any]) -> None:
    for key, value in said.items():
        setattr(config, key, value)


def _check_transformers() -> None:
    with extra("hf", WHAT):
        import transformers
    if tuple(map(int, re.findall(r"\d+", transformers.__version__)[:3])) < FLOOR:
        raise ImportError(
            f"{WHAT} needs transformers {'.'.join(map(str, FLOOR))} or newer, got {transformers.__version__}: "
            "pip install --upgrade transformers"
        )


def _native(model: Any, loaded: Extended, wanted: Plan, through: str | None) -> Any:
    """The rotary module for a plan and what the config says of it, or None if our attention has to do it."""
    if through == "attention" or (through is None and depends_on_length(wanted)):
        return None
    config = copy.deepcopy(model.config)
    _say(config, loaded.config)
    try:
        return rebuilt(loaded.rotary, config, loaded.own, wanted)
    except ValueError:
        if through == "config":
            raise
        return None


def _put_attention(model: Any, layers: list[Any], state: Extended) -> Extended:
    """Our attention in every layer, and a rotary module that turns nothing."""
    with extra("hf", WHAT):
        from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _no_mask)
    base = model.base_model
    hook = base.register_forward_pre_hook(_before_call, with_kwargs=True)
    base.rotary_emb = _Unturned(state.rotary, base.config)
    model.save_pretrained = partial(saving.save, model, state.plan)
    model.set_attn_implementation(NAME)
    for layer, its in zip(layers, state.plan, strict=True):
        layer.rope_scheme = its
    return replace(state, through="attention", hook=hook)


def restore(model: Any) -> Any:
    """Take a plan out of a model again: its own attention, rotary module and rope parameters, the very objects.

    What stays is a look at the caches that it is given: one that was filled under the plan is refused.

    Args:
        model: one that :func:`~rope_lessons.hf.extend` has changed.

    Returns:
        the same model.

    Raises:
        ValueError: a model without a plan.
    """
    inside = unwrapped(model)
    state = state_of(model)
    if state is None:
        raise ValueError("model must have a plan, which rl.hf.extend gives it; got one as it was loaded")
    base = inside.base_model
    base.rotary_emb = state.rotary
    _say(inside.config, state.config)
    del base.rope_lessons
    if state.through == "attention":
        state.hook.remove()
        del inside.save_pretrained
        for layer in attentions(inside):
            del layer.rope_scheme
        inside.set_attn_implementation(state.implementation)
    stamp(base, state.own, "config", state.own)
    return model


@contextmanager
def using(model: Any, plan: str | Scheme | Plan, *, through: str | None = None, **options: Any) -> Iterator[Any]:
    """A model with another plan inside a ``with`` block, and as before after it.

    Args:
        model, plan, through, options: as for :func:`~rope_lessons.hf.extend`.

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.hf.extend`.
    """
    state = state_of(model)
    extend(model, plan, through=through, **options)
    try:
        yield model
    finally:
        if state is None:
            restore(model)
        else:
            extend(model, state.plan, through=state.through)


def plan_of(model: Any) -> Plan:
    """The plan that a model has now: what :func:`~rope_lessons.hf.extend` gave it, or its own.

    Args:
        model: a causal model of transformers.

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.plan_from_hf`, for a model without a plan of ours.
    """
    state = state_of(model)
    return own_plan(unwrapped(model)) if state is None else state.plan


def load(folder: Any, kind: Any = None, **options: Any) -> Any:
    """A model that was saved with a plan, with the plan.

    Args:
        folder: where ``model.save_pretrained`` has written.
        kind: class of transformers to load it with; ``AutoModelForCausalLM`` by default.
        options: for ``kind.from_pretrained``, which gets ``trust_remote_code=False`` and ``use_safetensors=True``.

    Returns:
        the model, extended.

    Raises:
        OSError, TypeError, ValueError: no such folder; a config without a plan, or with one that does not fit it.
    """
    _check_transformers()
    with extra("hf", WHAT):
        from transformers import AutoModelForCausalLM
    config, plan = saving.read(folder)
    kind = AutoModelForCausalLM if kind is None else kind
    model = kind.from_pretrained(folder, config=config, trust_remote_code=False, use_safetensors=True, **options)
    return extend(model, plan)


# --- the plan that is wanted ------------------------------------------------------------------------------------------


def _wanted(loaded: Extended, plan: Any, options: Mapping[str, Any]) -> Plan:
    own = loaded.own
    if isinstance(plan, str):
        longest = loaded.config.get("max_position_embeddings")
        return tuple(_named(layer, plan, options, longest) for layer in own)
    if options:
        raise ValueError(f"options go with a name of a scheme, got {', '.join(options)} with {type(plan).__name__}")
    if isinstance(plan, Scheme):
        return (plan,) * len(own)
    if not isinstance(plan, tuple) or not all(isinstance(its, Scheme) for its in plan):
        hint = " (a method has two plans: give its .train or its .test)" if hasattr(plan, "test") else ""
        hint = " (rl.scheme_from_hf reads the dictionary of a config)" if isinstance(plan, Mapping) else hint
        raise TypeError(
            f"plan must be a name, a Scheme, or a tuple of one Scheme per layer, got {type(plan).__name__}{hint}"
        )
    if len(plan) != len(own):
        raise ValueError(f"plan must have one scheme for each of the model's {len(own)} layers, got {len(plan)}")
    return plan


def _named(own: Scheme, name: Any, options: Mapping[str, Any], longest: int | None) -> Scheme:
    """A layer's own scheme with what a name is about in its place."""
    if own.frequencies is None:
        return own
    told = dict(options)
    takes = options_of(name) if name in NAMED else {}
    kind = NAMED[name].kind if name in NAMED else None
    plain = dict(own.frequencies.options)
    if kind is not None:
        for option, value in (("dim", own.frequencies.dim), ("base", plain["base"])):
            if told.setdefault(option, value) != value:
                raise ValueError(f"{option} must be left out, the model's is {value}; got {told[option]}")
        if takes.get("train_length") and "train_length" not in told:
            told["train_length"] = longest
    made = scheme(name, **told)
    if kind is not None and kind != "rope" and own.frequencies.kind != "rope":
        raise ValueError(
            f"plan must not be a name of frequencies for a model whose own are {own.frequencies!r} and not plain: give "
            f"a Scheme with the frequencies that you want, rl.scheme({name!r}, dim={own.frequencies.dim}, "
            f"base={plain['base']:g}, …); got {name!r}"
        )
    changed: dict[str, Any] = {"frequencies": made.frequencies, "rotary_scale": made.rotary_scale}
    if kind == "rope":
        changed = {"frequencies": own.frequencies, "rotary_scale": own.rotary_scale}
    for knob in ("window", "slope", "scale", "sinks", "alibi"):
        changed[knob] = getattr(made, knob)
    seen = [window for window in (own.visible_window, made.visible_window) if window is not None]
    return replace(own, **changed, visible_window=min(seen, default=None))


# --- what is refused --------------------------------------------------------------------------------------------------


def _check(model: Any, layers: list[Any], own: Plan, wanted: Plan) -> None:
    """Whether this model can have this plan."""
    kind = model.config.model_type
    base = getattr(model, "base_model", None)
    if not isinstance(getattr(base, "rotary_emb", None), nn.Module):
        raise ValueError(f"model must turn queries and keys in a rotary_emb of its own, got {kind!r}, which has none")
    if len(layers) != len(own):
        raise ValueError(f"model must have one attention for each of its {len(own)} layers, got {len(layers)}")
    if not all(layer.causal for layer in own):
        raise ValueError(f"model must be causal, got {kind!r}")
    if not model._can_set_attn_implementation():
        raise ValueError(f"model must take another attention (transformers' AttentionInterface), got {kind!r}")
    for number, (layer, its, new) in enumerate(zip(layers, own, wanted, strict=True)):
        head_dim = layer.head_dim if hasattr(layer, "head_dim") else layer.head_size
        if abs(default_base_scale(its, head_dim) - layer.scaling) > 1e-6 * abs(layer.scaling):
            raise ValueError(
                f"model must scale its scores as its config says, by {default_base_scale(its, head_dim):g} in layer "
                f"{number}, got {layer.scaling:g}"
            )
        if new.rotary_dim > head_dim:
            raise ValueError(f"plan must turn at most the {head_dim} channels of a head, got {new!r} in layer {number}")
        if new.frequencies is not None and its.frequencies is not None and new.layout != its.layout:
            raise ValueError(f"plan must have the model's layout {its.layout!r}, got {new!r} for layer {number}")
        if not new.causal:
            raise ValueError(f"plan must be causal like the model, got {new!r} for layer {number}")


# --- a call -----------------------------------------------------------------------------------------------------------


class _Unturned(nn.Module):
    """In place of a model's rotary module: cosines of 1 and sines of 0, so queries and keys stay as they are."""

    def __init__(self, original: nn.Module, config: Any):
        super().__init__()
        # A copy tells the shapes: the modules of some rope types change with the texts that they see.
        self.shapes, self.config = copy.deepcopy(original), config

    def forward(self, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        if self.config._attn_implementation != NAME:
            raise ValueError(
                f"the model's attention was set to {self.config._attn_implementation!r} while it has a plan, which "
                "would leave it without positions: rl.hf.restore(model) takes the plan out"
            )
        cos, sin = self.shapes(*arguments, **options)
        return torch.ones_like(cos), torch.zeros_like(sin)


def _no_mask(*_: Any, **__: Any) -> None:
    """The plan says who sees whom; padding and documents come from ``_before_call``."""


def _before_call(base: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Before every call of the model: mask and positions as documents, and a cache for the plan."""
    if not hasattr(base, "rope_lessons"):
        return None  # a copy whose plan was taken out again
    call = given(base, arguments, options)
    if call.get("output_attentions"):
        raise ValueError("output_attentions must be False: with a plan no weights are kept")
    tokens = call.get("input_ids") if call.get("input_ids") is not None else call.get("inputs_embeds")
    if tokens is None:
        return (), call
    mask, positions, cache = (call.get(name) for name in ("attention_mask", "position_ids", "past_key_values"))
    held = 0 if cache is None else cache.get_seq_length()
    documents = document_ids(mask, positions, (tokens.shape[0], tokens.shape[1]), held)
    plan: Plan = base.rope_lessons.plan
    if documents is not None and depends_on_length(plan):
        raise ValueError(
            "attention_mask must be all ones with frequencies that depend on the length of the text, which differs "
            "from row to row: call with one text at a time"
        )
    if cache is None:
        cache = _new_cache(base, call.get("use_cache"), documents)
        call["use_cache"] = cache is not None  # or the model would make one of its own
    else:
        _check_cache(base, cache, documents, held)
    call["past_key_values"] = cache
    call["attention_mask"] = None if documents is None else documents[:, None, None, :]
    return (), call


def _new_cache(base: Any, use_cache: bool | None, documents: Tensor | None) -> Any:
    """What the model would make for itself: where none is asked for outright, none is made that could not be used."""
    if not (base.config.use_cache if use_cache is None else use_cache):
        return None
    if torch.is_grad_enabled():
        if use_cache:
            raise ValueError("use_cache must be False while gradients are recorded: call it under torch.no_grad()")
        return None
    if documents is not None and not use_cache and not _only_left(documents):
        return None
    from rope_lessons.hf import cache as caches

    return caches.new(base.rope_lessons.plan, _padding(documents))


def _check_cache(base: Any, cache: Any, documents: Tensor | None, held: int) -> None:
    """Make an empty one ready for the plan; of another one, see that it goes on as it began."""
    from rope_lessons.hf import cache as caches

    padding = _padding(documents)
    if not held:
        caches.fill(cache, base.rope_lessons.plan, padding)
        return
    before = cache.layers[0].cache.padding
    now = torch.zeros(1, dtype=torch.int64) if padding is None else padding.cpu()
    if not bool((now == (0 if before is None else before.cpu())).all()):
        raise ValueError(
            "attention_mask must pad each row as at the first call with this cache, by "
            f"{0 if before is None else before.tolist()}, got {0 if padding is None else padding.tolist()}"
        )


def _only_left(documents: Tensor) -> bool:
    padding = (documents < 0).long().cumprod(dim=1).sum(dim=1)
    return bool((((documents < 0).sum(dim=1) == padding) & (documents.amax(dim=1) <= 0)).all())


def _padding(documents: Tensor | None) -> Tensor | None:
    """How many tokens of padding each row begins with, all that a cache can know of documents."""
    if documents is None:
        return None
    if not _only_left(documents):
        raise ValueError(
            "attention_mask must have its zeros at the start of a row with a cache (pad on the left), and position_ids "
            "must not begin anew; or call with use_cache=False"
        )
    return (documents < 0).sum(dim=1)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Our attention with the interface of transformers, which wants heads after tokens."""
    if dropout:
        raise ValueError(f"attention_dropout must be 0 in training with a plan, which drops nothing, got {dropout}")
    if not hasattr(module, "rope_scheme"):
        raise ValueError("this model has the config of a model with a plan, and no plan: call rl.hf.extend on it too")
    more = sorted(name for name, value in options.items() if not (name in KNOWN or value is None or value is False))
    if more:
        raise ValueError(f"attention of this model must do no more than its plan says, got {', '.join(more)}")
    layer = getattr(key, "rope_lessons_layer", None)
    if layer is not None:
        layer.taken = True
        output = attention(query, key, value, module.rope_scheme, cache=layer.cache)
    else:
        documents = None if attention_mask is None else attention_mask[:, 0, 0]
        output = attention(query, key, value, module.rope_scheme, document_ids=documents)
    return output.transpose(1, 2).contiguous(), None
