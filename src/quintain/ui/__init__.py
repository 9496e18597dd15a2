"""The web page: one HTML file with static modules, the catalog's tools as JSON, and live updates of jobs."""
