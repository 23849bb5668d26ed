"""Messages of Protocol Buffers, in a pool of their own.

`protoc` writes modules that register themselves in one pool of the whole process, where two files
that define the same name are an error. A pool of our own leaves those names to who embeds Sluice
beside stubs of the same service. So what `protoc` makes here (`make protos`) are descriptor sets,
which lie beside their `.proto` files. Reflection shows the same.

Only here and in what describes messages is `google.protobuf` imported: it comes with the extra
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
"""A class of messages: `FromString(bytes)` raises `DecodeError`; `SerializeToString()` of one.

Its fields are attributes that are made at run time, which no type checker can know.
"""


def read_files(package: str, name: str) -> tuple[FileDescriptorProto, ...]:
    """The files of a descriptor set that lies in `protos` of a package."""
    data = resources.files(package).joinpath("protos", name).read_bytes()
    return tuple(FileDescriptorSet.FromString(data).file)


def known(module: ModuleType) -> FileDescriptorProto:
    """The file that a module of `protoc` was made from, such as `google.protobuf.struct_pb2`."""
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


class Messages:
    """The messages of some files, in a pool of their own.

    Args:
        files: a file comes after those that it imports.

    Attributes:
        files: the same.

    Raises:
        TypeError: they contradict each other, or something that is named is not there.
    """

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self.files: Final = tuple(files)
        self._pool = pool_of(self.files)

    def __getitem__(self, name: str) -> MessageClass:
        """The class of the message of that full name.

        Raises:
            KeyError: there is none.
        """
        return GetMessageClass(self._pool.FindMessageTypeByName(name))


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """A new pool with some files; one that is given twice is taken once."""
    pool = DescriptorPool()
    for name, described in {one.name: one for one in files}.items():
        pool.AddSerializedFile(described.SerializeToString())
        pool.FindFileByName(name)
    return pool
