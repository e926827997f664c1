"""The version of the product, apart from the version of the hook API."""

from __future__ import annotations

VERSION = "0.1.0"
