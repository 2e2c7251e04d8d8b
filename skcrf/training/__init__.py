"""The objective of a fit, where it starts, and how it is followed."""
