"""A command that another distribution could provide."""

import click


@click.command()
@click.option("--name")
def greet(name):
    click.echo(f"hello {name}")
