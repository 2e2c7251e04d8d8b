"""Junction trees."""
