"""CSV files: columns as fields, read forward."""
