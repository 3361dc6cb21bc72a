"""Learning When Experts Disagree: the library behind the book. Nothing happens at import."""

__version__ = "0.1.0"
