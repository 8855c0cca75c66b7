"""The version, for every room: what `decodescope` itself imports may not import it."""

__version__ = "0.1.0"
