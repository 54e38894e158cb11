"""Denoising by the family that the weights are of: DUST on planes, MB-TaylorFormer on RGB frames, alone or
beside DUST.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vidrestore.errors import OptionError
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.restorers.ensemble import Ensemble, ensemble_share
from vidrestore.weights import card_of

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions
    from vidrestore.restorers.base import Restorer
    from vidrestore.weights import Card


def takes_sigma(card: Card) -> bool:
    """Return True for weights of `denoise` that are told the noise: those of DUST, and those beside it."""
    return card.task == "denoise" and (
        card.family == "dust" or ensemble_share(card.parameters, card.name) is not None
    )


def denoiser(options: RestoreOptions) -> Restorer:
    """Return the restorer of `denoise`. Raises OptionError for options that its family doesn't know."""
    if options.model is not None:
        card = card_of(options.model)
        if card.family == "mb-taylorformer":
            return _of_pictures(options, ensemble_share(card.parameters, card.name))
    if options.tile is not None or options.tile_overlap is not None or options.steady or options.compile:
        raise OptionError(
            "`tile`, `tile_overlap`, `steady` and `compile` are for networks that see whole frames, and DUST "
            "sees patches; remove them"
        )
    return DenoiseRestorer(options)


def _of_pictures(options: RestoreOptions, share: float | None) -> Restorer:
    """Return the restorer of MB-TaylorFormer; beside DUST if `share` is given."""
    from vidrestore.restorers.mb_taylorformer_restorer import image_denoiser

    if share is not None:
        if options.steady:
            raise OptionError(f"{options.model} works beside DUST, which sees 20 frames; remove `steady`")
        return Ensemble(DenoiseRestorer(replace(options, model=None)), image_denoiser(options), share)
    if options.sigma != "auto" or options.quality != "default" or not options.match:
        raise OptionError(f"{options.model} estimates noise itself; remove `sigma`, `quality` and `match`")
    return image_denoiser(options)
