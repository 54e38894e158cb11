"""Decode on an NVIDIA GPU (NVDEC) by FFmpeg's acceleration "cuda"; pictures are downloaded to the host.

Only for codecs whose standard leaves no rounding open, so that all decoders give the same samples; those of
MPEG-2 and MJPEG differ. NVDEC conceals damage inside pictures without an error. Not yet run on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vidrestore.errors import OptionError
from vidrestore.frames import VideoInfo
from vidrestore.media.log import log_level
from vidrestore.media.probe import open_input

if TYPE_CHECKING:
    from av.container import InputContainer

SOFTWARE = "software"  # FFmpeg's own decoders
CODECS = ("h264", "hevc", "vp8", "vp9")  # PyAV decodes AV1 by libdav1d, which knows no acceleration
# pixel format of the stream -> of its pictures after the download
DOWNLOADED = {"yuv420p": "nv12", "yuvj420p": "nv12", "yuv420p10le": "p010le"}
WARNING = (
    "NVIDIA's decoder hides damage inside pictures, so that it is not noticed; leave `decoder=cuda` out for "
    "sources that may be damaged"
)
_LOGGERS = ("CUDA", "AVHWDeviceContext")  # of FFmpeg, if a GPU doesn't open


def check_decodable(source: str, video: VideoInfo) -> None:
    """Raise OptionError for a codec or pixel format that is not decoded on a GPU here."""
    if video.codec not in CODECS or video.pix_fmt not in DOWNLOADED:
        raise OptionError(
            f"{source}: {video.codec} in {video.pix_fmt}, but `decoder=cuda` is for {', '.join(CODECS)} in "
            f"{', '.join(DOWNLOADED)}; remove the option"
        )


def open_on_gpu(source: str, decoder: str) -> InputContainer:
    """Open a file as `open_input` does, with its video to be decoded on the GPU that `decoder` names: "cuda"
    or "cuda:N".

    FFmpeg falls back to software for what the GPU can't decode, which shows in the pictures' pixel format.
    Raises OptionError if no GPU opens.
    """
    from av import logging as ffmpeg
    from av.codec.hwaccel import HWAccel

    gpu = HWAccel("cuda", decoder.partition(":")[2] or None, allow_software_fallback=True)
    with log_level(ffmpeg.ERROR), ffmpeg.Capture() as messages:
        try:
            return open_input(source, gpu)
        except Exception as error:
            reasons = [text.strip() for _, name, text in messages if name in _LOGGERS]
            if not reasons:
                raise
            raise OptionError(
                f"`decoder=cuda`: no NVIDIA GPU opens here ({reasons[0]}); remove the option"
            ) from error
