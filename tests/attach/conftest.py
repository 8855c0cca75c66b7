"""The fixtures of this room."""

from tests.helpers.sockets import socket_folder

__all__ = ["socket_folder"]
