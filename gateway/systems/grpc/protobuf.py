"""Protocol Buffers messages, in a descriptor pool of their own.

`protoc` generates modules that register themselves in one pool of the whole process, where two
files that define the same name are an error. A separate pool leaves those names to applications
that embed Sluice next to stubs of the same service. So `protoc` generates descriptor sets here
(`make protos`), which are next to their `.proto` files. Reflection serves the same sets.

Only this module and those that describe messages import `google.protobuf`: it comes with the extra
`grpc`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from types import ModuleType
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

__all__ = ["DecodeError", "MessageClass", "Messages", "known", "pool_of", "read_files"]

MessageClass = Any
"""A message class: `FromString(bytes)` raises `DecodeError`; instances have `SerializeToString()`.

Its fields are attributes that are created at run time, which type checkers cannot know.
"""


def read_files(package: str, name: str) -> tuple[FileDescriptorProto, ...]:
    """Return the files of a descriptor set in `protos` of a package."""
    data = resources.files(package).joinpath("protos", name).read_bytes()
    return tuple(FileDescriptorSet.FromString(data).file)


def known(module: ModuleType) -> FileDescriptorProto:
    """Return the file of a `protoc` module, such as `google.protobuf.struct_pb2`."""
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


class Messages:
    """The messages of some files, in a pool of their own.

    Args:
        files: each file comes after those that it imports.

    Attributes:
        files: the same.

    Raises:
        TypeError: they contradict each other, or a name is not defined.
    """

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self.files: Final = tuple(files)
        self._pool = pool_of(self.files)

    def __getitem__(self, name: str) -> MessageClass:
        """Return the class of the message of this full name.

        Raises:
            KeyError: there is none.
        """
        return GetMessageClass(self._pool.FindMessageTypeByName(name))


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """Return a new pool with some files; duplicates are added once."""
    pool = DescriptorPool()
    for name, described in {one.name: one for one in files}.items():
        pool.AddSerializedFile(described.SerializeToString())
        pool.FindFileByName(name)
    return pool
