"""What the operating system refused, in words for a person."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hermes_core.errors import HermesError

_REMEDIES = {
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "free some of your disk quota",
    errno.EROFS: "mount it writable, or name another directory in HERMES_HOME",
    errno.EACCES: "check who owns it and its permissions, or name another directory in HERMES_HOME",
    errno.EPERM: "check who owns it and its permissions, or name another directory in HERMES_HOME",
    errno.ENOTDIR: "a file stands where a directory is needed: move it away",
    errno.EEXIST: "a file stands where a directory is needed: move it away",
    errno.EISDIR: "a directory stands where a file is needed: move it away",
    errno.ELOOP: "a symbolic link stands in its place: remove it",
    errno.ENAMETOOLONG: "name a shorter directory in HERMES_HOME",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the whole system has too many open files",
}


def cannot(action: str, path: Path, error: OSError) -> HermesError:
    """One line for "cannot `action`" at `path`, with what to do about it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0, "")
    return HermesError(f"cannot {action}: {reason}", where=str(path), remedy=remedy)
