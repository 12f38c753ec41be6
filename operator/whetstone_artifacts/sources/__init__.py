"""Fetching of models and adapters from where users keep them. The only protocol code is that of the libraries."""
