"""Attention analysis of trained models."""
