"""One file per paper, pure; a literal registry name -> policy."""
