"""uvicorn's HTTP protocol, without its copies of a body."""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Protocol(HttpToolsProtocol):
    """Hands each part of a body to the application as it was read.

    uvicorn appends it to a buffer first and copies that for the application: of the processor time that it takes to
    receive a body of 2 MB, a quarter.
    """

    def on_body(self, body: bytes) -> None:
        """Called by the parser with the next part of the body."""
        cycle = self.cycle
        if cycle.response_complete:
            return
        waiting = cycle.body  # empty unless the application has not come round to the part before
        cycle.body = waiting + body if waiting else body  # type: ignore[assignment]  # `bytes` of bytes copies nothing
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()
