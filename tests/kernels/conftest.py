"""Inputs of kernels, and checks of what they write."""

from tests.helpers.kernel_fixtures import assert_close, assert_reset, inputs  # noqa: F401
