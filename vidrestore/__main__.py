"""Run the command `vidrestore` as `python -m vidrestore`."""

from vidrestore.cli import main

if __name__ == "__main__":
    main()
