"""Servers that the speed benchmark compares with: each does as little as its framework allows."""
