"""Read a YAML file, and name the file, the line and the key path in its errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yaml import MappingNode, Node

KeyPath = tuple[str | int, ...]
"""Names of keys and positions in lists, from the top of a file to a value."""


class InvalidDeclaration(ValueError):
    """A value of a file is wrong.

    Args:
        path: keys and positions from the top of the file to the value.
        problem: what is wrong, without the path.
    """

    def __init__(self, path: KeyPath, problem: object) -> None:
        self.path: Final = path
        self.problem: Final = str(problem)
        super().__init__(f"{path_text(path)}: {problem}" if path else self.problem)


class YamlFile:
    """The content of a YAML file, with the lines of its keys.

    Raises:
        ValueError: the file is not YAML, or a mapping has a key twice.
    """

    def __init__(self, file: IO[str]) -> None:
        import yaml

        self._name = file.name
        try:
            loader = yaml.SafeLoader(file)
            self._top: Final[Node | None] = loader.get_single_node()
            if self._top is not None:
                _check_keys(self._top, (), set())
            has_content = self._top is not None
            self.content: Final[Any] = loader.construct_document(self._top) if has_content else None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
            raise ValueError(f"{self._name}:{line}: not YAML: {error.problem}") from None
        except yaml.YAMLError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"{self._name}:1: not YAML: {text}") from None
        except InvalidDeclaration as error:
            raise self._located(error) from None
        except (ValueError, RecursionError) as error:  # a malformed scalar, text or nesting
            raise ValueError(f"{self._name}: not YAML: {error}") from None

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Turn each `InvalidDeclaration` of the block into an error with the file and the line.

        Raises:
            ValueError: the text is like "file.yaml:12: tubes[0].ttr: ...".
        """
        try:
            yield
        except InvalidDeclaration as error:
            raise self._located(error) from None

    def _located(self, error: InvalidDeclaration) -> ValueError:
        return ValueError(f"{self._name}:{self._line_of(error.path)}: {error}")

    def _line_of(self, path: KeyPath) -> int:
        """Return the line, from 1, of the deepest key or list element of a path in the file."""
        from yaml import MappingNode, SequenceNode

        line, node = 1, self._top
        for part in path:
            if isinstance(node, MappingNode):
                # After the construction of a mapping, its own keys stand behind those of "<<".
                pairs = [pair for pair in node.value if pair[0].value == str(part)]
                if not pairs:
                    break
                key, node = pairs[-1]
                line = key.start_mark.line + 1
            elif isinstance(node, SequenceNode) and part in range(len(node.value)):
                node = node.value[int(part)]
                line = node.start_mark.line + 1
            else:
                break
        return line


def _check_keys(node: Node, path: KeyPath, checked: set[int]) -> None:
    """Check that no mapping has a key twice: the parser would keep the last one silently.

    Args:
        node: a value of the file.
        path: the path of the value.
        checked: ids of the nodes that were checked; an alias has the node of its anchor.
    """
    from yaml import MappingNode, SequenceNode

    if id(node) in checked:
        return
    checked.add(id(node))
    if isinstance(node, MappingNode):
        _check_mapping(node, path)
        for key, value in node.value:
            _check_keys(value, (*path, str(key.value)), checked)
    elif isinstance(node, SequenceNode):
        for position, value in enumerate(node.value):
            _check_keys(value, (*path, position), checked)


def _check_mapping(node: MappingNode, path: KeyPath) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if str(key.value) in seen and key.value != "<<":
            raise InvalidDeclaration((*path, str(key.value)), "the key stands twice in its mapping")
        seen.add(str(key.value))


def path_text(path: KeyPath) -> str:
    """Return a path like "tubes[0].retry.backoff"."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
