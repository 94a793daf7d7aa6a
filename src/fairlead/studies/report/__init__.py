"""What a comparison looks like: one page for the browser, and figures for a paper."""
