"""The tasks: `TASKS` has a descriptor of each, from which commands, options and the names of outputs follow.
Add one here, and its restorer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task that restores videos and photographs; the command and the step of `run` have its name.

    name: a verb
    suffix: of its outputs: in.mp4 -> in.SUFFIX.mp4
    removes: what it takes off; empty if it enlarges
    restorer: "module:name" of a function of RestoreOptions, for families of weights without one of their own
    weights: names of its default weights; of several the restorer chooses; empty if it has no network
    help: of its command
    degradations: of training data, that it undoes
    scale: size of its output over that of the source, at most
    has_published: published networks of other authors (`family=spandrel`) do it
    compares_frames: it does nothing to a single picture
    keeps_noise: noise is the same afterwards, so that a later step can take it as measured on the source
    amplifies_loss: a photograph's loss of coding is removed before it, unless a network is named
    advice: the words for someone who sees what it didn't find; keywords in backticks
    """

    name: str
    suffix: str
    removes: str
    restorer: str
    weights: tuple[str, ...]
    help: str
    degradations: tuple[str, ...] = ()
    scale: int = 1
    has_published: bool = True
    compares_frames: bool = False
    keeps_noise: bool = False
    amplifies_loss: bool = False
    advice: str = ""


_ALL = (
    Task(
        "denoise",
        suffix="denoised",
        removes="noise",
        restorer="vidrestore.restorers.denoise:DenoiseRestorer",
        weights=("dust-denoise",),
        help="""Remove noise; everything else stays as it is.

        Examples:
          vidrestore denoise in.mp4                        measure the noise
          vidrestore denoise in.mkv -o out.mkv --sigma 20 --quality best
          vidrestore denoise camera/ -o clean/ --recursive
        """,
        degradations=("noise", "white"),
    ),
    Task(
        "dehaze",
        suffix="dehazed",
        removes="haze",
        restorer="vidrestore.restorers.dehaze:dehazer",
        weights=("mb-taylorformer-h-dehaze",),
        help="""Remove haze; everything else stays as it is.

        Examples:
          vidrestore dehaze in.mp4
          vidrestore dehaze in.mp4 --preview 3s            see before | after first
          vidrestore dehaze view.jpg --haze always         light haze, too
        """,
        degradations=("haze",),
        has_published=False,
        amplifies_loss=True,
        advice="if you see some, use `haze=always`",
    ),
    Task(
        "derain",
        suffix="derained",
        removes="rain",
        restorer="vidrestore.restorers.rain_snow:derainer",
        weights=("mb-taylorformer-h-derain",),
        help="""Remove rain; everything else stays as it is.

        Examples:
          vidrestore derain in.mp4
          vidrestore derain in.mp4 --preview 3s            see before | after first
          vidrestore derain *.mp4 -o dry/
        """,
        degradations=("rain",),
        amplifies_loss=True,
    ),
    Task(
        "desnow",
        suffix="desnowed",
        removes="snow",
        restorer="vidrestore.restorers.rain_snow:desnower",
        weights=("mb-taylorformer-h-desnow",),
        help="""Remove snow; everything else stays as it is.

        Examples:
          vidrestore desnow in.mp4
          vidrestore desnow in.mp4 --preview 3s            see before | after first
          vidrestore desnow *.mp4 -o clear/
        """,
        degradations=("snow",),
        has_published=False,
    ),
    Task(
        "deblur",
        suffix="deblurred",
        removes="blur",
        restorer="vidrestore.restorers.shake:deblurrer",
        weights=("mb-taylorformer-h-deblur",),
        help="""Undo the blur of a shaken camera or a pan; sharp pictures stay as they are.

        Blur that differs too much within a picture is sharpened slightly.

        Examples:
          vidrestore deblur in.mp4
          vidrestore deblur in.mp4 --start 1:30 --duration 10s
          vidrestore deblur in.mp4 --dry-run               encoder, time and size
        """,
        degradations=("blur",),
    ),
    Task(
        "deflicker",
        suffix="deflickered",
        removes="flicker",
        restorer="vidrestore.restorers.flicker:FlickerRestorer",
        weights=(),
        help="""Even out brightness that jumps from frame to frame, in old films and time-lapses.

        Fades, flashes and lamps stay.

        Examples:
          vidrestore deflicker in.mp4
          vidrestore deflicker in.mp4 --preview 3s         see before | after first
          vidrestore run film.mov --steps deflicker,dedust,denoise
        """,
        has_published=False,
        compares_frames=True,
        keeps_noise=True,
    ),
    Task(
        "dedust",
        suffix="dedusted",
        removes="dust",
        restorer="vidrestore.restorers.specks:SpeckRestorer",
        weights=(),
        help="""Remove dust, hairs and specks that last one frame, as on scanned films.

        Video with few of them, rain, snow and sparks stay as they are.

        Examples:
          vidrestore dedust in.mp4
          vidrestore dedust in.mp4 --preview 3s            see before | after first
          vidrestore run film.mov --steps deflicker,dedust,denoise
        """,
        has_published=False,
        compares_frames=True,
        keeps_noise=True,
    ),
    Task(
        "sr",
        suffix="x4",
        removes="",
        restorer="vidrestore.restorers.vsr_restorer:VsrRestorer",
        weights=("vsr-transformer-n-practical-x4", "vsr-transformer-n-x4"),
        help="""Make videos four times larger, with detail from neighbouring frames.

        Examples:
          vidrestore sr in.mp4
          vidrestore sr in.mp4 --preview 2s                see before | after first
          vidrestore sr in.mp4 --encoder libx265 --crf 20 -o large.mkv
        """,
        scale=4,
    ),
)
TASKS = {task.name: task for task in _ALL}
