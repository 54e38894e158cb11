"""Denoising by the family of the weights: DUST on planes, MB-TaylorFormer on RGB frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vidrestore.errors import OptionError
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.weights import card_of

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions
    from vidrestore.restorers.base import Restorer
    from vidrestore.weights import Card


def takes_sigma(card: Card) -> bool:
    """Return True for weights of `denoise` that take `sigma`: those of DUST."""
    return card.task == "denoise" and card.family == "dust"


def denoiser(options: RestoreOptions) -> Restorer:
    """Return the restorer of `denoise`. Raises OptionError for options that its family doesn't know."""
    if options.model is not None and card_of(options.model).family == "mb-taylorformer":
        if options.sigma != "auto" or options.quality != "default" or not options.match:
            raise OptionError(
                f"{options.model} estimates noise itself; remove `sigma`, `quality` and `match`"
            )
        from vidrestore.restorers.mb_taylorformer_restorer import image_denoiser

        return image_denoiser(options)
    if options.tile is not None or options.tile_overlap is not None or options.steady or options.compile:
        raise OptionError(
            "`tile`, `tile_overlap`, `steady` and `compile` are for networks that see whole frames, and DUST "
            "sees patches; remove them"
        )
    return DenoiseRestorer(options)
