"""A module for each operator, with a function ``cases`` that gives its cases."""
