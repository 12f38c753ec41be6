"""The commands of the server's image: `install-guard`, `fetch-model` and `sidecar`; `--help` says more."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

import aiohttp
from aiohttp import web
from whetstone_api.pod_state import SIDECAR_PORT
from whetstone_artifacts.reporting import Reporter

from whetstone_server.engine import Engine
from whetstone_server.fetch_model import fetch_base_model
from whetstone_server.install import install_guard
from whetstone_server.settings import Settings, read_settings
from whetstone_server.sidecar import Sidecar
from whetstone_server.web import make_app

REPORT_INTERVAL_SECONDS = 0.2
"""Changes of a pod are rare, and each should reach the operator at once."""


async def serve(settings: Settings) -> None:
    """Run the sidecar until SIGTERM."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    reporter = None
    if settings.report_url:
        reporter = Reporter(
            url=settings.report_url,
            token_path=settings.report_token_file,
            interval_seconds=REPORT_INTERVAL_SECONDS,
        )
    async with aiohttp.ClientSession() as session:
        sidecar = Sidecar(engine=Engine(session, settings), settings=settings, reporter=reporter)
        runner = web.AppRunner(make_app(sidecar, settings), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, host=settings.host or None, port=SIDECAR_PORT).start()
        loop = asyncio.create_task(sidecar.run())
        await stopping.wait()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await sidecar.stop()
        await runner.cleanup()


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="whetstone_server", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install-guard", help="copy the guard into a folder for the engine's PYTHONPATH")
    install.add_argument("target", type=Path)
    fetch = commands.add_parser("fetch-model", help="fetch a base model into a volume, unless it is there")
    fetch.add_argument("--uri", required=True)
    fetch.add_argument("--root", type=Path, required=True)
    fetch.add_argument("--digest")
    fetch.add_argument("--secret", type=Path)
    commands.add_parser("sidecar", help="keep the engine of this pod at its desired state")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if parsed.command == "install-guard":
        install_guard(parsed.target)
    elif parsed.command == "fetch-model":
        sys.exit(fetch_base_model(parsed.uri, parsed.root, digest=parsed.digest, secret=parsed.secret))
    else:
        asyncio.run(serve(read_settings()))


if __name__ == "__main__":
    main()
