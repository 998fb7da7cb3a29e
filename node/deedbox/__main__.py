"""``python -m deedbox``: the command line."""

from deedbox.cli import main

if __name__ == "__main__":
    main()
