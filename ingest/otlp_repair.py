"""Replace what is not UTF-8 in the texts of a protobuf message.

A client that cuts a text in the middle of a character would otherwise lose its whole batch. The message is parsed once
more by twins of its classes in which every text is bytes, mended, and serialised again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def repair(body: bytes, descriptor: Descriptor) -> tuple[bytes, int]:
    """The message with replacement characters in its bad texts, and how many texts that were.

    Raises protobuf's DecodeError when the body is broken in another way.
    """
    message = _twin(descriptor).FromString(body)
    texts = _mend(message, descriptor)
    return message.SerializeToString(), texts


@cache
def _twin(descriptor: Descriptor) -> type[Message]:
    pool = DescriptorPool()
    added: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        _texts_to_bytes(copy.message_type)
        pool.Add(copy)

    add(descriptor.file)
    return GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name))


def _texts_to_bytes(messages: Iterable[DescriptorProto]) -> None:
    for message in messages:
        for field in message.field:
            if field.type == FieldDescriptorProto.TYPE_STRING:
                field.type = FieldDescriptorProto.TYPE_BYTES
        _texts_to_bytes(message.nested_type)


def _mend(message: Any, original: Descriptor) -> int:
    count = 0
    for field, value in message.ListFields():
        twin = original.fields_by_number[field.number]
        repeated = isinstance(value, Iterable) and not isinstance(value, bytes)
        if twin.message_type is not None:
            for item in value if repeated else [value]:
                count += _mend(item, twin.message_type)
        elif twin.type == FieldDescriptor.TYPE_STRING:
            mended = [_text(text) for text in (value if repeated else [value])]
            bad = sum(text is not None for text in mended)
            if bad and repeated:
                value[:] = [new if new is not None else old for old, new in zip(value, mended, strict=True)]
            elif bad:
                setattr(message, field.name, mended[0])
            count += bad
    return count


def _text(raw: bytes) -> bytes | None:
    """`raw` made UTF-8; None when it is already."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors="replace").encode()
    return None
