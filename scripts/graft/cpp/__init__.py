"""Reading C++ without a compiler: tokens, statements at namespace level, functions, includes, and syntax trees."""
