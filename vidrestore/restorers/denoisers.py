"""Denoising by the family that the weights are of: DUST on planes, MB-TaylorFormer on RGB frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vidrestore.errors import OptionError
from vidrestore.restorers.dust_restorer import DenoiseRestorer
from vidrestore.weights import family_of

if TYPE_CHECKING:
    from vidrestore.options import RestoreOptions
    from vidrestore.restorers.base import Restorer


def denoiser(options: RestoreOptions) -> Restorer:
    """Return the restorer of `denoise`. Raises OptionError for options that its family doesn't know."""
    if options.model is not None and family_of(options.model) == "mb-taylorformer":
        from vidrestore.restorers.mb_taylorformer_restorer import image_denoiser

        if options.sigma != "auto" or options.quality != "default" or not options.match:
            raise OptionError(
                f"{options.model} estimates noise itself; remove `sigma`, `quality` and `match`"
            )
        return image_denoiser(options)
    if options.tile is not None or options.tile_overlap is not None or options.steady or options.compile:
        raise OptionError(
            "`tile`, `tile_overlap`, `steady` and `compile` are for networks that see whole frames, and DUST "
            "sees patches; remove them"
        )
    return DenoiseRestorer(options)
