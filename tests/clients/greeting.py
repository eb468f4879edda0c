"""A command as another distribution would bring it."""

import click


@click.command()
@click.option("--name")
def greet(name):
    click.echo(f"hello {name}")
