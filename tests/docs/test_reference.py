"""The generated reference describes every key of the files that people write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from pytest_toolemu.analysis.gates.gate_file import Gates
from pytest_toolemu.core.case import Case, Dataset
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.models.pricing import PriceFile
from pytest_toolemu.settings.option_table import OPTIONS


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)
    for part in get_args(annotation):
        yield from models(part)


@pytest.mark.parametrize("root", [Case, Toolkit, Gates, Dataset, PriceFile])
def test_every_key_has_a_description(root: type[BaseModel]) -> None:
    described = {
        f"{model.__name__}.{name}": field.description
        for model in models(root)
        for name, field in model.model_fields.items()
        if not field.exclude
    }
    assert [name for name, text in described.items() if not text] == []


def test_every_option_has_a_description() -> None:
    assert [option.option for option in OPTIONS if not option.help] == []
