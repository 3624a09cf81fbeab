"""A relay that records, for tests of replays. In: a port of this machine. Out: another one."""

from __future__ import annotations

import socket
import threading

from tests.patience import PATIENCE_S


class Recorder:
    """A relay that keeps what a client sends."""

    def __init__(self, port: int) -> None:
        self.sent: list[bytes] = []
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            back = threading.Thread(target=self._pump, args=(server, client, None))
            back.start()
            self._pump(client, server, self.sent)
            back.join()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, kept: list[bytes] | None) -> None:
        try:
            while data := source.recv(65536):
                if kept is not None:
                    kept.append(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other side is gone, and so is the link

    def close(self) -> None:
        self._listener.close()
        self._thread.join(timeout=PATIENCE_S)
