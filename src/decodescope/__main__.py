"""`python -m decodescope` is the `decodescope` command."""

from decodescope.cli.main import main

if __name__ == "__main__":
    main()
