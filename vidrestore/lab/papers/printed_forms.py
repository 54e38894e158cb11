"""Find the system of a paper's tables that a network is, and the settings that the paper prints otherwise.

A network has a paper's row if it is the printed network, the released one, or an ablation that a table lists.
Any other setting is part of the system's name, which gives it a row of its own, and both kinds of difference
are noted below the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from vidrestore.models import mb_taylorformer, vsr_transformer
from vidrestore.models.dust_sigma import SigmaDust
from vidrestore.models.taylor_attention import AttentionRule
from vidrestore.weights import Model
from vidrestore.weights.manifest import Card

DEPTH = "layers or iterations"  # a column that is the depth of a network
INITIAL = "initial value"  # a column that is the value of a scalar before training
# of the networks of the DUST paper (Section IV-B)
PRINTED_LAYERS, PRINTED_ATOMS, PRINTED_FRAMES = 3, 1024, 20
DUST_VALUES = {"c": 1.0, "lambda1": 0.1, "lambda2": 0.4}
RNN_VALUES = {"lambda1": 0.3, "lambda2": 0.02}
PRINTED_VALUES = {"dust": DUST_VALUES} | dict.fromkeys(
    ("sista-rnn", "l1-l1-rnn", "reweighted-rnn"), RNN_VALUES
)
MULTI_HEAD = 4  # heads of MH-DUST in its tables but Table III
ITERATIVE = ("algorithm1", "sista")
# the attention of MB-TaylorFormer V2 as the paper prints it; the defaults are the released code's
PRINTED_RULE = AttentionRule(
    focus_power=4,
    focus="norm-preserving",
    remainder="plain",
    temperature=False,
    position="convolution",
    eps_length=1e-12,
    eps_sum=1e-6,
)


@dataclass(frozen=True)
class PrintedForm:
    """A network as a system of a table.

    system: its name in the tables, the paper's only for a network of the paper.
    note: how it differs from the printed network, in words; empty if it doesn't.
    """

    system: str
    note: str = ""


def printed_form(
    model: Model, systems: Collection[str] = (), column: str = ""
) -> PrintedForm:
    """Return the system that a network is in a table with these `systems` and columns of this meaning."""
    # each family prints its variants in its own way
    family = model.card.family
    config = cast("Any", model.network.config)
    if family == "mb-taylorformer":
        return _taylorformer_form(config, systems)
    if family == "vsr-transformer":
        return _vsr_form(config)
    # groups of another length than printed are another system
    form = _patches_form(family, config, isinstance(model.network, SigmaDust), column)
    if _configuration(model.card).get("training", {}).get("sensing") == "principal":
        note = "trained from principal components instead of a random sensing matrix"
        form = replace(
            form,
            note=f"{form.note}, {note}"
            if form.note
            else f"the paper's network, but {note}",
        )
    frames = trained_frames(model.card)
    if frames == PRINTED_FRAMES:
        return form
    finetuned = f"{form.system}-finetuned"
    return replace(
        form,
        system=finetuned if finetuned in systems else f"{form.system}-{frames}-frames",
    )


def trained_frames(card: Card) -> int:
    """Return the number of frames in the groups that a network of patches was trained on, by its card."""
    return int(_configuration(card).get("data", {}).get("frames", PRINTED_FRAMES))


def _configuration(card: Card) -> dict[str, Any]:
    """Return the configuration that weights were trained by; empty if their card has none."""
    text = card.training.get("configuration")
    return tomllib.loads(text) if isinstance(text, str) else {}


def depth_of(config: Any) -> int:
    """Return the number of blocks, layers or iterations of a network that recovers patches."""
    counts = (
        getattr(config, name, None) for name in ("blocks", "layers", "iterations")
    )
    return int(next(filter(None, counts)))


def _patches_form(
    family: str, config: Any, any_sigma: bool, column: str
) -> PrintedForm:
    """Return the form of DUST or of a system that its paper compares it with."""
    # the paper's own names first
    heads = config.heads if family == "dust" else 1
    name = {1: family, MULTI_HEAD: "mh-dust"}.get(heads, f"mh{heads}-dust")
    name += "-f" * getattr(config, "correlation", False)
    # Algorithm 1 is printed without the normalisation that networks are printed with
    printed_normal = family != "algorithm1"
    if getattr(config, "normalise", printed_normal) != printed_normal:
        name += "-not-normalised" if printed_normal else "-normalised"
    # then what is ours, which gets a name of its own
    ours = {}
    if any_sigma:
        ours["-any-sigma"] = "its variant for every sigma"
    elif getattr(config, "temperature", False):
        ours["-temperature"] = "its variant whose attention has a learnt temperature"
    depth = depth_of(config)
    if (
        depth != PRINTED_LAYERS
        and column != DEPTH
        and family not in ITERATIVE
        and not any_sigma
    ):
        ours[f"-{depth}-layers"] = f"one of {depth} layers instead of {PRINTED_LAYERS}"
    # and what a note must say though the name stays
    words = [*ours.values()]
    if getattr(config, "atoms", PRINTED_ATOMS) != PRINTED_ATOMS:
        words.append(f"one of {config.atoms} atoms instead of {PRINTED_ATOMS}")
    initial = {} if any_sigma or column == INITIAL else PRINTED_VALUES.get(family, {})
    for field, printed in initial.items():
        if (value := getattr(config, field, printed)) != printed:
            words.append(f"one trained from {field} = {value:g} instead of {printed:g}")
    note = f"not the paper's network, but {' and '.join(words)}" if words else ""
    return PrintedForm(name + "".join(ours), note)


def _taylorformer_form(
    config: mb_taylorformer.MBTaylorFormerConfig, systems: Collection[str]
) -> PrintedForm:
    """Return the form of MB-TaylorFormer V2: by size, ablation (Tables VIII to XII) and what is ours."""
    # the size by the shape alone
    sizes = mb_taylorformer.SIZES.items()
    matches = (
        (size, base) for size, base in sizes if not _differences(config, base, SHAPE)
    )
    size, base = next(matches, ("other", config))
    name = f"mb-taylorformer-{size}{_ablations(config)}"
    # the power of focus is in the name only where a table varies it
    power = config.attention.focus_power
    powers = (PRINTED_RULE.focus_power, mb_taylorformer.B.attention.focus_power)
    if power not in powers or f"{name}-p{power}" in systems:
        name += f"-p{power}"
    # what differs from print: by the release, or by us
    paper = replace(base, attention=PRINTED_RULE, first_residual=True)
    rule = _differences(config.attention, PRINTED_RULE, IN_RULE)
    released = [*_differences(config, paper, {"first_residual"}).values()]
    released += [f"attention.{words}" for words in rule.values()]
    return _form(
        name, _differences(config, base, set(vars(config)) - IN_PRINT), released
    )


def _differences(config: Any, base: Any, names: Collection[str]) -> dict[str, str]:
    """Return the settings among `names` that differ from those of `base`, in words."""
    differences = {}
    for name, value in vars(config).items():
        if name in names and value != getattr(base, name):
            differences[name] = f"{name} = {value} (printed: {getattr(base, name)})"
    return differences


def _form(
    name: str, ours: Mapping[str, str], released: Iterable[str] = ()
) -> PrintedForm:
    """Return the form of a network with settings of ours, which go into its name, and released ones."""
    words = [*ours.values(), *released]
    note = f"differs from the printed network in {', '.join(words)}" if words else ""
    return PrintedForm(
        name + "".join(f"-{setting.replace('_', '-')}" for setting in ours), note
    )


def _ablations(config: mb_taylorformer.MBTaylorFormerConfig) -> str:
    """Return the settings in which an ablation of Tables VIII to XI differs."""
    # each ablation removes or changes one part
    published = mb_taylorformer.B
    fixed = config.embedding != published.embedding
    limit = (
        "-any-offset"
        if not config.offset_limit
        else f"-offset-{config.offset_limit[1]:g}"
    )
    names = f"-{config.embedding}" * fixed + "-p" * (not config.chain)
    names += limit * (config.offset_limit != published.offset_limit and not fixed)
    return names + "-no-cpe" * (config.attention.position == "none")


# settings of the attention that a reader would see; the others are added to denominators
IN_RULE = {"focus_power", "focus", "remainder", "temperature", "position"}
# settings of MB-TaylorFormer that tables name, or that paper and release differ in
SHAPE = ("widths", "blocks", "branches")
IN_PRINT = {*SHAPE, "offset_limit", "embedding", "chain", "first_residual", "attention"}


def _vsr_form(config: Any) -> PrintedForm:
    """Return the form of VSR-Transformer: with the parts that Table 6 removes, or our recurrent network."""
    family = "vsr-transformer"
    if not isinstance(config, vsr_transformer.VsrConfig):
        return PrintedForm(f"{family}-n{'-no-boff' * (not config.neighbours)}")
    name = (
        family
        + "-no-stcsa" * (not config.attention)
        + "-no-boff" * (not config.alignment)
    )
    name += "-3-frames" * (config.frames == 3)
    paper = replace(vsr_transformer.SIZES["reds"], blocks=config.frames)
    free = {"frames", "attention", "alignment", "flow"}
    return _form(name, _differences(config, paper, set(vars(config)) - free))
