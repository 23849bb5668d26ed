"""Messages of Protocol Buffers, described in Python and kept in a pool of their own.

`protoc` writes modules that register themselves in one pool of the whole process, where two files
that define the same name are an error. A pool of our own leaves those names to who embeds Sluice
beside stubs of the same service. What describes the messages is what reflection shows, too.

Only here and in what describes messages is `google.protobuf` imported: it comes with the extra
`grpc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

__all__ = [
    "DecodeError",
    "Field",
    "MessageClass",
    "Messages",
    "enum",
    "file",
    "known",
    "message",
    "service",
]

MessageClass = Any
"""A class of messages: `FromString(bytes)` raises `DecodeError`; `SerializeToString()` of one.

Its fields are attributes that are made at run time, which no type checker can know.
"""

SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}
"""The types of proto3 that the messages here have fields of."""


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: its number on the wire.
        name: its name.
        type: a word of `SCALARS`, or the full name of a message with a dot before it.
        enum: the full name of an enum with a dot before it; `type` is not said then.
        repeated: whether there may be any number.
        oneof: the name of the group of which only one is set.
    """

    number: int
    name: str
    type: str = ""
    enum: str = ""
    repeated: bool = False
    oneof: str = ""


def enum(name: str, values: Sequence[str]) -> EnumDescriptorProto:
    """An enum whose values are numbered from 0, in order."""
    found = EnumDescriptorProto(name=name)
    for number, value in enumerate(values):
        found.value.add(name=value, number=number)
    return found


def message(
    name: str,
    fields: Iterable[Field] = (),
    *,
    messages: Iterable[DescriptorProto] = (),
    enums: Iterable[EnumDescriptorProto] = (),
) -> DescriptorProto:
    """A message, with the messages and enums that are named inside it."""
    found = DescriptorProto(name=name, nested_type=messages, enum_type=enums)
    oneofs: list[str] = []
    for field in fields:
        described = found.field.add(name=field.name, number=field.number)
        described.label = (
            FieldDescriptorProto.LABEL_REPEATED
            if field.repeated
            else FieldDescriptorProto.LABEL_OPTIONAL
        )
        if field.enum:
            described.type = FieldDescriptorProto.TYPE_ENUM
            described.type_name = field.enum
        elif field.type in SCALARS:
            described.type = SCALARS[field.type]
        else:
            described.type = FieldDescriptorProto.TYPE_MESSAGE
            described.type_name = field.type
        if field.oneof:
            if field.oneof not in oneofs:
                oneofs.append(field.oneof)
                found.oneof_decl.add(name=field.oneof)
            described.oneof_index = oneofs.index(field.oneof)
    return found


def service(name: str, methods: Iterable[tuple[str, str, str]]) -> ServiceDescriptorProto:
    """A service; of each method its name and the full names of what it takes and gives.

    All are of one request and one answer.
    """
    found = ServiceDescriptorProto(name=name)
    for method, takes, gives in methods:
        found.method.add(name=method, input_type=takes, output_type=gives)
    return found


def file(
    name: str,
    *,
    package: str = "",
    imports: Iterable[str] = (),
    messages: Iterable[DescriptorProto] = (),
    enums: Iterable[EnumDescriptorProto] = (),
    services: Iterable[ServiceDescriptorProto] = (),
) -> FileDescriptorProto:
    """A file of proto3, by the name under which others import it."""
    return FileDescriptorProto(
        name=name,
        package=package,
        syntax="proto3",
        dependency=imports,
        message_type=messages,
        enum_type=enums,
        service=services,
    )


def known(module: ModuleType) -> FileDescriptorProto:
    """The file that a module of `protoc` was made from, such as `google.protobuf.struct_pb2`."""
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


class Messages:
    """The messages of some files, in a pool that nobody shares.

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
