"""`python -m book FOLDER`: build the site there."""

from __future__ import annotations

import sys
from pathlib import Path

from book.site import build_site

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/book")
print(f"{len(build_site(folder))} pages; begin with {folder / 'index.html'}")
