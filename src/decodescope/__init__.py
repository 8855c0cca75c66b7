"""decodescope: where one LLM decode step loses its time, and did your change win it back?"""

__version__ = "0.1.0"
