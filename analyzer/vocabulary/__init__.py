"""The words, colours and characters that all outputs share."""
