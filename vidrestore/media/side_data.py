"""Side data of frames that is lost when they are encoded again, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vidrestore.media.probe import VideoInfo

# FFmpeg's names of side data -> ours. Not here: what the writer carries over itself, an encoder's note on its
# settings, film grain that the decoder has already drawn, the time codes that every MPEG-2 stream has.
_LOST = {
    "A53_CC": "closed captions",
    "DYNAMIC_HDR_PLUS": "HDR10+",
    "DYNAMIC_HDR_VIVID": "HDR Vivid",
    "DOVI_RPU_BUFFER": "Dolby Vision",
    "DOVI_METADATA": "Dolby Vision",
    "AMBIENT_VIEWING_ENVIRONMENT": "the ambient viewing environment",
    "ICC_PROFILE": "an ICC profile",
    "EXIF": "notes of the camera (EXIF)",
    "STEREO3D": "the stereo 3D layout",
    "SPHERICAL": "the spherical projection",
    "AFD": "the active format description",
    "PANSCAN": "pan and scan",
    "S12M_TIMECODE": "time codes",
    "ALPHA_LAYER": "the transparency of VP8 or VP9",
}


def lost_side_data(video: VideoInfo) -> str | None:
    """A sentence that names what of the first frames' side data no encoder will write; None if there is
    nothing of the kind.
    """
    lost = sorted({_LOST[name] for name in video.side_data if name in _LOST})
    return f"the video carries {', '.join(lost)}, which encoding it again leaves out" if lost else None
