"""The durable state of one profile: SQLite through peewee, one writer thread, a few readers."""

from hermes_core.store.database import Tx, open_read_only
from hermes_core.store.store import Store

__all__ = ["Store", "Tx", "open_read_only"]
