"""The modules that a fresh interpreter loads for a command."""

from command_line import python

HEAVY = {"torch", "av", "numpy", "safetensors", "huggingface_hub"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running `code`."""
    report = (
        f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}}, file=sys.stderr)"
    )
    return set(python("-c", report, check=True).stderr.split())


def command(*arguments: str) -> str:
    call = f"from vidrestore.cli import main\ntry:\n    main({list(arguments)!r})\n"
    return call + "except SystemExit as end:\n    assert not end.code, end.code"
