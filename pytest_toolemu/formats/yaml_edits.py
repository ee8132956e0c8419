"""Changes single values in the text of a YAML file; every comment and all other text stay as they are."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import yaml

from pytest_toolemu.formats.yaml_document import Loc, StrictDumper, dump

_WIDE: Final = 10**6


@dataclass(frozen=True)
class YamlText:
    """The text of a file that ``Document`` accepts, so it has no anchors, tags, or second documents."""

    text: str

    def with_value(self, loc: Loc, value: Any, order: Sequence[str] = ()) -> YamlText:
        """Return the text with this value at a location, whose last part is a key.

        A value that exists is replaced; comments inside it move above its key. A missing key is added at the end of
        its mapping, or in the mapping at the top, before the first key that comes later in ``order``.
        """
        parent, key = self._node(loc[:-1]), str(loc[-1])
        if not isinstance(parent, yaml.MappingNode):
            return self.with_value(loc[:-1], {key: value}, order)
        in_flow = self._is_in_flow(loc[:-1])
        for key_node, value_node in parent.value:
            if key_node.value == key:
                return self._replaced(key_node, value_node, value, in_flow=in_flow)
        if in_flow:
            return self._added_in_flow(parent, key, value)
        return self._added_in_block(parent, key, value, order if len(loc) == 1 else ())

    def without(self, loc: Loc) -> YamlText:
        """Return the text without a key of a mapping and its value; in a mapping in braces, the value becomes empty."""
        parent = self._node(loc[:-1])
        if not isinstance(parent, yaml.MappingNode) or self._is_in_flow(loc[:-1]) or len(parent.value) == 1:
            return self.with_value(loc, [])
        key_node, value_node = next(pair for pair in parent.value if pair[0].value == loc[-1])
        end = self._line_end(self._content_end(value_node))
        if key_node is parent.value[0][0]:  # the dash of a list may stand before it
            return self.with_value(loc, [])
        start = self.text.rfind("\n", 0, key_node.start_mark.index) + 1
        kept = "".join(f"{comment}\n" for comment in self._comments(start, end))
        return YamlText(self.text[:start] + kept + self.text[end:].removeprefix("\n"))

    @cached_property
    def comments(self) -> list[str]:
        """All comments of the file, in order."""
        return list(self._comments(0, len(self.text)))

    @cached_property
    def _root(self) -> yaml.Node | None:
        root: yaml.Node | None = yaml.compose(self.text, Loader=yaml.SafeLoader)
        return root

    @cached_property
    def _scalars(self) -> list[tuple[int, int]]:
        """The ranges of all scalars: a ``#`` within one begins no comment."""
        return sorted((node.start_mark.index, node.end_mark.index) for node in _scalars_in(self._root))

    def _node(self, loc: Loc) -> yaml.Node | None:
        node = self._root
        for part in loc:
            if isinstance(node, yaml.MappingNode):
                node = next((value for key, value in node.value if key.value == str(part)), None)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
            else:
                return None
        return node

    def _is_in_flow(self, loc: Loc) -> bool:
        nodes = (self._node(loc[:length]) for length in range(len(loc) + 1))
        return any(isinstance(node, yaml.CollectionNode) and node.flow_style for node in nodes)

    def _replaced(self, key: yaml.Node, value: yaml.Node, new: Any, *, in_flow: bool) -> YamlText:
        start, end = key.start_mark.index, self._content_end(value)
        if in_flow:
            return YamlText(f"{self.text[:start]}{_flow_pair(key.value, new)}{self.text[end:]}")
        column = key.start_mark.column
        kept = "".join(f"{comment}\n{' ' * column}" for comment in self._comments(start, end))
        return YamlText(self.text[:start] + kept + _block(key.value, new, column) + self.text[end:])

    def _added_in_flow(self, parent: yaml.MappingNode, key: str, value: Any) -> YamlText:
        separator = ", " if parent.value else ""
        at = self._content_end(parent.value[-1][1]) if parent.value else parent.start_mark.index + 1
        return YamlText(f"{self.text[:at]}{separator}{_flow_pair(key, value)}{self.text[at:]}")

    def _added_in_block(self, parent: yaml.MappingNode, key: str, value: Any, order: Sequence[str]) -> YamlText:
        column = parent.value[0][0].start_mark.column
        later = order[order.index(key) + 1 :] if key in order else ()
        following = next((node for node, _ in parent.value if node.value in later), None)
        if following is not None and following is not parent.value[0][0]:
            at = self._start_with_comments(following.start_mark.index)
            return YamlText(f"{self.text[:at]}{' ' * column}{_block(key, value, column)}\n{self.text[at:]}")
        at = self._line_end(self._content_end(parent))
        return YamlText(f"{self.text[:at]}\n{' ' * column}{_block(key, value, column)}{self.text[at:] or chr(10)}")

    def _start_with_comments(self, index: int) -> int:
        """Return the start of the line at an index, or of the comments directly above it."""
        start = self.text.rfind("\n", 0, index) + 1
        while start > 0:
            above = self.text.rfind("\n", 0, start - 1) + 1
            if not self.text[above:start].lstrip().startswith("#"):
                break
            start = above
        return start

    def _line_end(self, index: int) -> int:
        end = self.text.find("\n", index)
        return len(self.text) if end < 0 else end

    def _content_end(self, node: yaml.Node) -> int:
        """Return where the text of a node ends, without the comments and empty lines after it."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._content_end(last[1] if isinstance(last, tuple) else last)
        end = int(node.end_mark.index)
        return len(self.text[:end].rstrip()) if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end

    def _comments(self, start: int, end: int) -> Iterator[str]:
        at = self.text.find("#", start, end)
        while at >= 0:
            is_begin = at == 0 or self.text[at - 1] in " \t\n"
            if is_begin and not any(first <= at < last for first, last in self._scalars):
                line_end = min(self._line_end(at), end)
                yield self.text[at:line_end].rstrip()
                at = line_end
            at = self.text.find("#", at + 1, end)


def _scalars_in(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.CollectionNode):
        for part in node.value:
            for each in part if isinstance(part, tuple) else (part,):
                yield from _scalars_in(each)


def _block(key: str, value: Any, column: int) -> str:
    """Return a key with its value in block style; all lines but the first are indented to the column."""
    return f"\n{' ' * column}".join(dump({key: value}).rstrip("\n").split("\n"))


def _flow_pair(key: str, value: Any) -> str:
    """Return a key with its value as in a mapping in braces."""
    stream = io.StringIO()
    yaml.dump(
        {key: value},
        stream,
        Dumper=StrictDumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=True,
        width=_WIDE,
    )
    return stream.getvalue().strip()[1:-1]
