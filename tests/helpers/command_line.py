"""The command in this process."""

import pytest

from vidrestore.cli import main


def run(*arguments: object) -> int:
    """Return the exit code of `vidrestore ARGUMENTS`."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return int(end.value.code or 0)
