"""python -m fullrank is the fullrank command."""

from fullrank.cli import main

if __name__ == "__main__":
    main()
