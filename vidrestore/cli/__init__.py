"""The `vidrestore` command.

    main(["denoise", "in.mp4", "--sigma", "20"])  # prints, and exits with the command's code

The interface is `main`. `app` holds the commands, each in the module of its name.
"""

from vidrestore.cli.app import main

__all__ = ["main"]
