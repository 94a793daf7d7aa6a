"""The look that the dashboard and pages of finished runs share: style, tables, charts, and words that are explained."""
