"""The runner of any device, near or far.

In: 'local', 'rpc://HOST:PORT' or 'tracker://HOST:PORT/KEY', and how a farm is used. Out: a Runner.
"""

from __future__ import annotations

from pathlib import Path

from autotune.errors import ConfigError, DeviceError
from autotune.measure.builds import ExecutorBuilds
from autotune.measure.runners import open_runner
from autotune.measure.types import Runner
from autotune.target import Target
from rpc_server.board.objects import HostBuilds
from rpc_server.client.board_runner import RpcRunner
from rpc_server.client.farm_runner import FarmRunner
from rpc_server.client.options import FarmOptions
from rpc_server.security.tls import Credentials

__all__ = ["FarmOptions", "runner_for"]


def runner_for(
    device: str,
    target: Target,
    *,
    cache_dir: Path | None = None,
    certs: Path | None = None,
    build: str = "board",
    farm: FarmOptions | None = None,
    builds: ExecutorBuilds | None = None,
) -> Runner:
    """The runner of 'local', 'rpc://HOST:PORT' or 'tracker://HOST:PORT/KEY'. `certs`: folder of
    this client's certificate. `build`: 'board', or 'host' to build here and send object code.
    `farm`: how a farm's boards are used. `builds`: where this host has its building done, if not
    here. Raises DeviceError, and ConfigError for what is not one of these."""
    if build not in ("board", "host"):
        raise ConfigError(f"build is 'board' or 'host', got {build!r}")
    credentials = Credentials(certs) if certs else None
    if device.startswith("tracker://"):
        farm = farm or FarmOptions()
        many = FarmRunner(
            device,
            threads=target.threads,
            farm=farm,
            credentials=credentials,
            in_order=build == "host",
        )
        return HostBuilds(many, builds=builds, boards=farm.boards) if build == "host" else many
    if device.startswith("rpc://"):
        runner = RpcRunner(device, threads=target.threads, credentials=credentials)
        return HostBuilds(runner, builds=builds) if build == "host" else runner
    if device == "local":
        return open_runner(device, target, cache_dir=cache_dir, builds=builds)
    raise DeviceError(
        f"expected the device local, rpc://HOST:PORT or tracker://HOST:PORT/KEY, got {device!r}"
    )
