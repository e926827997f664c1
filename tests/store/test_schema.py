"""The models say what the tables are."""

from __future__ import annotations

from pathlib import Path

import peewee as pw
import pytest

from hermes_core.store.database import connection_of, open_writer
from hermes_core.store.models import MODELS

TYPES = {
    pw.AutoField: "INTEGER",
    pw.BlobField: "BLOB",
    pw.BooleanField: "INTEGER",
    pw.FloatField: "REAL",
    pw.IntegerField: "INTEGER",
    pw.TextField: "TEXT",
}


@pytest.fixture
def database(tmp_path: Path) -> pw.SqliteDatabase:
    return open_writer(tmp_path / "state.db")


def test_every_table_has_a_model(database: pw.SqliteDatabase) -> None:
    tables = set(database.get_tables()) - {"sqlite_sequence"}
    assert {model._meta.table_name for model in MODELS} == tables
    database.close()


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_the_columns_of_its_table(
    database: pw.SqliteDatabase, model: type[pw.Model]
) -> None:
    found = {
        name: (kind, not required, default)
        for _, name, kind, required, default, _ in connection_of(database).execute(
            f"PRAGMA table_info({model._meta.table_name})"
        )
    }
    declared = {
        field.column_name: (TYPES[type(field)], field.null, _default(field))
        for field in model._meta.sorted_fields
    }
    assert declared == found
    keys = [column.name for column in database.get_columns(model._meta.table_name)]
    assert keys == [field.column_name for field in model._meta.sorted_fields]
    database.close()


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_the_key_of_its_table(
    database: pw.SqliteDatabase, model: type[pw.Model]
) -> None:
    declared = model._meta.primary_key
    if isinstance(declared, pw.CompositeKey):
        names = list(declared.field_names)
    else:
        assert isinstance(declared, pw.Field)
        names = [declared.column_name]
    assert database.get_primary_keys(model._meta.table_name) == names
    database.close()


def _default(field: pw.Field) -> str | None:
    """The default as the table writes it."""
    if field.default is None:
        return None
    return f"'{field.default}'" if isinstance(field.default, str) else str(int(field.default))
