"""A file that maps patterns of job names to models, for traces that name jobs and no models.

"*resnet50*": resnet50      # the first pattern that matches counts
"bert-[0-9]*": bert-base
"""

from __future__ import annotations

from fairlead.traces.files import read_text
from fairlead.traces.importers.rows import ModelPatterns
from fairlead.traces.marked_yaml import parse_yaml


def read_model_names(path: str) -> ModelPatterns:
    """The patterns in the order of the file."""
    fields = parse_yaml(read_text(path), path, "patterns of job names, each with its model").mapping()
    return [(pattern, value.text()) for pattern, value in fields.items()]
