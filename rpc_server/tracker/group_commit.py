"""Group commit: what many threads changed is flushed to the disk together.

In: a state that is changed under a lock. Out: `settle`, which returns when all that was changed
before it is on the disk. While one thread writes, without the lock, others go on; what they change
meanwhile is the next one's. A flush takes milliseconds, so that one for every change would bound a
farm's decisions to some hundreds a second (DeWitt et al. 1984).
"""

from __future__ import annotations

import sys
import threading

from autotune.errors import ConfigError
from rpc_server.tracker.state import FarmState
from rpc_server.tracker.store import StateStore


class GroupCommit:
    """All methods are called under the lock, which `settle` gives back for a while."""

    def __init__(self, store: StateStore, state: FarmState, lock: threading.Lock) -> None:
        self._store, self._state, self._lock = store, state, lock
        self._written = threading.Condition(lock)
        self._changes = self._on_disk = 0
        """Events that changed something: so far, and of these written."""
        self._writing = False
        self.error = ""
        """Why the last attempt to write failed, '' where it did not."""

    def note(self) -> None:
        """An event has happened; what it changed is to be written."""
        if self._state.changed:
            self._changes += 1

    def settle(self) -> None:
        """Return when all that was changed before is on the disk, or could not be written: serving
        goes on, and what is missing is written with the next change that there is room for."""
        wanted = self._changes
        while self._on_disk < wanted:
            if self._writing:
                self._written.wait()
            else:
                self._write()

    def _write(self) -> None:
        until, changes, error = self._changes, self._store.changes(self._state), ""
        self._writing = True
        self._lock.release()
        try:
            self._store.write(changes)
        except ConfigError as trouble:
            error = str(trouble)
        finally:
            self._lock.acquire()
            self._writing, self._on_disk = False, until
            self._written.notify_all()
        if error:
            self._state.changed |= changes.places
            if not self.error:
                print(f"warning: {error}", file=sys.stderr, flush=True)
        self.error = error
