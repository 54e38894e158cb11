"""Blind deconvolution: the kernel of an even blur, and the picture without it.

The kernel is estimated from coarse to fine. In turns, the blurred picture is explained by one with few
gradients, and the kernel is what maps the gradients of one to those of the other: L. Xu, S. Zheng, J. Jia,
"Unnatural L0 sparse representation for natural image deblurring", CVPR 2013. With the kernel the picture is
restored by half-quadratic splitting with sparse gradients: D. Krishnan, R. Fergus, "Fast image deconvolution
using hyper-Laplacian priors", NIPS 2009; here the gradients of all colours are shrunk together, in closed
form: R. Chartrand, "Fast algorithms for nonconvex compressive sensing", ISBI 2009. Where the blurred picture
is smooth, the sharp one is, too: Q. Shan, J. Jia, A. Agarwala, "High-quality motion deblurring from a single
image", SIGGRAPH 2008.

Pictures (C, H, W) and luma (H, W) are linear light in [0, 1]. Kernels are (side, side) with an odd side and
the sum 1; their centroid is within half a pixel of the centre.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vidrestore.pixels.linear_light import from_light
from vidrestore.working import check_stop, steps

PYRAMID_STEP = 0.5**0.5  # size of a level of the pyramid over the next finer one
LEAST_KERNEL_SIDE = 5  # of the coarsest kernel, in pixels
ROUNDS = 5  # of both estimates on every level
# Weight of the number of gradients of the sharp picture over that of the next round, and the least.
SPARSITY_STEP, LEAST_SPARSITY = 1.1, 1e-4
# where the weight ends that ties the picture to its few gradients, and doubles
SPLIT_MOST = 1e4
KERNEL_WEIGHT = 2.0  # of the square of the kernel
CONJUGATE_STEPS = 25
FAINT, LEAST_PART = 0.05, 0.1  # of a kernel's peak; of its light, in a connected part

EXPONENT, SHRINKAGE = 2 / 3, 2 / 3  # of gradients in the prior
# Added weight of the prior where a picture is smooth: the root mean square of its display values' differences
# from pixel to pixel is smaller, over windows of this side.
SMOOTHER, SMOOTH, SMOOTH_SIDE = 6.0, 2 / 255, 15
# weights that tie the picture to its shrunk gradients
SPLITTING = (1.0, 2.83, 8.0, 22.6, 64.0, 181.0)
# light from which samples may be clipped: they are then known to be that at least
CLIPPED = 0.96
# Of the sides of a canvas, for fast Fourier transforms; with a larger prime these take up to three times as
# long.
MULTIPLE, MOST_PRIME = 16, 13


def kernel_of(
    luma: Tensor, side: int, sparsity: float, first: Tensor | None = None
) -> Tensor:
    """Estimate the kernel (side, side) by which luma (H, W) was blurred.

    `sparsity` weighs the number of gradients of the sharp picture, at first; different weights lead to
    different kernels if a picture has little detail. With a `first` estimate, for the picture at half its
    size, the pyramid begins above that.
    """
    kernel, levels = (
        first,
        math.floor(math.log(side / LEAST_KERNEL_SIDE) / -math.log(PYRAMID_STEP)) + 1,
    )
    if first is not None:
        sparsity, levels = sparsity / SPARSITY_STEP ** (ROUNDS * (levels - 2)), 2
    coarse_to_fine = range(levels - 1, -1, -1)
    for level in steps(
        coarse_to_fine, [2 ** (levels - level) for level in coarse_to_fine]
    ):
        scale = PYRAMID_STEP**level
        odd = max(3, math.ceil(side * scale) // 2 * 2 + 1) if level else side
        kernel = (
            _horizontal(odd)
            if kernel is None
            else scaled_kernel(kernel, 1 / PYRAMID_STEP, odd)
        )
        kernel, sparsity = _refined(
            resized(luma, scale) if level else luma, kernel, sparsity
        )
    assert kernel is not None
    return kernel


def _horizontal(side: int) -> Tensor:
    """Return the kernel of two pixels beside each other, where the estimate begins."""
    kernel = torch.zeros(side, side)
    kernel[side // 2, side // 2 - 1 : side // 2 + 1] = 0.5
    return kernel


def _refined(luma: Tensor, kernel: Tensor, sparsity: float) -> tuple[Tensor, float]:
    """Return the kernel after ROUNDS on one level, and the weight for the next level."""
    side, (height, width) = len(kernel), luma.shape
    blurred, (top, left) = wrapped(luma[None], side // 2 + 1)
    blurred = blurred[0]
    inside = torch.zeros_like(blurred)
    inside[top + 1 : top + height - 2, left + 1 : left + width - 2] = 1
    observed = torch.fft.rfft2(_gradients(blurred) * inside)
    spectrum, power = torch.fft.rfft2(blurred), twice(_gradient_power(blurred))
    for _ in range(ROUNDS):
        check_stop()
        sharp = _few_gradients(blurred, spectrum, power, kernel, sparsity)
        latent = torch.fft.rfft2(_gradients(sharp) * inside)
        kernel = centred(cleaned(_least_squares(latent, observed, side, blurred.shape)))
        sparsity = max(LEAST_SPARSITY, sparsity / SPARSITY_STEP)
    return kernel, sparsity


def _few_gradients(
    blurred: Tensor, spectrum: Tensor, power: Tensor, kernel: Tensor, weight: float
) -> Tensor:
    """Return the picture (H, W) that the kernel blurs to `blurred`, with few gradients (Xu et al., eq. 8):
    gradients below a limit, which falls, are taken for zero. `spectrum` is that of `blurred`, `power` that of
    the gradients' filters, `twice`.
    """
    size = blurred.shape
    response = transfer(kernel, blurred)
    aim, gain = response.conj() * spectrum, twice(_power(response))
    sharp, tie = blurred, 2 * weight
    gradients, energy = blurred.new_empty(2, *size), torch.empty_like(blurred)
    while tie < SPLIT_MOST:
        _gradients(sharp, gradients)
        torch.mul(gradients[0], gradients[0], out=energy).addcmul_(
            gradients[1], gradients[1]
        )
        gradients *= energy.ge_(weight / tie)
        pull = torch.fft.rfft2(_divergence(gradients, energy))
        sharp = torch.fft.irfft2(_balanced(aim, pull, gain, power, tie), size)
        tie *= 2
    return sharp


def _least_squares(
    latent: Tensor, observed: Tensor, side: int, size: torch.Size
) -> Tensor:
    """Return the kernel that maps latent gradients to observed ones, both spectra (2, H, W / 2 + 1), by
    conjugate gradients on the autocorrelation of the former.
    """
    reach = side - 1
    auto = torch.fft.irfft2(_power(latent).sum(0), size).roll((reach, reach), (0, 1))
    cross = torch.fft.irfft2((latent.conj() * observed).sum(0), size).roll(
        (side // 2, side // 2), (0, 1)
    )
    both = torch.stack(
        (
            auto[: 2 * side - 1, : 2 * side - 1],
            F.pad(cross[:side, :side], (0, reach, 0, reach)),
        )
    )
    auto, cross = both.cpu()  # small, and the kernel is a loop of small steps
    cross = cross[:side, :side]
    scale = auto[reach, reach].clamp(min=1e-12)
    # what is used of a product on a canvas as small as that has nothing wrapped around
    canvas = [canvas_side(len(auto))] * 2
    spectrum, ridge, aim = (
        torch.fft.rfft2(auto / scale, canvas),
        KERNEL_WEIGHT / scale,
        cross / scale,
    )

    def applied(kernel: Tensor) -> Tensor:
        spread: Tensor = torch.fft.irfft2(
            spectrum * torch.fft.rfft2(kernel, canvas), canvas
        )
        image: Tensor = (
            spread[reach : reach + side, reach : reach + side] + ridge * kernel
        )
        return image

    kernel, residual = torch.zeros_like(aim), aim
    direction, error = residual, residual.square().sum()
    for _ in range(CONJUGATE_STEPS):
        mapped = applied(direction)
        length = error / (direction * mapped).sum().clamp(min=1e-20)
        kernel, residual = kernel + length * direction, residual - length * mapped
        before, error = error, residual.square().sum()
        direction = residual + error / before.clamp(min=1e-30) * direction
    return kernel


def cleaned(kernel: Tensor) -> Tensor:
    """Return a kernel without faint pixels and parts, with the sum 1; a single pixel if nothing is left."""
    kernel = torch.where(kernel < FAINT * kernel.max(), 0.0, kernel)
    if not float(kernel.sum()) > 0:
        kernel = torch.zeros_like(kernel)
        kernel[len(kernel) // 2, len(kernel) // 2] = 1
    kernel = kernel / kernel.sum()
    parts = _parts(kernel > 0)
    light = torch.zeros(kernel.numel() + 1).index_add_(
        0, parts.flatten(), kernel.flatten()
    )
    kernel = torch.where(
        light[parts] >= min(LEAST_PART, float(light.max())), kernel, 0.0
    )
    return kernel / kernel.sum()


def _parts(mask: Tensor) -> Tensor:
    """Return the numbers of connected parts of a mask (H, W); 0 outside."""
    numbers = torch.arange(1.0, mask.numel() + 1).view_as(mask) * mask
    while True:
        grown = F.max_pool2d(numbers[None], 3, 1, 1)[0] * mask
        if torch.equal(grown, numbers):
            return numbers.long()
        numbers = grown


def centroid(kernel: Tensor) -> tuple[float, float]:
    """Return the row and column of a kernel's centroid, from its centre."""
    line = torch.arange(len(kernel)) - len(kernel) // 2
    return float((kernel.sum(1) * line).sum()), float((kernel.sum(0) * line).sum())


def centred(kernel: Tensor) -> Tensor:
    """Return a kernel shifted by whole pixels, so that its centroid is in the middle pixel."""
    return kernel.roll([-round(shift) for shift in centroid(kernel)], (0, 1))


def scaled_kernel(kernel: Tensor, factor: float, side: int) -> Tensor:
    """Return a kernel (side, side) for pictures `factor` times as large."""
    odd = max(3, round(len(kernel) * factor) // 2 * 2 + 1)
    scaled = F.interpolate(
        kernel[None, None], [odd, odd], mode="bicubic", antialias=True
    )[0, 0]
    border = (side - odd) // 2  # cut if negative
    return centred(cleaned(F.pad(scaled.clamp(min=0), [border] * 4)))


def resized(luma: Tensor, scale: float) -> Tensor:
    """Return luma (H, W) at another size, antialiased."""
    size = [max(1, round(side * scale)) for side in luma.shape]
    return F.interpolate(luma[None, None], size, mode="bicubic", antialias=True)[0, 0]


def sharpened(light: Tensor, kernel: Tensor, strength: float) -> Tensor:
    """Return a picture (C, H, W) without its blur; `strength` weighs the picture against the prior.

    The light beyond the borders, and beyond what clipped samples show, is estimated on the way.
    """
    height, width = light.shape[1:]
    blurred, (top, left) = wrapped(light, len(kernel))
    size, inner = (
        blurred.shape[1:],
        (..., slice(top, top + height), slice(left, left + width)),
    )
    spectrum = phased(transfer(kernel, blurred), centroid(kernel), blurred)
    prior = SHRINKAGE * _prior_weight(blurred)
    sharp = _sparse(blurred, spectrum, strength, prior, blurred)
    blurred = torch.fft.irfft2(spectrum * torch.fft.rfft2(sharp), size)
    brightest = torch.maximum(blurred[inner], light)
    blurred[inner] = torch.where(light >= CLIPPED, brightest, light)
    return _sparse(blurred, spectrum, strength, prior, sharp)[inner]


def _prior_weight(blurred: Tensor) -> Tensor:
    """Return the weight (H, W) of the prior for a blurred picture (C, H, W): above 1 where it is smooth."""
    energy = _gradients(from_light(blurred)).square().sum(0).mean(0)
    mean, reach = energy[None], SMOOTH_SIDE // 2
    # of rows, then of columns: a fifth of the time
    mean = F.avg_pool2d(mean, (1, SMOOTH_SIDE), 1, (0, reach), count_include_pad=False)
    mean = F.avg_pool2d(mean, (SMOOTH_SIDE, 1), 1, (reach, 0), count_include_pad=False)
    return 1 + SMOOTHER / (1 + (mean[0] / SMOOTH**2).square())


def _sparse(
    blurred: Tensor, spectrum: Tensor, strength: float, prior: Tensor, sharp: Tensor
) -> Tensor:
    """Return the picture (C, H, W) with sparse gradients that is blurred to `blurred`, from a first `sharp`
    one (Krishnan and Fergus, algorithm 1); `prior` (H, W) are the weights of the gradients.
    """
    size = blurred.shape[1:]
    aim = torch.fft.rfft2(blurred).mul_(spectrum.conj())
    gain, power = twice(_power(spectrum)), twice(_gradient_power(blurred))
    for tie in SPLITTING:
        check_stop()
        gradients = _gradients(sharp.clamp(min=0))
        lengths = gradients.square().sum(0).mean(0).clamp_(min=1e-12)
        gradients *= (1 - prior / tie * lengths.pow_(EXPONENT / 2 - 1)).clamp_(min=0)
        pull = torch.fft.rfft2(_divergence(gradients))
        sharp = torch.fft.irfft2(
            _balanced(aim, pull, gain, power, tie / strength), size
        )
    return sharp


def wrapped(planes: Tensor, margin: int) -> tuple[Tensor, tuple[int, int]]:
    """Return planes (C, H, W) on a larger canvas that is periodic, and where they lie on it.

    Each border is continued by its reflection, at least `margin` wide, which fades into that of the opposite
    border.
    """
    offsets = []
    for axis in (-1, -2):
        planes = planes.transpose(-1, axis)
        length = planes.shape[-1]
        band = canvas_side(length + 2 * margin) - length
        index = torch.arange(band, device=planes.device)
        after = planes[..., (length - 2 - index).clamp(min=0)]
        before = planes[..., (band - index).clamp(max=length - 1)]
        fade = 0.5 - 0.5 * torch.cos(math.pi * (index + 1) / (band + 1))
        offsets.append(band // 2)
        planes = (
            torch.cat((planes, after.lerp(before, fade)), -1)
            .roll(band // 2, -1)
            .transpose(-1, axis)
        )
    return planes.contiguous(), (offsets[1], offsets[0])


def canvas_side(least: int) -> int:
    """Return the side of a canvas of at least so many pixels."""
    count = -(-least // MULTIPLE)
    while _largest_prime(count) > MOST_PRIME:
        count += 1
    return count * MULTIPLE


def _largest_prime(number: int) -> int:
    """Return the largest prime factor of a number; 1 for 1."""
    factor = 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            number //= factor
    return number


def transfer(kernel: Tensor, canvas: Tensor) -> Tensor:
    """Return the spectrum (H, W / 2 + 1) of a kernel, its middle at the origin of a canvas (..., H, W)."""
    side, (height, width) = len(kernel), canvas.shape[-2:]
    placed = F.pad(
        kernel.to(canvas.device, non_blocking=True), (0, width - side, 0, height - side)
    )
    spectrum: Tensor = torch.fft.rfft2(placed.roll((-(side // 2),) * 2, (0, 1)))
    return spectrum


def phased(spectrum: Tensor, shift: tuple[float, float], canvas: Tensor) -> Tensor:
    """Return the spectrum of what is shifted up and left by a fraction of a pixel."""
    rows, columns = _frequencies(canvas)
    angle = math.tau * (shift[0] * rows + shift[1] * columns)
    return spectrum * torch.polar(torch.ones_like(angle), angle)


def _frequencies(canvas: Tensor) -> tuple[Tensor, Tensor]:
    (height, width), device = canvas.shape[-2:], canvas.device
    return torch.fft.fftfreq(height, device=device)[:, None], torch.fft.rfftfreq(
        width, device=device
    )[None]


def twice(values: Tensor) -> Tensor:
    """Return real values (...) for the real and the imaginary parts (..., 2) of a spectrum: torch takes five
    times as long for a product of complex and real numbers.
    """
    return torch.stack((values, values), -1)


def _power(spectrum: Tensor) -> Tensor:
    """Return the squares of a spectrum's absolute values."""
    return torch.view_as_real(spectrum).square().sum(-1)


def _balanced(
    aim: Tensor, pull: Tensor, gain: Tensor, power: Tensor, tie: float
) -> Tensor:
    """Return (aim + tie * pull) / (gain + tie * power), written over the spectrum `pull`; the last two are
    given `twice`.
    """
    parts = torch.view_as_real(pull)
    torch.add(torch.view_as_real(aim), parts, alpha=tie, out=parts)
    parts.div_(torch.add(gain, power, alpha=tie))
    return pull


def _gradient_power(canvas: Tensor) -> Tensor:
    """Return the power of the gradients' filters on a canvas (..., H, W), by frequency."""
    rows, columns = (
        2 - 2 * torch.cos(math.tau * line) for line in _frequencies(canvas)
    )
    return rows + columns


def _gradients(planes: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the differences (2, ..., H, W) to the next row and to the next column, periodic."""
    differences = planes.new_empty(2, *planes.shape) if out is None else out
    for axis, difference in zip((-2, -1), differences, strict=True):
        last = planes.shape[axis] - 1
        before, after = planes.narrow(axis, 0, last), planes.narrow(axis, 1, last)
        torch.sub(after, before, out=difference.narrow(axis, 0, last))
        torch.sub(
            before.narrow(axis, 0, 1),
            after.narrow(axis, last - 1, 1),
            out=difference.narrow(axis, last, 1),
        )
    return differences


def _divergence(gradients: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the adjoint (..., H, W) of `_gradients`."""
    adjoint = torch.add(*gradients, out=out).neg_()
    for axis, difference in zip((-2, -1), gradients, strict=True):
        last = difference.shape[axis] - 1
        adjoint.narrow(axis, 1, last).add_(difference.narrow(axis, 0, last))
        adjoint.narrow(axis, 0, 1).add_(difference.narrow(axis, last, 1))
    return adjoint
