"""Bytes within a message (images, sounds, files) -> a note of their type and size."""

from __future__ import annotations

from collections.abc import Mapping

_ENOUGH_BYTES = 64
"""Shorter texts are no images, whatever they are called."""


def noted(part: Mapping[str, object]) -> Mapping[str, object]:
    """A part with its bytes replaced by their type and size; as it is when it holds none."""
    found = _bytes_in(part, 0)
    if found is None:
        return part
    media_type, size = found
    kind = part.get("type")
    family = media_type.partition("/")[0] if media_type else None
    if family not in ("image", "audio", "video"):
        family = next((name for name in ("image", "audio", "video") if name in str(kind)), "file")
    return {"type": family, "media_type": media_type, "bytes": size}


def _bytes_in(value: object, depth: int) -> tuple[str | None, int] | None:
    """Media type and number of the bytes in a part."""
    if not isinstance(value, dict) or depth > 3:
        return None
    media_type = next(
        (value[k] for k in ("media_type", "mime_type", "mimeType", "mediaType") if isinstance(value.get(k), str)), None
    )
    for key, inner in value.items():
        if isinstance(inner, dict):
            if found := _bytes_in(inner, depth + 1):
                return found[0] or media_type, found[1]
        elif isinstance(inner, str) and len(inner) >= _ENOUGH_BYTES:
            if inner.startswith("data:"):
                head, comma, body = inner.partition(",")
                if comma:
                    return head[5:].partition(";")[0] or media_type, _decoded(body, ";base64" in head)
            elif (
                key in ("data", "content", "bytes", "image", "file_data", "b64_json", "source")
                and " " not in inner[:256]
            ):
                return media_type, _decoded(inner, base64=True)
    return None


def _decoded(body: str, base64: bool) -> int:
    return len(body) * 3 // 4 - body[-2:].count("=") if base64 else len(body)
