"""`python -m vidrestore` is the command `vidrestore`."""

from vidrestore.cli import main

if __name__ == "__main__":
    main()
