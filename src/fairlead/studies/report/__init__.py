"""Reports of a comparison: one page for the browser, and figures for a paper."""
