"""Thin routes: parse, call, return."""
