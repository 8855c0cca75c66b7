"""Reports as one offline HTML page with inline SVG."""
