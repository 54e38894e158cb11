"""Options that several commands share: each is declared once, so that it reads the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print events as JSON, one per line, on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress; errors are still shown.")]
