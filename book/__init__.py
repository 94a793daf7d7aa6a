"""The book: a site of static pages from the Markdown in docs/, and the pictures in it. `make book` builds it."""
