"""The unfolded Transformer, the ViT, Algorithm 1 and the variants of DUST against their equations."""

from typing import Any

import pytest
import torch
from recovery_systems import ATOMS, MEASUREMENTS, PIXELS, moved, patches, system
from torch import Tensor, nn

from vidrestore.lab.papers.recovery import recover
from vidrestore.lab.papers.recovery_transformers import sinusoids
from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.fast_linear import PackedLinear, PlainLinear

BOTH = pytest.mark.parametrize(
    "measurements", [None, MEASUREMENTS], ids=["denoising", "sensing"]
)
TOKENS = pytest.mark.parametrize(
    "normalise", [True, False], ids=["normalised", "weighted"]
)


def share(tokens: list[Tensor], own: int, other: int, normalise: bool) -> Tensor:
    """beta_u exp(q_t . q_u) (Eq. 13 and 16), or exp(q_t . q_u) of normalised tokens."""
    if normalise:
        tokens = [
            (token - token.mean()) / (token.var(correction=0) + 1e-5).sqrt()
            for token in tokens
        ]
        return torch.exp(tokens[own] @ tokens[other])
    return torch.exp(-0.5 * tokens[other] @ tokens[other]) * torch.exp(
        tokens[own] @ tokens[other]
    )


def mixed(
    tokens: list[Tensor], values: list[Tensor], own: int, normalise: bool
) -> Tensor:
    shares = [share(tokens, own, other, normalise) for other in range(len(tokens))]
    return sum(part * value for part, value in zip(shares, values, strict=True)) / sum(
        shares
    )


def unfolded(network: Any, group: Tensor) -> Tensor:
    """Eq. 9 and 10, token by token."""
    state = {name: value.detach() for name, value in network.named_parameters()}
    tokens = [
        state["embedding.weight"] @ (x / 255) + state["embedding.bias"]
        for x in network.measure(group).detach()
    ]
    for attend, mapping in zip(state["attending"], state["mapping"], strict=True):
        queries = [attend @ token for token in tokens]
        tokens = [
            (mapping @ mixed(queries, tokens, own, network.config.normalise)).clamp(
                min=0
            )
            for own in range(len(tokens))
        ]
    return 255 * torch.stack(
        [state["output.weight"] @ token + state["output.bias"] for token in tokens]
    )


@BOTH
@TOKENS
def test_the_unfolded_transformer_equals_its_equations(measurements, normalise):
    network, groups = (
        system("unfolded-transformer", measurements, normalise=normalise),
        patches(),
    )
    expected = torch.stack([unfolded(network, group) for group in groups])
    torch.testing.assert_close(network(network.measure(groups)), expected)


def library_block(
    block: Any, width: int, heads: int, hidden: int
) -> nn.TransformerEncoderLayer:
    """The same block as torch has it."""
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        hidden,
        dropout=0,
        activation="gelu",
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    attention: Any = layer.self_attn
    for ours, theirs in (
        (block.norm1, layer.norm1),
        (block.norm2, layer.norm2),
        (block.projection, attention.out_proj),
    ):
        theirs.load_state_dict(ours.state_dict())
    layer.linear1.load_state_dict(block.expand.state_dict())
    layer.linear2.load_state_dict(block.contract.state_dict())
    attention.in_proj_weight.data.copy_(block.qkv.weight)
    attention.in_proj_bias.data.zero_()
    return layer


@BOTH
def test_the_vit_is_torchs_own_encoder(measurements):
    network, groups = system("vit", measurements), patches()
    tokens = (
        network.embedding(network.measure(groups) / 255)
        + sinusoids(groups.shape[1], 12).double()
    )
    for block in network.blocks:
        tokens = library_block(block, width=12, heads=3, hidden=20)(tokens)
    torch.testing.assert_close(
        network(network.measure(groups)), 255 * network.output(network.norm(tokens))
    )


def test_positions_are_sines_and_cosines_of_falling_frequency():
    places = sinusoids(50, 8)
    assert places.shape == (50, 8)
    torch.testing.assert_close(places[:, 0], torch.arange(50).sin())
    torch.testing.assert_close(places[:, 4], torch.arange(50).cos())
    torch.testing.assert_close(
        places[:, 3], (torch.arange(50) * 10_000 ** (-3 / 4)).sin()
    )


def test_the_order_of_frames_matters_to_the_vit_and_not_to_the_unfolded_transformer():
    groups, order = patches(), torch.tensor([3, 0, 4, 1, 2])
    network = system("unfolded-transformer")
    torch.testing.assert_close(network(groups[:, order]), network(groups)[:, order])
    network = system("vit")
    assert (network(groups[:, order]) - network(groups)[:, order]).abs().max() > 0.1


def printed_algorithm(network: Any, group: Tensor, c: float) -> Tensor:
    """Algorithm 1 line by line, its slips mended."""
    D, config = network.dictionary.detach(), network.config
    A = (
        torch.eye(PIXELS, dtype=torch.float64)
        if network.sensing is None
        else network.sensing.detach()
    )
    codes = [torch.zeros(ATOMS, dtype=torch.float64) for _ in group]
    for _ in range(config.iterations):
        tokens = [D @ code for code in codes]
        mixes = [
            config.lambda2 * mixed(tokens, codes, own, config.normalise)
            for own in range(len(codes))
        ]
        steps = [
            z + D.T @ A.T @ (A @ s - A @ D @ z) / c
            for z, s in zip(mixes, group, strict=True)
        ]
        codes = [
            step.sign() * (step.abs() - config.lambda1 / c).clamp(min=0)
            for step in steps
        ]
    return torch.stack([D @ code for code in codes])


@BOTH
@TOKENS
def test_algorithm_1_equals_its_lines_with_the_step_that_is_sure_to_converge(
    measurements, normalise
):
    # exp doesn't overflow
    network, groups = (
        system("algorithm1", measurements, normalise=normalise, lambda1=0.1),
        patches() / 40,
    )
    A = (
        torch.eye(PIXELS, dtype=torch.float64)
        if measurements is None
        else network.sensing
    )
    c = float(
        torch.linalg.eigvalsh(
            (A @ network.dictionary).T @ (A @ network.dictionary)
        ).max()
    )
    expected = torch.stack([printed_algorithm(network, group, c) for group in groups])
    torch.testing.assert_close(network(network.measure(groups)), expected)


def dust(**changes: Any) -> Dust:
    torch.manual_seed(3)
    return moved(Dust(DustConfig(4, ATOMS, **changes)).double().eval(), 0.01)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_dust_without_normalisation_begins_as_algorithm_1_with_the_weighted_softmax(
    blocks,
):
    network = Dust(
        DustConfig(4, ATOMS, blocks, measurements=MEASUREMENTS, normalise=False)
    ).double()
    (group,) = patches(1) / 40
    A, threshold = network.sensing.detach(), float(network.threshold.detach())
    expected = recover(
        group @ A.mT,
        A,
        network.dictionary.detach(),
        iterations=blocks,
        lambda1=threshold,
        normalise=False,
    )
    torch.testing.assert_close(
        network(network.measure(group)[None])[0], expected, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("heads", [1, 3])
def test_the_matrix_f_is_a_change_of_the_dictionaries_that_attention_compares_by(heads):
    """Appendix B of the paper: D' = F D. With one head, too, only the attention sees it."""
    network, plain = (
        dust(heads=heads, correlation=True, temperature=True),
        dust(heads=max(heads, 2), temperature=True),
    )
    state = network.state_dict()
    matrix, dictionaries = (
        state.pop("correlation"),
        state.pop("head_dictionaries", state["dictionary"].expand(2, -1, -1)),
    )
    plain.load_state_dict(state | {"head_dictionaries": matrix @ dictionaries})
    torch.testing.assert_close(network(patches()), plain(patches()))
    assert (matrix - torch.eye(PIXELS)).abs().max() > 0.01


@pytest.mark.parametrize("linear", [PackedLinear, PlainLinear])
@pytest.mark.parametrize(
    "changes",
    [
        {"normalise": False},
        {"normalise": False, "heads": 3, "correlation": True},
        {"correlation": True},
    ],
)
def test_the_fast_form_of_the_variants_equals_the_plain_one(changes, linear):
    network, groups = dust(**changes).float(), patches(frames=20).float()
    with torch.no_grad():
        torch.testing.assert_close(
            network.at(0.0, torch.float32, linear)(groups),
            network(groups),
            atol=1e-3,
            rtol=0,
        )


def test_initial_values_are_those_of_the_configuration():
    network = Dust(DustConfig(4, ATOMS, lambda1=7.5, lambda2=0.9))
    assert float(network.threshold.detach()) == pytest.approx(7.5)
    assert float(network.gain.detach()) == pytest.approx(0.9)
    with pytest.raises(ValueError, match="lambda1 and lambda2 must be above 0"):
        DustConfig(lambda1=0.0)
    with pytest.raises(ValueError, match="temperature is for normalised tokens only"):
        DustConfig(temperature=True, normalise=False)
