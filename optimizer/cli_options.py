"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

home_option = click.option(
    "--home",
    type=FOLDER,
    envvar="RETROUTE_HOME",
    default=Path("retroute-home"),
    show_default="RETROUTE_HOME or ./retroute-home",
    help="Folder that holds everything.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
services_option = click.option(
    "--service", "services", multiple=True, metavar="NAME", help="Only this service; may be repeated. [default: all]"
)
