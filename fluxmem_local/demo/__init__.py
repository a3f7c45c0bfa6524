"""The case study of the FluxMem paper (figure 4), run for real on files, tools and the local models."""
