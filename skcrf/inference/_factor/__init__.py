"""Message passing and mean field on factor graphs."""
