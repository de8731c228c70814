"""Tonnage with the answer in place of the estimate: everything around the estimate, and only that."""

from benchmarks.servers.question import prebuilt

from tonnage.api.app import create_app
from tonnage.api.server import Server, config_of
from tonnage.api.settings import read_settings
from tonnage.api.sizing import Sizing
from tonnage.catalog import load_catalog

ANSWER = prebuilt()

settings = read_settings()
app = create_app(settings, Sizing(catalog=load_catalog(), estimate=lambda *_, **__: ANSWER))

if __name__ == "__main__":
    Server(config_of(settings, app), app).run()
