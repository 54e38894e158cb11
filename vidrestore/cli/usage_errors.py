"""What a wrong command line gets: one line that leads on to what was meant."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from vidrestore.settings.options import RestoreOptions, declared
from vidrestore.settings.tasks import TASKS


def _words(meanings: dict[str, str]) -> dict[str, str]:
    """Return the meaning of each of the words that are the keys, with blanks between them."""
    return {
        word: meaning for words, meaning in meanings.items() for word in words.split()
    }


# what others call commands, and what to type instead
COMMANDS_BY_WORD = _words(
    {
        "upscale upscaler upscayl enlarge superres super-resolution realesrgan esrgan resize": "sr",
        "download fetch get": "weights pull",
        "clean cleanup degrain noise": "denoise",
        "restore enhance improve remaster repair fix auto tape vhs film": "suggest IN, for commands to try",
        "deinterlace detelecine": "denoise IN, which makes whole frames of fields",
        "sharpen sharp unblur": "deblur",
        "defog": "dehaze",
        "models model list-models": "weights list",
        "list-devices gpu gpus": "devices",
        "info probe analyze analyse": "inspect",
        "check validate": "verify",
        "compare metrics psnr": "eval --reference",
        "preview": "denoise IN --preview 5s",
        "version": "--version",
        "interpolate": "sr for more pixels; there is no command for more frames",
    }
)
# what others call options; of several, the first that the command has
OPTIONS = _words(
    {
        "--gpu --cuda -gpu -g --gpu-id -d": "--device cuda",
        "--bitrate --quality-factor -b --bit-rate -q:v -b:v -qp": "--crf 16",
        "--codec --vcodec --video-codec -vcodec -c:v --enc": "--encoder libx265",
        "-s --noise --level --noise-level --denoise": "--sigma 20 | --scale 2",
        "--factor --upscale --outscale": "--scale 2",
        "--width --resolution --size": "--height 1080",
        "--fp16 --half --bf16 --float16 --amp --fp32": "--precision bf16",
        "--no-sound --no-audio -an --mute": "--drop audio",
        "--no-subs --no-subtitles -sn": "--drop subtitles",
        "-r --subfolders": "--recursive",
        "--force -f": "--overwrite",
        "--outdir --output-dir --out --output-file --dest": "-o OUT",
        "-m --weights --network --checkpoint": "--model NAME",
        "-ss --from --begin": "--start 1m30s",
        "-t --length --seconds": "--duration 5s",
        "-j --jobs --cpu --cores": "--threads 4",
        "--tile-size --tilesize": "--tile 512",
        "--blend --amount --mix": "--strength 0.5",
        "--sample --test --demo": "--preview 5s",
        "--silent --loglevel": "--quiet",
        "--log --debug": "--verbose",
        "--framerate --rate": "--fps 25",
        "--simulate --dryrun": "--dry-run",
    }
)
# what needs no option, or another way, in a command that restores
ADVICE = _words(
    {
        "--format --container --ext --extension": "the name says it, as in -o out.mp4",
        "--deinterlace --yadif --bwdif --interlaced": "fields become whole frames without an option; "
        "--double-rate gives a frame for each, --scan forces it",
        "--resume --continue": "the same command resumes",
        "--version": "it comes first, as in vidrestore --version",
        "--input -i --in": "inputs need no option, as in vidrestore {command} in.mp4",
        "--copy --keep-audio --acodec -c:a --audio-codec": "sound and subtitles are copied without an option",
        "--to": "--duration is the length from --start",
    }
)


def usage_line(error: Any, arguments: Sequence[str] = ()) -> str:
    """Return Typer's sentence for a wrong command line, and where help is; empty if help was printed."""
    text = (
        error.format_message()
        .removeprefix("Invalid value: ")
        .replace("Value error, ", "")
        .rstrip(".?")
    )
    if not text.strip():
        return ""
    # a file, a word of other programs, or a mistake
    unknown = re.match("No such command '([^']*)'", text)
    if unknown and os.path.exists(unknown[1]):
        command = shlex.join(["vidrestore", "denoise", unknown[1]])
        return f"{unknown[1]} is no command; name the command first, such as {command}"
    if unknown and (suggestion := COMMANDS_BY_WORD.get(unknown[1].lower())):
        text = f"No such command '{unknown[1]}'; here it is {suggestion}"
    # the command in whose help the option is explained
    context, words = getattr(error, "ctx", None), list[str]()
    text = _better_hint(text, context, arguments) + _origin(error)
    while context is not None and context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    # the parser failed before there was one
    if context is None and arguments[:1] and arguments[0] in TASKS:
        words = [arguments[0]]
    return f"{text}; see {' '.join(['vidrestore', *words])} --help"


def _better_hint(text: str, context: Any, arguments: Sequence[str]) -> str:
    """Return Typer's sentence, with a better guess at what was meant if there is one."""
    unknown = re.match(r"No such option: (-\S+)", text)
    files = [name for name in arguments if os.path.isfile(name)]
    if context is not None and text == "Missing option '--config'" and files:
        return f"{text}: name the file by it, as in --config {shlex.quote(files[0])}"
    if unknown is None or context is None:
        return text
    # of "-crf", the parser names "-c"
    longer = (
        text
        for text in arguments
        if re.match(f"{re.escape(unknown[1])}[a-z:0-9]", text)
    )
    token = next(longer, unknown[1]).partition("=")[0]
    if len(unknown[1]) == 2 and token != unknown[1] and os.path.exists(token):
        return f"{token}: a name that begins with a dash looks like an option; write it as ./{token}"
    # by what other programs call it, or a task that has it
    options = {
        option for parameter in context.command.params for option in parameter.opts
    }
    for word in (token, unknown[1]):
        if meaning := _meaning(word, options, str(context.info_name)):
            return meaning
    return text


def _meaning(word: str, options: Iterable[str], command: str) -> str | None:
    """Return a sentence on what is meant by an option that a command lacks; None if that isn't known."""
    # no option at all, one of this command, or one of another
    if command in (*TASKS, "run") and word in ADVICE:
        return f"{word}: {ADVICE[word].format(command=command)}"
    candidates = [*OPTIONS.get(word, "").split(" | "), f"-{word}", word.lower()]
    for candidate in candidates:
        if candidate and candidate.split()[0] in options:
            return f"No such option: {word}; here it is {candidate}"
    name = "scale" if word.startswith("-x") else word.lstrip("-").replace("-", "_")
    option = declared(RestoreOptions).get(name)
    if option is None or not option.about or not (tasks := sorted(option.about.tasks)):
        return None
    both = (
        f"; both in one go: vidrestore run IN --steps {command},sr"
        if name == "scale" and command in TASKS
        else ""
    )
    return f"No such option: {word}, which is for {', '.join(tasks)}{both}"


def _origin(error: Any) -> str:
    """Return in words where a wrong value comes from, if not from the command line."""
    # the command line, a variable, or the user's file
    parameter = getattr(error, "param", None)
    if parameter is None or error.ctx is None:
        return ""
    source = error.ctx.get_parameter_source(parameter.name)
    if source is not None and source.name == "ENVIRONMENT":
        return f" (from {parameter.envvar})"
    from_table = source is not None and source.name == "DEFAULT_MAP"
    return " (see `vidrestore config`)" if from_table else ""
