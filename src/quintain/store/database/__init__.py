"""The database below the store: engines, tables, errors of drivers, backups and damage."""
