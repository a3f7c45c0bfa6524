"""The three stages: formation, refinement, consolidation."""
