"""A toolkit with declared data, as text, and worlds of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_toolemu.core.case import User
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, planned
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import WorldBeginning
from pytest_toolemu.formats.yaml_document import Document

LIBRARY = """\
name: Library
title: Library
category: culture
description: The books of a library and its loans.
entities:
  book:
    key: book_id
    like: SearchBooks.books
    unique: [isbn]
    check: ["copies >= 0"]
    order: title
    id: "B-###"
  loan:
    key: loan_id
    like: LendBook
    fields: {reader: {type: string}}
    refs: {book_id: book}
tools:
  - name: SearchBooks
    description: Search the books.
    parameters:
      type: object
      properties:
        text: {type: string}
        language: {type: string}
        limit: {type: integer, default: 2}
        offset: {type: integer}
    returns:
      type: object
      properties:
        books:
          type: array
          items:
            type: object
            properties:
              book_id: {type: string}
              isbn: {type: string}
              title: {type: string}
              language: {type: string}
              tags: {type: array, items: {type: string}}
              lendable: {type: boolean}
              copies: {type: integer}
            required: [book_id, isbn, title, language, tags, lendable, copies]
        more: {type: boolean}
        total: {type: integer}
      required: [books, more, total]
    effect: read
    operation:
      search: book
      where: {text: "has(:text, title, tags)"}
  - name: GetBook
    description: Return one book.
    parameters: {type: object, properties: {book_id: {type: string}}, required: [book_id]}
    returns:
      type: object
      properties:
        title: {type: string}
        tags: {type: array, items: {type: string}}
        lendable: {type: boolean}
        loans: {type: integer}
      required: [title, tags, lendable, loans]
    errors: {NotFound: The book is unknown.}
    effect: read
    operation:
      get: book
      show: {loans: "SELECT count(*) FROM loan l WHERE l.book_id = :book_id"}
  - name: AddBook
    description: Add a book.
    parameters:
      type: object
      properties:
        isbn: {type: string}
        title: {type: string}
        language: {type: string, default: en}
        tags: {type: array, items: {type: string}}
        copies: {type: integer, default: 1}
      required: [isbn, title]
    returns:
      type: object
      properties:
        book_id: {type: string}
        title: {type: string}
        status: {type: string, enum: [added]}
      required: [book_id, title, status]
    errors: {Conflict: Another book has the ISBN., InvalidRequest: The values are not possible.}
    effect: write
    operation:
      create: book
      set: {tags: "coalesce(:tags, '[]')", lendable: true}
  - name: UpdateBook
    description: Change a book.
    parameters:
      type: object
      properties: {book_id: {type: string}, title: {type: string}, lendable: {type: boolean}, copies: {type: integer}}
      required: [book_id]
    returns:
      type: object
      properties: {book_id: {type: string}, title: {type: string}}
      required: [book_id, title]
    errors: {NotFound: The book is unknown., Conflict: The values are not possible.}
    effect: write
    operation: {update: book}
  - name: RemoveBooks
    description: Remove several books, or none.
    parameters:
      type: object
      properties: {book_ids: {type: array, items: {type: string}}}
      required: [book_ids]
    returns: {type: object, properties: {removed: {type: integer}}, required: [removed]}
    errors:
      NotFound: A book is unknown.
      Conflict: A book is lent.
    effect: destructive
    operation:
      delete: book
      key: book_ids
      fail: {Conflict: "EXISTS (SELECT 1 FROM loan l WHERE l.book_id = :book_ids)"}
      show: {removed: ":count"}
  - name: LendBook
    description: Lend a book to a reader.
    parameters:
      type: object
      properties: {book_id: {type: string}, reader: {type: string}, days: {type: integer, default: 28}}
      required: [book_id, reader]
    returns:
      type: object
      properties:
        loan_id: {type: string}
        book_id: {type: string}
        due_on: {type: string, format: date}
      required: [loan_id, book_id, due_on]
    errors:
      NotFound: The book is unknown.
      NotLendable: The book is not lent, or no copy is left.
    effect: irreversible
    operation:
      create: loan
      find: {book_id: book}
      fail:
        NotLendable:
          - {when: NOT book.lendable, say: This book stays in the library.}
          - {when: book.copies = 0, say: No copy is left.}
      set: {due_on: "date(:today, '+' || :days || ' days')"}
      then: ["UPDATE book SET copies = copies - 1 WHERE book_id = :book_id"]
  - name: DescribeBook
    description: Describe a book in words.
    parameters: {type: object, properties: {book_id: {type: string}}, required: [book_id]}
    returns: {type: object, properties: {text: {type: string}}, required: [text]}
    errors: {NotFound: The book is unknown.}
    effect: read
"""

ATLAS = {
    "book_id": "B-1",
    "isbn": "111",
    "title": "Atlas of Águilas",
    "language": "es",
    "tags": ["maps"],
    "lendable": False,
    "copies": 1,
}
NOVEL = {
    "book_id": "B-2",
    "isbn": "222",
    "title": "The Last Tram",
    "language": "en",
    "tags": ["novel", "night"],
    "lendable": True,
    "copies": 1,
}
POEMS = {
    "book_id": "B-3",
    "isbn": "333",
    "title": "Night Poems",
    "language": "en",
    "tags": [],
    "lendable": True,
    "copies": 0,
}
ROWS: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]] = {"Library": {"book": [ATLAS, NOVEL, POEMS]}}


def toolkit_of(text: str = LIBRARY) -> Toolkit:
    """Return the toolkit in a text."""
    return Document.parse(text, Path("Library.toolkit.yaml")).build(Toolkit)


@functools.cache
def plan_of_text(text: str) -> ToolkitPlan:
    """Return the plan of the toolkit in a text, whose declarations must be valid."""
    plan, problems = planned(toolkit_of(text))
    assert problems == []
    return plan


def world_of(
    text: str = LIBRARY,
    rows: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]] = ROWS,
    ids: Mapping[str, Sequence[Any]] | None = None,
) -> World:
    """Return a world of the toolkit in a text, whose declarations must be valid."""
    plan = plan_of_text(text)
    now = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
    user = User(name="Ada Lovelace", email="ada@example.org")
    return World(WorldBeginning({"Library": plan}, rows), ids=ids or {}, user=user, now=now, seed="a-case")
