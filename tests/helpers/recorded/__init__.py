"""Steps that were recorded on a GPU, for tests of what names alone say."""
