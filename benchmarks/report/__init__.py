"""`results`: docs/results.md, its plots and the README's table, from the records."""
